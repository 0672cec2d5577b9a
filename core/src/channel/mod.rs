//! The channel contract: calls to tools at the other end of a connection, each of which comes back
//! settled, by an answer or by a refusal with a name.
//!
//! ```text
//!   caller                                                        executor
//!     |  ask                                                          ^
//!     v                                                               | run, answer
//!   Broker ──────────────── {v, callId, tool, …} ───────────────▶ Door ──▶ Admissions
//!     ^                                                               |    bounds, budget
//!     └──────────── {v, callId, ok, observed | refused, why} ◀────────┘
//! ```
//!
//! Messages are whole: one WebSocket text message, one [line](lines) of a stream of bytes.
//!
//! - [`broker`]: the asking end. Who asks gets an outcome, whatever becomes of the peer.
//! - [`door`]: the executing end. A call runs when it is attributed, within its bounds and budget,
//!   and at most once; it is answered when its executor fails, too.
//! - [`hello`]: who may be an executor: a page of this machine, or an environment with a bearer.
//! - [`route`]: who may ask over HTTP, and how. [`keepalive`]: peers that are gone without a word.
//!   [`reconnect`]: when an executor tries again.
//! - [`envelope`], [`bounds`], [`admission`], [`refusal`]: the pieces that these are made of.
//!
//! Both ends, without a wire between them:
//!
//! ```
//! use triwire::channel::admission::{Admission, Table};
//! use triwire::channel::bounds::Bounds;
//! use triwire::channel::broker::{self, Broker, Event, Request};
//! use triwire::channel::door::{self, Door, Received};
//! use triwire::channel::envelope::{Object, Outcome};
//! use triwire::channel::refusal::Peer;
//! use triwire::time::Instant;
//!
//! let now = Instant::ZERO;
//! let bounds = Bounds::parse(r#"{"registers":[0,1],"maxRequests":100}"#)?;
//!
//! let mut broker = Broker::new([broker::Slot::EMPTY; 4], Peer::Machine, 0x5eed);
//! let link = broker.link_up(now);
//! let admissions = Table::new([Admission::new("board", "read", bounds)]);
//! let mut door = Door::new([door::Slot::<64>::EMPTY; 2], admissions);
//!
//! let (mut call, mut answer) = ([0; 512], [0; 512]);
//! let args = Object::parse(r#"{"register":1}"#)?;
//! let asked = broker.ask(now, Request::new("board", "read", args, bounds.echo()), &mut call)?;
//!
//! let reply = match door.feed(asked.message) {
//!     Received::Run(ticket, call) => {
//!         assert_eq!(call.tool, "read"); // the executor's part
//!         let observed = Outcome::Observed(Object::parse(r#"{"value":42}"#)?);
//!         door.answer(ticket, observed, &mut answer)?
//!     }
//!     Received::Refuse(refused) => refused.write(&mut answer)?,
//!     Received::Ignored(_) => &[],
//! };
//!
//! let Event::Answered { call, outcome } = broker.feed(now, link, reply) else { panic!() };
//! assert_eq!(call, asked.call);
//! assert_eq!(outcome, Outcome::Observed(Object::parse(r#"{"value":42}"#)?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod admission;
pub mod bounds;
pub mod broker;
pub mod door;
pub mod envelope;
pub mod hello;
pub mod keepalive;
pub mod lines;
pub mod reconnect;
pub mod refusal;
pub mod route;

mod queue;
