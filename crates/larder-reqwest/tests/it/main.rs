//! Tests of larder-reqwest: the table of cases of larder-tower, against a server on the loopback interface.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../larder-tower/tests/it/cases.rs"]
mod cases;
mod client;
#[path = "../../../larder-tower/tests/it/raw_http2.rs"]
mod raw_http2;
#[path = "../../../larder-tower/tests/it/support.rs"]
mod support;
