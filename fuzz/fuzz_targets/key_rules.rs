//! Fuzzes the target `key_rules` of `larder_http::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("key_rules", bytes));
