//! Fuzzes the decoder of a packed file (WARC), see `larder_proxy::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("packed", bytes));
