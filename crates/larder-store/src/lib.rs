//! Larder's storage engine: a disk cache of entries (key, head, body) whose memory use is bounded and reported.
//!
//! A cache may forget, but it may never lie: [`Store::get`] returns exactly the bytes that were committed under that
//! key, or nothing.
//!
//! The engine knows nothing about HTTP and needs no async runtime: its futures run on any executor. Start at [`Store`].

#![warn(missing_debug_implementations)]

#[macro_use]
mod debug;

mod clock;
mod engine;
mod error;
mod families;
mod format;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod options;
mod policy;
mod reader;
mod stats;
mod store;
mod sync;
mod tuning;
mod units;
mod volume;
mod writer;

use larder_device as device;

pub use clock::Clock;
pub use engine::LocatedEntry;
pub use error::{Error, ErrorKind, Result};
pub use larder_device::{Device, Directory, IoChoice, SplitMix64, ThreadDriver};
pub use options::{Hints, StoreOptions, index_bytes_max_default, mean_entry_bytes_default, segment_bytes_default};
pub use policy::plan;
pub use policy::{
    CostAssumptions, EngineRow, EvictionAxis, FileNaming, IndexAxis, LayoutAxis, LocatedRow, LogEviction, LogRow,
    MappedRow, Policy, PolicyCosts, ReadAxis, SlotSchedule, TableRow, TransferWork, WriteAxis,
};
pub use reader::{BodyStream, NeighbourEntry, NeighbourSink, Reader};
pub use stats::Stats;
pub use store::{
    CheckFindings, PathContent, ScanSummary, Store, StoreDamage, StoreInfo, UpgradePlan, VolumeStats, check, format,
    glance, inspect, plan_upgrade, survey, upgrade,
};
pub use tuning::{Objective, Tuning, TuningField, TuningKind, TuningValue};
pub use volume::{
    evictions::{EvictedEntry, EvictionFinish, EvictionReceiver, EvictionSink},
    protected_keys::ReclaimGuard,
    superblocks::Invalidation,
};
pub use writer::Writer;
    failure::contains_panics,
