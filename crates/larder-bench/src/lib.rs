//! Larder's benchmark: real sockets and real devices by the wall clock, and the plan that is made with the figures.
//!
//! Nothing is simulated here (see `larder-sim`): [`measure_device`] moves bytes through the engine's own devices, and
//! [`Plan`] computes with what was measured and with what each row of the policy table costs. Start at those two.

mod cpu;
mod device;
mod plan;

pub use device::{
    DeviceError, DeviceFigures, DeviceJob, FileFigures, READ_BYTES, READ_DEPTHS, ReadFigure, WriteFigure,
    measure_device,
};
pub use plan::{Bound, Plan, PlanWishes, PlannedRow, Sizes};
