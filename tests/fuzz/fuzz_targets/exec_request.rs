#![no_main]
//! A request that was read can be written and read again; a fault names a byte of the body.

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use triwire::exec::request::{ExecRequest, MAX_TIMEOUT_S, write_request};

type Owned = (Vec<String>, Vec<(String, String)>, String, u32);

fn owned(request: &ExecRequest<'_>) -> Owned {
    (
        request.cmd().map(|text| text.to_string()).collect(),
        request.env().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        request.cwd().to_string(),
        request.timeout_s(),
    )
}

fuzz_target!(|data: &[u8]| {
    let request = match ExecRequest::parse(data) {
        Ok(request) => request,
        Err(error) => {
            assert!(error.at <= data.len());
            assert!(error.to_string().contains("byte"));
            return;
        }
    };
    let (cmd, env, cwd, timeout_s) = owned(&request);
    assert!(cmd.first().is_some_and(|program| !program.is_empty()));
    assert!(cmd.iter().chain([&cwd]).all(|text| !text.contains('\0')));
    assert!(env.iter().all(|(name, value)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    }));
    assert_eq!(
        env.iter().map(|(name, value)| (name, value)).collect::<HashMap<_, _>>().len(),
        env.len()
    );
    assert!(timeout_s <= MAX_TIMEOUT_S);

    let mut out = vec![0; data.len() * 6 + 64];
    let written = write_request(&cmd, &env, &cwd, timeout_s, &mut out).expect("room for it");
    let again = ExecRequest::parse(written).expect("ours");
    assert_eq!(owned(&again), (cmd, env, cwd, timeout_s));
});
