//! Anything as what `larder_http::fuzzing` calls `dates`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("dates", bytes));
