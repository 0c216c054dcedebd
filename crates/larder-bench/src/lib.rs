//! Larder's benchmark: real sockets and real devices, measured in real time.
//!
//! Nothing is simulated here (see `larder-sim`). [`measure_device`] measures a device through the engine's own I/O, for
//! use by `larder_store::plan`. [`BenchJob`] sends requests to a proxy in front of an [`Origin`]. Start at these two.

mod bench;
mod content;
mod cpu;
mod descriptors;
mod device;
mod fields;
mod json;
mod kernel;
mod load;
mod origin;
mod report;
mod store_rate;
mod subject;
mod undo;
mod wire;
mod workload;

pub use bench::{BenchJob, BenchResult, PeakSearch, PeakStep};
pub use descriptors::{DescriptorsFigures, DescriptorsJob, Readiness};
pub use device::{DeviceError, DeviceJob, measure_device};
pub use json::{figures_from_json, to_json};
pub use kernel::{KernelCounts, WatchedProcesses};
pub use larder_workload::PolyMixVersion;
pub use load::{
    Complaint, Load, LoadFigures, Loop, PhaseFigures, RecordedTimes, RequestCounts, Requests, ResponseTimes,
    SecondFigures, Target,
};
pub use origin::{Origin, OriginCounts, OriginOptions};
pub use report::page;
pub use store_rate::{StoreJob, StoreRate, measure_store};
pub use subject::{LarderOptions, LarderProcess};
pub use workload::{Phase, Workload, WorkloadOptions};
