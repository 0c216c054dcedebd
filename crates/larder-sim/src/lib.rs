//! Larder's laboratory: machines in virtual time, and published eviction algorithms to compare Larder's policies with.
//!
//! A request is a key and a size; bodies are not simulated. Requests come from `larder_workload`. Start at [`SimStore`]
//! and [`Eviction`].

mod bed;
mod cluster;
mod convert;
mod evictions;
mod experiment;
mod figure;
mod kangaroo;
mod lists;
mod memory_cache;
mod model;
mod paper;
mod parallel;
mod pipeline;
mod plan_test;
mod reference;
mod report;
mod speed;
mod sweep;

pub use bed::{SimStore, SimStoreOptions, StoreEvents};
pub use cluster::ClusterTest;
pub use convert::{Conversion, ConversionSummary};
pub use evictions::Evictions;
pub use experiment::{Experiment, Outcome};
pub use figure::{DrawError, Figure, FigureContent, FigureLine, Hue, Scale, color_of};
pub use kangaroo::{Kangaroo, KangarooCounts};
pub use memory_cache::MemoryKind;
pub use model::{
    Arm, Disk, DiskOperation, DiskParameters, DiskWork, FileParameters, Flash, MODELS, Model, ModelDevice,
    ModelDirectory, ModelError, Note, PieceReads, SystemParameters,
};
pub use paper::{
    KnownRuns, MarkatosOutcome, MarkatosRun, PAPERS, Paper, PaperOptions, RANGES_TITLE, bed_notes, vary_assumptions,
};
pub use parallel::jobs_default;
pub use pipeline::{Operation, OperationCounts, Pipeline, PipelineAssumptions, Victims};
pub use plan_test::PlanTest;
pub use reference::{Eviction, NextUses, belady, eviction, eviction_names};
pub use report::{Comparison, ComparisonBasis, Report, Table, ValueKind};
pub use speed::SpeedTest;
pub use sweep::{RequestSource, Steps, Sweep, SweepError, TraceFile};
