//! Anything as what `larder_http::fuzzing` calls `key_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("key_rules", bytes));
