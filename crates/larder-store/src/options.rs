//! The options of a store, and the hints that a caller may give about an entry.

use crate::{Clock, Policy, Tuning, units::BLOCK_BYTES};
use std::{path::PathBuf, time::Duration};

/// The I/O interface of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, otherwise threads (logged once).
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// A pool of threads with pread and pwrite.
    Threads,
}

/// Options of a store. Bad values are refused by [`crate::Store::open`], never repaired.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The volume: a regular file, created with `size_bytes` if absent.
    pub path: PathBuf,
    /// Hard bound of the file, in bytes. At least eight segments, at most 16 TiB. An existing store must match.
    pub size_bytes: u64,
    /// Whether a new file takes disk space as it is written, not all at once. A disk that is full then costs entries:
    /// they are not stored. Default no.
    pub is_sparse: bool,
    /// The row: how entries are found, placed, moved and evicted. An existing store must be of this row.
    /// Default `log`.
    pub policy: &'static Policy,
    /// Constants of the rows.
    pub tuning: Tuning,
    /// Expected mean size of an entry with its head, in bytes. The index of `log` does not depend on it: its memory
    /// grows with the entries. A new volume gets room for checkpoints of about `size / mean` entries; with more entries
    /// a start takes longer. HashCache's policies and `tiny` have room for `size / mean` entries. Default
    /// [`mean_entry_bytes_default`]; from 512 B to 1 MiB.
    pub mean_entry_bytes: u64,
    /// Most memory that the index of `log` takes, in bytes. At this limit a new entry displaces the one that was hit
    /// least. Default [`index_bytes_max_default`].
    pub index_bytes_max: u64,
    /// Segment size in bytes, whole blocks of 4 KiB, from 64 KiB to 64 MiB. Larger: fewer, larger steps of reclaim and
    /// less memory for segments; smaller: finer eviction on small volumes. `None`, the default, is the policy's choice:
    /// 16 entries of 1 MiB, fewer on volumes under 4 GiB, one on those under 384 MiB, and for `log` a 200th of those up
    /// to 128 MiB. An existing volume keeps its own.
    pub segment_size_bytes: Option<u64>,
    /// Committed bytes that may wait for the device before commits wait. Default 32 MiB.
    pub dirty_bytes_max: u64,
    /// Longest time that a committed entry may stay unwritten, and so be lost when the process is killed. Default 0.5
    /// s.
    pub flush_interval: Duration,
    /// Longest time that written bytes may stay in the device's own cache, and so be lost in a power loss. Default 5 s.
    pub sync_interval: Duration,
    /// The I/O interface of the kernel.
    pub io: IoChoice,
    /// The source of time. Default: the system.
    pub clock: Clock,
    /// Derives a new volume's identity and hash key from this number instead of the system's random numbers, so that a
    /// simulation produces the same bytes every time. With this number, an attacker can choose keys that collide: never
    /// set it where strangers choose keys. Default none.
    pub identity_seed: Option<u64>,
    /// Whether a thread of the store's own flushes, syncs and reclaims. Default yes; without it the
    /// caller calls [`crate::Store::maintain`], as a simulation in virtual time does.
    pub background: bool,
}

impl StoreOptions {
    /// Options with defaults for a volume of `size_bytes` at `path`.
    pub fn new(path: impl Into<PathBuf>, size_bytes: u64) -> Self {
        Self {
            path: path.into(),
            size_bytes,
            is_sparse: false,
            policy: Policy::default_row(),
            tuning: Tuning::default(),
            mean_entry_bytes: mean_entry_bytes_default(size_bytes),
            index_bytes_max: index_bytes_max_default(size_bytes),
            segment_size_bytes: None,
            dirty_bytes_max: 32 << 20,
            flush_interval: Duration::from_millis(500),
            sync_interval: Duration::from_secs(5),
            io: IoChoice::Auto,
            clock: Clock::default(),
            identity_seed: None,
            background: true,
        }
    }
}

/// Returns the default for the mean entry size, in bytes, that sizes the index of a store of `size_bytes`.
///
/// It is 8 KiB, less than the average of web responses, because a full index loses entries for which the volume has
/// room. From 128 GiB to 256 GiB it rises to 16 KiB. So the index of `log` takes about 115 MB in that range, and beyond
/// it at most 8 bytes for each 16 KiB.
pub fn mean_entry_bytes_default(size_bytes: u64) -> u64 {
    (size_bytes / ENTRY_COUNT_DEFAULT).clamp(8 << 10, 16 << 10)
}

/// Entries that an index has room for by itself, between the sizes at which that is one for 8 KiB and one for 16 KiB.
const ENTRY_COUNT_DEFAULT: u64 = 16 << 20;

/// Returns the default limit of an index's memory in bytes: enough for entries of any length up to 16 GiB,
/// for entries of 2 KB and more up to 64 GiB, and for entries of 8 KB and more on larger volumes.
pub fn index_bytes_max_default(size_bytes: u64) -> u64 {
    (size_bytes / 64).min((size_bytes / 1024).max(256 << 20)).max(64 << 10)
}

/// Bytes of a segment for each entry of 1 MiB: its body, and 4 KiB for the headers of its unit and record, its key and
/// checksums.
const CHUNK_BYTES: u64 = (1 << 20) + (4 << 10);
/// Bytes of a segment that list what it holds, at least.
const TRAILER_BYTES: u64 = 4 << 10;

/// Segments of the smallest volumes: what each begins and ends with is 2% of them.
const SHORT_SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Bytes of a volume for each byte that is not in segments: checkpoints of its index take about that share.
const BYTES_PER_FIXED_BYTE: u64 = 450;
/// Bytes outside segments, with a margin: superblocks, and roots of checkpoints.
const FIXED_BYTES: u64 = 128 << 10;

/// Returns the default segment size of `log` in bytes: a 256th of the volume, so that the segments that are free or
/// being filled are less than 2% of it. A segment has room for 1 to 16 whole entries of 1 MiB, because the chunks of
/// long bodies have that length; on volumes up to 128 MiB it is a 200th. The rest of the volume is divided among the
/// segments.
pub fn segment_bytes_default(size_bytes: u64) -> u64 {
    // Entries of 1 MiB are stored in parts where segments are shorter.
    let short_bytes = (size_bytes / 200).clamp(SHORT_SEGMENT_BYTES_MIN, CHUNK_BYTES);
    let chunks = chunks_in_segment(size_bytes);
    segment_bytes_of_at_least(size_bytes, if chunks > 0 { chunks * CHUNK_BYTES } else { short_bytes })
}

/// Returns the segment size of policies that store each entry whole: one entry of 1 MiB fits on the smallest volume.
pub(crate) fn whole_entries_segment_bytes(size_bytes: u64) -> u64 {
    segment_bytes_of_at_least(size_bytes, chunks_in_segment(size_bytes).max(1) * CHUNK_BYTES)
}

fn chunks_in_segment(size_bytes: u64) -> u64 {
    ((size_bytes / 256 + CHUNK_BYTES / 2) / CHUNK_BYTES).min(16)
}

/// Divides a volume into equal segments that have room for `content_bytes`.
fn segment_bytes_of_at_least(size_bytes: u64, content_bytes: u64) -> u64 {
    let least_bytes = content_bytes + TRAILER_BYTES;
    let in_segments = size_bytes.saturating_sub(size_bytes / BYTES_PER_FIXED_BYTE + FIXED_BYTES);
    let shared_out = in_segments.checked_div(in_segments / least_bytes).unwrap_or(least_bytes);
    shared_out / BLOCK_BYTES * BLOCK_BYTES
}

/// A caller's knowledge about an entry, which helps the engine place and drop it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Names the site (any 64-bit number of the caller's), for [`crate::Invalidation::Site`].
    pub site: u64,
    /// Groups entries asked for together, by its lower 32 bits; 0 is none.
    pub group: u64,
    /// Unix time in seconds after which the entry is of no use at all (not even stale); 0 is never.
    pub expires_at: u32,
}
