//! Fuzzes the configuration file, up to the configuration of proxy and store.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder::fuzzing::run(bytes));
