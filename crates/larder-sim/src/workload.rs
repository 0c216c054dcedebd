//! Workloads made from a seed: the same requests on every machine.

mod markatos;

pub use markatos::{Document, Markatos};
