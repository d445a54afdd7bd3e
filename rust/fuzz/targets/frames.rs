#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossiplog_net::fuzzing::frames(data));
