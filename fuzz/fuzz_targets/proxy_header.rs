//! Fuzzes the parser of the header of the PROXY protocol, see `larder_proxy::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("proxy_header", bytes));
