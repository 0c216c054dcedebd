//! Larder's storage engine: a disk cache of entries (key, head, body) whose memory use is bounded and reported.
//!
//! A cache may forget, but it may never lie: [`Store::get`] returns exactly the bytes that were committed under that
//! key, or nothing.
//!
//! The engine knows nothing about HTTP and needs no async runtime: its futures run on any executor. Most programs want
//! the crate `larder-cache`, which adds a memory cache, lifetimes, tags and shared fetches.
//!
//! ```no_run
//! # async fn example() -> larder_store::Result<()> {
//! use larder_store::{Hints, Store, StoreOptions};
//!
//! let store = Store::open(StoreOptions::new("/var/cache/example.larder", 1 << 30))?;
//! store.ready().await; // until then, entries of an earlier run may be misses
//! let mut writer = store.insert(b"key", "head".into(), Hints::default())?;
//! writer.write("body".into())?;
//! writer.commit().await?;
//! if let Some(reader) = store.get(b"key").await? {
//!     let body = reader.read(0..reader.len()).await?;
//! }
//! store.close().await
//! # }
//! ```
//!
//! | to do | call |
//! |---|---|
//! | open a store on a file or a disk | [`Store::open`] |
//! | open a store on several disks | [`Store::open_volumes`] |
//! | open a store on a device of your own | [`Store::open_on`] |
//! | store an entry in pieces | [`Store::insert`], [`Writer::write`], then [`Writer::commit`] |
//! | let the policy refuse an entry | [`Writer::offer`] |
//! | read an entry, or a range of its body | [`Store::get`], [`Reader::read`] |
//! | remove an entry, or invalidate a site or everything | [`Store::remove`], [`Store::invalidate`] |
//! | replace the head and keep the body | [`Store::update_head`] |
//! | keep an entry from being evicted | [`Store::pin`] |
//! | make entries survive a crash of the process, or a power loss | [`Store::flush`], [`Store::sync`] |
//! | read on the rings of your own threads | [`Store::attach_thread`] |
//! | see memory, hits and bytes written | [`Store::stats`] |
//! | compare policies for a disk and a memory | [`plan`] |
//! | check, survey or upgrade a store that is closed | [`check`], [`survey`], [`upgrade`] |
//!
//! A failed assertion of the engine excludes its volume until the next start, which empties it. In a program that is
//! built with `panic = "abort"`, it ends the process instead; see [`contains_panics`].

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
    EngineRow, EvictionAxis, FileNaming, IndexAxis, LayoutAxis, LocatedRow, LogEviction, LogRow, MappedRow, Policy,
    ReadAxis, SlotSchedule, TableRow, WriteAxis,
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
    failure::contains_panics,
    protected_keys::ReclaimGuard,
    superblocks::Invalidation,
};
pub use writer::Writer;
