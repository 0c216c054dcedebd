//! Anything as what `larder_http::fuzzing` calls `content_range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_http::fuzzing::run("content_range", bytes));
