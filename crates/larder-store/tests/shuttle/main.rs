//! Interleavings of threads over one store, tried by a scheduler that decides at every lock and atomic who goes on.
//!
//! Runs with the feature `shuttle` alone: `cargo xtask shuttle`. The law is that of all
//! engine tests: what is read is what was committed under this key, and nothing that was replaced or removed before
//! the read began.

mod history;
mod late;
mod scenes;
