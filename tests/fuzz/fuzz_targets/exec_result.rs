#![no_main]
//! A result that was read can be written and read again, and shortened to fit.

use libfuzzer_sys::fuzz_target;
use triwire::exec::result::ExecResult;

fuzz_target!(|data: &[u8]| {
    let result = match ExecResult::parse(data) {
        Ok(result) => result,
        Err(error) => {
            assert!(error.at <= data.len());
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let _ = result.status();
    let mut out = vec![0; data.len() * 6 + 1024];
    let written = result.write(&mut out).expect("room for it");
    let again = ExecResult::parse(written).expect("ours");
    assert_eq!(again.exit(), result.exit());
    assert_eq!(again.usage, result.usage);
    assert_eq!(again.signal.to_string(), result.signal.to_string());
    assert_eq!(again.error.to_string(), result.error.to_string());

    let limit = 640;
    let mut room = vec![0; limit];
    let short = result.shortened(limit);
    let shortened = short.write(&mut room).expect("it fits");
    let short = ExecResult::parse(shortened).expect("ours");
    assert!(result.error.to_string().starts_with(&short.error.to_string()));
});
