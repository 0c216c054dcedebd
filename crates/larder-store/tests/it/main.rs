//! Integration tests.
mod contract;
mod runtime;
