//! Fuzzes the parser of an origin's response, which arrives in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("response", bytes));
