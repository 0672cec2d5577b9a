#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| triwire_model::check::http_body(data));
