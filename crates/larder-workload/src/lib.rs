//! Requests to test a cache with: traces from files, workloads from a seed, and their random numbers.
//!
//! Everything here is metadata: a request is a key and a size, without a body. Traces are streamed, so that memory does
//! not depend on their length. Workloads are the same on every machine. Start at [`Trace`] and [`Workload`].

mod random;
mod request;
mod trace;
mod workload;

pub use random::{Random, Zipf, mix};
pub use request::Request;
pub use trace::{Format, Progress, Trace, TraceError, write_compact};
pub use workload::{
    Document, Markatos, PolyMix, PolyMixClass, PolyMixLoad, PolyMixNature, PolyMixObject, PolyMixRequest,
    PolyMixRequests, PolyMixRobots, PolyMixVersion, RequestKind, Workload, WorkloadRequest, ZipfRequests,
};
