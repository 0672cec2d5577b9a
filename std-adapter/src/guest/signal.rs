//! Names of signals: the core's, and those of the real-time signals, whose first number the C
//! library decides.

use std::borrow::Cow;

use triwire::exec::signal;

/// Names a signal; a real-time one counts from `SIGRTMIN`.
pub(super) fn name(number: i32) -> Cow<'static, str> {
    if let Some(name) = u8::try_from(number).ok().and_then(signal::name) {
        return Cow::Borrowed(name);
    }
    match number - libc::SIGRTMIN() {
        0 => Cow::Borrowed("SIGRTMIN"),
        above @ 1.. if number <= libc::SIGRTMAX() => Cow::Owned(format!("SIGRTMIN+{above}")),
        // Below SIGRTMIN stand the two that the C library keeps for itself.
        _ => Cow::Owned(format!("SIG{number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_a_name_of_its_own() {
        // rule: EXEC-63
        assert_eq!(name(libc::SIGKILL), "SIGKILL");
        assert_eq!(name(libc::SIGTERM), "SIGTERM");
        assert_eq!(name(libc::SIGSEGV), "SIGSEGV");
        assert_eq!(name(libc::SIGRTMIN()), "SIGRTMIN");
        assert_eq!(name(libc::SIGRTMIN() + 3), "SIGRTMIN+3");
        let mut names: Vec<_> = (1..=libc::SIGRTMAX()).map(name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.iter().all(|name| name.starts_with("SIG")));
    }
}
