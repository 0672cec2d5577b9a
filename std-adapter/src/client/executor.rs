//! An executor that connects out to a gateway, and answers calls to its tools there.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{info, warn};
use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::{Bounds, BoundsError};
use triwire::channel::door::{AnswerError, Door, Received, Slot, Ticket};
use triwire::channel::envelope::{Call, MAX_MESSAGE};
use triwire::channel::hello::{Told, write_hello};
use triwire::channel::keepalive::{Due, Keepalive};
use triwire::channel::reconnect::Reconnect;
use triwire::channel::route::CHANNEL_PATH;
use triwire::exec::head::{HeadError, Mode, RequestHead};
use zeroize::Zeroizing;

use super::link::{INBOX, Rx, Tx};
use super::stream::Stream;
use super::{Client, ClientError, Secret, connect};
use crate::Wake;
use crate::clock::Clock;
use crate::entropy;
use crate::exchange::{self, Refusal};
use crate::outcome::{Outcome, owned};
use crate::tokio::heard::Heard;
use crate::tokio::socket::{self, Ending, Message, Role, Sizes};

/// The longest id of a call that is taken, in bytes of UTF-8.
const ID: usize = 256;
/// Calls that run at once unless told otherwise.
const CONCURRENCY: usize = 16;
/// Messages that are taken before what they led to is sent.
const BATCH: usize = 64;
/// Room for the heads of messages and for pings.
const SEND_EXTRA: usize = 64 * 1024;
/// How long the gateway may take over the last words.
const CLOSE_BOUND: Duration = Duration::from_secs(5);

/// A call that may run: it is admitted, and echoes its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The extension.
    pub descriptor_id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments: the text of a JSON object.
    pub args: String,
}

impl ToolCall {
    fn of(call: &Call<'_>) -> Self {
        Self {
            descriptor_id: owned(call.descriptor_id),
            tool: owned(call.tool),
            args: call.args.as_str().to_owned(),
        }
    }
}

/// What became of a call: an outcome of the tool, which goes out as it is, or why the tool failed,
/// in words for people, which goes out as `exec-threw`.
pub type Ran = Result<Outcome, String>;

type Running = Pin<Box<dyn Future<Output = Ran> + Send>>;

/// An executor of a gateway's channel, a machine by the name of its pairing.
///
/// It connects, and connects again whenever the connection is lost: later each time, and at
/// random, so that many executors do not come all at once. Its tools run side by side, as tasks
/// of their own; one that panics is answered `exec-threw`, and the others go on.
///
/// ```no_run
/// use triwire_std::client::{Client, Observed, Outcome};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder("http://127.0.0.1:7878").build()?;
/// let executor = client
///     .executor("vbx_…", async |call| {
///         let observed = Observed::parse(format!(r#"{{"length":{}}}"#, call.args.len()))
///             .map_err(|error| error.to_string())?;
///         Ok(Outcome::Observed(observed))
///     })
///     .admit("texts", "measure", r#"{"maxRequests":100}"#)?;
/// let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
/// executor.run(stop).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent before `run`"]
pub struct Executor {
    client: Client,
    bearer: Secret,
    admitted: Vec<Admitted>,
    run: Box<dyn Fn(ToolCall) -> Running + Send + Sync>,
    concurrency: usize,
    message: usize,
}

struct Admitted {
    descriptor_id: String,
    tool: String,
    bounds: String,
}

impl Client {
    /// Begins an executor that shows `bearer` and runs its calls by `run`. It admits nothing
    /// before [`admit`](Executor::admit).
    pub fn executor<F, R>(&self, bearer: impl Into<Secret>, run: F) -> Executor
    where
        F: Fn(ToolCall) -> R + Send + Sync + 'static,
        R: Future<Output = Ran> + Send + 'static,
    {
        Executor {
            client: self.clone(),
            bearer: bearer.into(),
            admitted: Vec::new(),
            run: Box::new(move |call| Box::pin(run(call))),
            concurrency: CONCURRENCY,
            message: MAX_MESSAGE,
        }
    }
}

impl Executor {
    /// Admits a tool of an extension, with the bounds that its calls must echo; `maxRequests`
    /// among them is its budget.
    ///
    /// # Errors
    /// The bounds are no JSON object of bounds.
    pub fn admit(
        mut self,
        descriptor_id: impl Into<String>,
        tool: impl Into<String>,
        bounds: impl Into<String>,
    ) -> Result<Self, BoundsError> {
        let bounds = bounds.into();
        Bounds::parse(&bounds)?;
        let (descriptor_id, tool) = (descriptor_id.into(), tool.into());
        self.admitted.push(Admitted { descriptor_id, tool, bounds });
        Ok(self)
    }

    /// Sets how many calls run at once, 16 unless set; further ones are refused as
    /// `too-many-calls`.
    pub const fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Sets the longest message either way, in bytes; 1 MiB unless set.
    pub const fn message_limit(mut self, limit: usize) -> Self {
        self.message = limit;
        self
    }

    /// Answers calls until `stop` is ready, over as many connections as that takes.
    ///
    /// Budgets are this run's: they stay used when the connection is lost.
    ///
    /// # Errors
    /// [`ExecutorError`] when trying again is no use: the bearer is refused, another executor
    /// took the chair, or the URL, the trust or the gateway's answer are wrong.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, and drops the tools that run.
    // rule: CHAN-70, CHAN-72
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), ExecutorError> {
        let mut stop = pin!(stop.fuse());
        let admissions: Vec<_> = (self.admitted.iter())
            .filter_map(|admitted| {
                let bounds = Bounds::parse(&admitted.bounds).ok()?;
                Some(Admission::new(&admitted.descriptor_id, &admitted.tool, bounds))
            })
            .collect();
        let slots = vec![Slot::<ID>::EMPTY; self.concurrency];
        let mut door = Door::new(slots, Table::new(admissions)).with_limit(self.message);
        let clock = Clock::start();
        let mut reconnect = Reconnect::new();
        loop {
            let ended = match tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                opened = self.open() => opened,
            } {
                Ok((stream, unread)) => {
                    reconnect.connected(clock.now());
                    let mut session = Session::new(self, stream, &unread, clock);
                    let ended = session.serve(&mut door, stop.as_mut()).await;
                    // Their callers were told that the machine is gone.
                    door.link_down();
                    ended
                }
                Err(error) if is_final(&error) => return Err(error.into()),
                Err(error) => Ended::Lost(error.to_string()),
            };
            let why = match ended {
                Ended::Stopped => return Ok(()),
                Ended::Refused(refused) => return Err(refused),
                Ended::Lost(why) => why,
            };
            let mut entropy = [0; 4];
            // Without randomness it waits the least, which is no harm alone.
            let _ = entropy::fill(&mut entropy);
            let wait = reconnect.ended(clock.now(), u32::from_ne_bytes(entropy));
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            warn!(why, again_in_ms = millis, "not connected");
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = sleep(wait) => {}
            }
        }
    }

    /// Connects, upgrades to WebSocket, and returns what came behind the upgrade.
    async fn open(&self) -> Result<(Stream, Vec<u8>), ClientError> {
        let client = &self.client;
        let key =
            entropy::websocket_key().map_err(|error| ClientError::Entropy(Arc::new(error)))?;
        let mode = Mode::Socket { key: &key };
        let path = format!("{}{CHANNEL_PATH}", client.base);
        let head = RequestHead {
            mode,
            // The path is given whole.
            sandbox: "channel",
            host: &client.host,
            bearer: None,
            content_length: None,
            path: &path,
        };
        let wire = exchange::write_head(&head, 0)?;
        let (reader, writer) = tokio::io::split(connect::dial(client).await?);
        let mut rx = Rx::new(reader, vec![0; INBOX].into_boxed_slice());
        let mut tx = Tx::new(writer, Zeroizing::new(vec![0; wire.len()]));
        // There is room: it was made for it.
        let _ = tx.send(&wire);
        let exchanged = exchange::exchange(&mut rx, &mut tx, mode);
        let Ok(exchanged) = timeout(client.connect_timeout, exchanged).await else {
            let after = client.connect_timeout;
            return Err(ClientError::ConnectTimeout { url: client.url(), after });
        };
        let answer = exchanged?;
        rx.consume(answer.len);
        match answer.verdict {
            Ok(_) => {}
            Err(HeadError::Status { found }) => {
                let Refusal { code, why } = exchange::refusal(&mut rx, answer.framing).await;
                return Err(ClientError::Refused { status: found, code, why });
            }
            Err(error) => return Err(error.into()),
        }
        let unread = rx.unread().to_vec();
        Ok((rx.into_reader().unsplit(tx.into_writer()), unread))
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self.admitted.iter().map(|admitted| &admitted.tool).collect();
        f.debug_struct("Executor")
            .field("client", &self.client)
            .field("tools", &tools)
            .field("concurrency", &self.concurrency)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

/// Reports whether the next try would fail in the same way.
fn is_final(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { status, .. } => {
            (400..500).contains(status) && ![408, 429].contains(status)
        }
        ClientError::Url(_) | ClientError::Head(_) => true,
        #[cfg(feature = "tls")]
        ClientError::Tls { .. } | ClientError::Roots(_) => true,
        _ => false,
    }
}

/// Why an executor ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The gateway cannot be used.
    Client(ClientError),
    /// The gateway sent the executor away, and would do so again.
    Refused {
        /// The rule's word, such as `bearer-refused`.
        refused: String,
        /// The gateway's words, for people.
        why: String,
    },
}

impl From<ClientError> for ExecutorError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for ExecutorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Refused { refused, why } => {
                let (refused, why) =
                    (exchange::on_one_line(refused.chars()), exchange::on_one_line(why.chars()));
                write!(f, "the gateway sent the executor away: {refused}: {why}")
            }
        }
    }
}

impl Error for ExecutorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Refused { .. } => None,
        }
    }
}

/// How a connection ended.
enum Ended {
    Stopped,
    Refused(ExecutorError),
    Lost(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// One connection, behind its upgrade.
struct Session<'e> {
    executor: &'e Executor,
    rx: socket::Rx<Heard<Stream>>,
    tx: socket::Tx<Heard<Stream>>,
    clock: Clock,
    keepalive: Keepalive,
    tasks: JoinSet<Ran>,
    tickets: HashMap<Id, Ticket>,
    /// Replies that found no room yet; while there are any, no call is taken.
    replies: VecDeque<String>,
    /// Where replies are written.
    room: Vec<u8>,
    told: Option<ExecutorError>,
}

type ToolDoor<'a> = Door<Vec<Slot<ID>>, Table<'a, Vec<Admission<'a>>>, ID>;

impl<'e> Session<'e> {
    fn new(executor: &'e Executor, stream: Stream, unread: &[u8], clock: Clock) -> Self {
        let sizes = Sizes {
            send_buffer: executor.message.saturating_add(SEND_EXTRA),
            max_message: executor.message,
            ..Sizes::default()
        };
        let (rx, tx) = socket::link(Heard::new(stream, clock), Role::Client, unread, sizes);
        Self {
            executor,
            rx,
            tx,
            clock,
            keepalive: Keepalive::new(clock.now()),
            tasks: JoinSet::new(),
            tickets: HashMap::new(),
            replies: VecDeque::new(),
            room: vec![0; 1024],
            told: None,
        }
    }

    async fn serve(
        &mut self,
        door: &mut ToolDoor<'_>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Ended {
        self.hello();
        match self.converse(door, stop).await {
            Ok(ended) | Err(ended) => ended,
        }
    }

    // rule: CHAN-71
    fn hello(&mut self) {
        let bearer = self.executor.bearer.as_str();
        let mut room = Zeroizing::new(vec![0; 64 + 6 * bearer.len()]);
        if let Ok(text) = write_hello(bearer, &mut room) {
            let text = String::from_utf8_lossy(text);
            // There is room: nothing was sent before.
            let _ = self.tx.send(Message::Text(text.as_ref().into()));
        }
    }

    async fn converse(
        &mut self,
        door: &mut ToolDoor<'_>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Ended, Ended> {
        info!(url = self.executor.client.url(), "connected");
        let mut alarm = pin!(sleep_until(self.clock.to_tokio(self.keepalive.deadline())));
        loop {
            while let Some(reply) = self.replies.pop_front() {
                if !self.tx.has_room(reply.len()) {
                    self.replies.push_front(reply);
                    break;
                }
                if self.tx.send(Message::Text(reply.into())).is_err() {
                    return Ok(self.ended());
                }
            }
            self.keepalive.heard(self.tx.with_transport(|transport| transport.at()));
            match self.keepalive.poll(self.clock.now()) {
                // Without room something else waits to be sent, which shows the same.
                Some(Due::Ping) => drop(self.tx.ping(b"")),
                Some(Due::Gone) => return Ok(Ended::Lost("the gateway is silent".to_owned())),
                None => {}
            }
            let next = self.clock.to_tokio(self.keepalive.deadline());
            if next < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(next);
            }
            let is_free = self.replies.is_empty();
            tokio::select! {
                () = &mut stop => {
                    self.leave().await;
                    return Ok(Ended::Stopped);
                }
                wake = self.rx.wait(None), if is_free => if wake? == Wake::End {
                    return Ok(self.ended());
                },
                sent = self.tx.flush(), if !self.tx.is_flushed() => sent?,
                Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    self.answer(door, done);
                }
                () = &mut alarm => {}
            }
            for count in 0.. {
                // A message that a wait told of is always taken: else no later wait ends.
                if let Some(message) = self.rx.next() {
                    self.take(door, &message);
                }
                if count == BATCH || !self.replies.is_empty() {
                    break;
                }
                match self.rx.wait(None).now_or_never() {
                    None => break,
                    Some(wake) => {
                        if wake? == Wake::End {
                            return Ok(self.ended());
                        }
                    }
                }
            }
        }
    }

    /// Takes a message: a call, or what the gateway says before it closes.
    fn take(&mut self, door: &mut ToolDoor<'_>, message: &Message) {
        let Message::Text(text) = message else { return };
        match door.feed(text.as_bytes()) {
            Received::Run(ticket, call) => {
                let task = self.tasks.spawn((self.executor.run)(ToolCall::of(&call)));
                self.tickets.insert(task.id(), ticket);
            }
            Received::Refuse(refused) => loop {
                match refused.write(&mut self.room) {
                    Ok(reply) => break self.replies.push_back(text_of(reply)),
                    Err(error) => self.room.resize(error.needed, 0),
                }
            },
            Received::Ignored(_) => {
                if let Some(told) = Told::parse(text.as_bytes()).filter(Told::is_final) {
                    let (refused, why) = (owned(told.refused), owned(told.why));
                    self.told = Some(ExecutorError::Refused { refused, why });
                }
            }
        }
    }

    /// Writes the reply of a call that ran, or panicked.
    // rule: CHAN-75
    fn answer(&mut self, door: &mut ToolDoor<'_>, done: Result<(Id, Ran), JoinError>) {
        let (id, ran) = match done {
            Ok((id, ran)) => (id, Some(ran)),
            Err(error) => (error.id(), None),
        };
        let Some(mut ticket) = self.tickets.remove(&id) else { return };
        let limit = self.executor.message;
        let mut is_too_long = false;
        loop {
            let written = match &ran {
                Some(_) if is_too_long => {
                    let why =
                        format!("what was observed is longer than a message of {limit} bytes");
                    door.threw(ticket, &why, &mut self.room)
                }
                Some(Ok(outcome)) => door.answer(ticket, outcome.as_core(), &mut self.room),
                Some(Err(why)) => door.threw(ticket, why, &mut self.room),
                None => door.lost(ticket, &mut self.room),
            };
            match written {
                Ok(reply) => break self.replies.push_back(text_of(reply)),
                Err(AnswerError::Gone) => break,
                Err(AnswerError::OutTooSmall { ticket: again, needed }) => {
                    is_too_long |= needed > limit;
                    if !is_too_long || needed <= limit {
                        self.room.resize(needed, 0);
                    }
                    ticket = again;
                }
            }
        }
    }

    fn ended(&mut self) -> Ended {
        if let Some(told) = self.told.take() {
            return Ended::Refused(told);
        }
        Ended::Lost(match self.rx.ending() {
            Some(Ending::Closed { code: Some(code), reason }) => {
                format!("the gateway closed the connection with {code} {reason}")
            }
            Some(Ending::Fault(fault)) => format!("the gateway sent {fault}"),
            _ => "the gateway closed the connection".to_owned(),
        })
    }

    /// Closes in order.
    async fn leave(&mut self) {
        self.tx.close(1000, "");
        let leaving = async {
            self.tx.flush().await?;
            while self.rx.wait(None).await? != Wake::End {
                while self.rx.next().is_some() {}
            }
            Ok::<_, io::Error>(())
        };
        // Whatever becomes of it, the connection is closed behind it.
        let _ = timeout(CLOSE_BOUND, leaving).await;
    }
}

fn text_of(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).into_owned()
}
