//! Tests of the cache from its users' point of view: in a real directory, with threads, kills and clocks that are set.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod concurrency;
mod fetching;
mod kills;
mod lifetimes;
mod lookups;
mod object;
mod readme;
mod removals;
mod streaming;
mod support;
