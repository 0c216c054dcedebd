//! Fuzzes the reader of requests on the control socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder::fuzzing::run_control(bytes));
