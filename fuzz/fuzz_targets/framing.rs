//! Fuzzes the target `framing` of `larder_http::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("framing", bytes));
