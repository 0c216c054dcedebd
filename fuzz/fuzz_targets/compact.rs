//! Fuzzes the decoder of a compact set, see `larder_store::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_store::fuzzing::run("compact", bytes));
