//! Anything as what `larder_http::fuzzing` calls `cache_control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("cache_control", bytes));
