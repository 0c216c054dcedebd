//! Fuzzes the decoder of a snapshot, see `larder_store::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_store::fuzzing::run("snapshot", bytes));
