//! Tests of the cache as its users see it: on a real directory, with threads, kills and clocks that are set.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod concurrency;
mod fetching;
mod kills;
mod lifetimes;
mod lookups;
mod removals;
mod support;
