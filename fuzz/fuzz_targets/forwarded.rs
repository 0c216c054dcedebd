//! Fuzzes the parser of X-Forwarded-For and Forwarded, see `larder_proxy::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("forwarded", bytes));
