//! Larder's benchmark: real sockets and real devices by the wall clock, and the plan that is made with the figures.
//!
//! Nothing is simulated here (see `larder-sim`): [`measure_device`] moves bytes through the engine's own devices, [`Plan`]
//! computes with what was measured and with what each row of the policy table costs, and [`BenchJob`] asks a proxy for what
//! an [`Origin`] has. Start at those three.

mod bench;
mod content;
mod cpu;
mod device;
mod fields;
mod kernel;
mod load;
mod origin;
mod plan;
mod report;
mod store_rate;
mod subject;
mod undo;
mod workload;

pub use bench::{BenchJob, BenchResult, PeakSearch, PeakStep};
pub use device::{
    BesideReads, DeviceError, DeviceFigures, DeviceJob, FileFigures, READ_BYTES, READ_DEPTHS, ReadFigure, WriteFigure,
    measure_device,
};
pub use kernel::{KernelCounts, Watched};
pub use load::{
    Complaint, Counts, Load, LoadFigures, Loop, PhaseFigures, Recorded, Requests, SecondFigures, Target, Times,
};
pub use origin::{Origin, OriginCounts, OriginOptions};
pub use plan::{Bound, Plan, PlanWishes, PlannedRow, Sizes};
pub use report::page;
pub use store_rate::{StoreJob, StoreRate, measure_store};
pub use subject::{LarderOptions, LarderProcess};
pub use workload::{Phase, Workload, WorkloadOptions};
