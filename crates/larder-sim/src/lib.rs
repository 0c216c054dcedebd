//! Larder's laboratory: traces, workloads and the evictions that Larder's rows are compared with.
//!
//! Everything here is metadata: a request is a key and a size, bodies do not exist. Traces are streamed,
//! so that memory does not depend on their length. Start at [`Trace`] and [`Reference`].

mod lists;
mod pipeline;
mod random;
mod reference;
mod request;
mod trace;
mod workload;

pub use pipeline::{Counts, Operation, Pipeline};
pub use random::{Random, Zipf};
pub use reference::{NextUses, Reference};
pub use request::Request;
pub use trace::{Format, Progress, Trace, TraceError, write_compact};
pub use workload::{Document, Markatos};
