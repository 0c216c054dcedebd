//! Fuzzes the parser of a record of the second tier, see `larder_proxy::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_proxy::fuzzing::parse("tier_record", bytes));
