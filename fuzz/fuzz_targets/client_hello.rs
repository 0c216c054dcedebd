//! Fuzzes the parser of the first message of a TLS client, see `larder_proxy::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("client_hello", bytes));
