//! Larder's laboratory: traces, workloads and the evictions that Larder's rows are compared with.
//!
//! Everything here is metadata: a request is a key and a size, bodies do not exist. Traces are streamed,
//! so that memory does not depend on their length. Start at [`Trace`] and [`Reference`].

mod bed;
mod convert;
mod evictions;
mod experiment;
mod figure;
mod lists;
mod model;
mod paper;
mod parallel;
mod pipeline;
mod random;
mod reference;
mod report;
mod request;
mod speed;
mod sweep;
mod trace;
mod workload;

pub use bed::{Bed, BedOptions, Happened};
pub use convert::{Conversion, Converted};
pub use evictions::Evictions;
pub use experiment::{Experiment, Outcome};
pub use figure::{Content, DrawError, Figure, Hue, Line, Scale, colour_of};
pub use model::{
    Arm, Disk, DiskParameters, FileParameters, Flash, MODELS, Model, ModelDevice, ModelDirectory, ModelError, Note,
    Served, SystemParameters,
};
pub use paper::{MarkatosOutcome, MarkatosRun, PAPERS, Paper, PaperOptions};
pub use parallel::jobs_default;
pub use pipeline::{Assumed, Counts, Operation, Pipeline, Victims};
pub use random::{Random, Zipf, mix};
pub use reference::{NextUses, Reference};
pub use report::{Comparison, Report, Table};
pub use request::Request;
pub use speed::Speed;
pub use sweep::{RequestSource, Steps, Sweep, SweepError, TraceFile};
pub use trace::{Format, Progress, Trace, TraceError, write_compact};
pub use workload::{
    Asked, Document, Markatos, PolyMix, PolyMixClass, PolyMixNature, PolyMixObject, PolyMixRequest, PolyMixRequests,
    PolyMixVersion, RequestKind, Workload, ZipfRequests,
};
