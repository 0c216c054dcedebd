//! Tests of larder-tower: the table of cases, bodies, and requests at the same time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod cases;
mod layer;
mod layer_subject;
mod raw_http2;
mod sharing;
mod support;
