//! Anything as an origin's response, however it is split.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::receive(bytes));
