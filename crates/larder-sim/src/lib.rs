//! Larder's laboratory: traces, workloads and the evictions that Larder's rows are compared with.
//!
//! Everything here is metadata: a request is a key and a size, bodies do not exist. Traces are streamed,
//! so that memory does not depend on their length. Start at [`Trace`] and [`Reference`].

mod reference;
mod request;
mod trace;

pub use reference::{NextUses, Reference};
pub use request::Request;
pub use trace::{Format, Progress, Trace, TraceError, write_compact};
