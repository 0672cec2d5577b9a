//! The conformance suite in process, and the check that rules and citations match: see `tests/`.
