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
//!     // `None` if the entry was overwritten since it was found.
//!     let body: Option<bytes::Bytes> = reader.read(0..reader.len()).await?;
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
//! | remove an entry, or all entries | [`Store::remove`], [`Store::clear`] |
//! | replace the head and keep the body | [`Store::update_head`] |
//! | keep an entry from being evicted | [`Store::pin`] |
//! | make entries survive a crash of the process, or a power loss | [`Store::flush`], [`Store::sync`] |
//! | read on the rings of your own threads | [`Store::attach_thread`] |
//! | see memory, hits and bytes written | [`Store::stats`] |
//! | compare policies for a disk and a memory | [`plan::Plan::new`] |
//! | check, survey or upgrade a store that is closed | [`check`], [`survey`], [`upgrade`] |
//!
//! # Terms
//!
//! - An **entry** has a key of up to 16 KiB, a **head** of up to 64 KiB that the store does not interpret, and a
//!   **body** of up to 1 MiB. A longer body is stored as several entries.
//! - A **volume** is one file or disk of a store. Its first blocks, the **superblocks**, describe it.
//! - A **policy** determines how entries are found, placed, written, read and evicted ([`Policy`]). Take `log`, the
//!   default, or `tiny` for many small entries with very little memory.
//! - **Segments** are the equal parts into which most policies divide a volume. **Reclaim** empties the oldest one, and
//!   moves those of its entries that are worth it.
//! - A **site** and a **group** are numbers that the caller gives an entry. Some policies store entries of a site, or
//!   entries that are requested together, side by side ([`Hints`]).
//!
//! # Good to know
//!
//! The clones of a [`Store`] are one store, which any thread may use. A store opens its files for itself: opening them
//! again fails with `InUse`, in another process and in the same one. Dropping the last clone without
//! [`Store::close`] is like a kill of the process. A future that is dropped before it completes has done its work or
//! not, but never a part of it. A store of an older format is refused until [`upgrade`] converts it.
//!
//! If a program has no store open, these functions tell about one:
//!
//! | function | locks the store | reads | for |
//! |---|---|---|---|
//! | [`glance`] | no | the superblocks | a description, also while the store is in use |
//! | [`inspect`] | yes | the superblocks | what is at a path |
//! | [`survey`] | yes | the index | the number of entries, and the other statistics |
//! | [`check`] | yes | everything | damage |
//! | [`plan_upgrade`], [`upgrade`] | yes | the superblocks | the conversion of an older format |
//!
//! If an assertion of the engine fails, there is a bug, and the store stops using that volume: lookups miss, and stores
//! fail with `Unavailable`. The next open empties the volume. In a program that is built with `panic = "abort"`, the
//! process ends instead; see [`contains_panics`].

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
mod memory_hits;
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
pub use memory_hits::MemoryHits;
pub use options::{Hints, StoreOptions, index_bytes_max_default, mean_entry_bytes_default, segment_bytes_default};
pub use policy::plan;
pub use policy::{
    EngineRow, EvictionAxis, FileNaming, IndexAxis, LayoutAxis, LocatedRow, LogEviction, LogRow, MappedRow, Policy,
    ReadAxis, SlotSchedule, TableRow, WriteAxis,
};
pub use reader::{BodyStream, NeighborEntry, NeighborSink, Reader};
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
};
pub use writer::Writer;
