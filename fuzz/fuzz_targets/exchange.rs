//! Fuzzes the proxy on loopback with a client's fields and an origin's response.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::run_alone(bytes));
