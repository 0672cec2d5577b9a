//! The parts of the tool that other suites run in process: the testee, which answers the
//! operations of the conformance suite with the machines of `triwire`, and the suite's cases.
//!
//! ```
//! let request = br#"{"id":1,"op":"text.length","in":{"text":"h\u00e9llo"}}"#;
//! assert_eq!(triwire_gateway::testee::answer(request), r#"{"id":1,"out":{"length":5}}"#);
//! ```

pub mod cases;
pub mod testee;
