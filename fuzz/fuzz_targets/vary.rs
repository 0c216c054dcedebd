//! Anything as what `larder_http::fuzzing` calls `vary`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("vary", bytes));
