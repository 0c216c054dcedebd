//! Tests of larder-tower: the table of cases, and bodies.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod cases;
mod layer;
mod support;
