//! Anything as a client's fields and an origin's answer, through the proxy on loopback.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::run(bytes));
