//! Fuzzes the reading of clients' requests, which arrive in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("request", bytes));
