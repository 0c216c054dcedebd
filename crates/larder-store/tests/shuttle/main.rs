//! Interleavings of threads on one store, tried by a scheduler that chooses the next thread at every lock and atomic.
//!
//! Runs only with the feature `shuttle`: `cargo xtask shuttle`. The law is that of all engine tests: a read returns
//! what was committed under its key, and nothing that was replaced or removed before the read began.

mod history;
mod late;
mod scenes;
