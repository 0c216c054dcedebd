//! Anything as a configuration file, down to what proxy and store would be started with.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder::fuzzing::run(bytes));
