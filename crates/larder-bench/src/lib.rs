//! Larder's benchmark: real sockets and real devices by the wall clock.
//!
//! Nothing is simulated here (see `larder-sim`): [`measure_device`] moves bytes through the engine's own devices, for
//! `larder_store::plan` to compute with, and [`BenchJob`] asks a proxy for what an [`Origin`] has. Start at those two.

mod bench;
mod content;
mod cpu;
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
mod workload;

pub use bench::{BenchJob, BenchResult, PeakSearch, PeakStep};
pub use device::{DeviceError, DeviceJob, measure_device};
pub use json::{figures_from_json, to_json};
pub use kernel::{KernelCounts, WatchedProcesses};
pub use load::{
    Complaint, Load, LoadFigures, Loop, PhaseFigures, RecordedTimes, RequestCounts, Requests, ResponseTimes,
    SecondFigures, Target,
};
pub use origin::{Origin, OriginCounts, OriginOptions};
pub use report::page;
pub use store_rate::{StoreJob, StoreRate, measure_store};
pub use subject::{LarderOptions, LarderProcess};
pub use workload::{Phase, Workload, WorkloadOptions};
