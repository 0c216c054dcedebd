//! The options of a store, and the hints that a caller can give about an entry.

use crate::{Clock, IoChoice, Policy, Tuning, units::BLOCK_BYTES};
use std::{path::PathBuf, time::Duration};

/// Options of a store. [`crate::Store::open`] refuses invalid values; it never corrects them.
///
/// ```
/// use larder_store::{Policy, StoreOptions};
/// use std::time::Duration;
///
/// let mut options = StoreOptions::new("/var/cache/example.larder", 64 << 30);
/// options.policy = Policy::named("tiny").expect("one of the policies");
/// options.mean_entry_bytes = 500;
/// options.flush_interval = Duration::from_millis(100);
/// ```
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Path of the volume: a regular file, which is created if it does not exist, or a block device. For policies that
    /// keep entries in files, a directory.
    pub path: PathBuf,
    /// Size of the store in bytes; it never takes more. At least eight segments, at most 16 TiB. An existing store must
    /// have exactly this size.
    pub size_bytes: u64,
    /// Whether a new file takes disk space only as it is written. If no: the whole size is allocated at creation. If
    /// yes: entries are not stored while the disk has no free space. Default: no.
    pub is_sparse: bool,
    /// The policy: how entries are found, placed, moved and evicted ([`Policy::named`]). An existing store must have
    /// the same policy. Default: `log`.
    pub policy: &'static Policy,
    /// Constants of the policies, such as shares and thresholds. Default: those of the papers, and tuned ones for
    /// `log`.
    pub tuning: Tuning,
    /// Expected mean size of an entry with its head, in bytes, from 512 B (`tiny`: 64 B) to 1 MiB. Default:
    /// [`mean_entry_bytes_default`].
    ///
    /// The index of `log` does not depend on it: its memory grows with the entries. A new volume reserves room for
    /// checkpoints of about `size / mean` entries; if the volume holds more entries than that, loading the index at the
    /// next start takes longer. HashCache's policies and `tiny` have room for `size / mean` entries.
    pub mean_entry_bytes: u64,
    /// Limit on the memory of the index of `log`, in bytes. At this limit, a new entry displaces the entry with the
    /// fewest hits. Default: [`index_bytes_max_default`].
    pub index_bytes_max: u64,
    /// Segment size in bytes: a multiple of 4 KiB, from 64 KiB to 64 MiB. An existing volume keeps its own.
    ///
    /// Larger segments mean fewer and larger steps of reclaim, and less memory for segments. Smaller segments mean
    /// finer eviction on small volumes. With `None`, the default, the policy chooses: room for 16 entries of 1 MiB,
    /// fewer on volumes under 4 GiB, one on volumes under 384 MiB. `log` uses a 200th of a volume of up to 128 MiB.
    pub segment_size_bytes: Option<u64>,
    /// Maximum bytes of committed entries that may wait in memory to be written. Further commits wait. Default: 32 MiB.
    pub dirty_bytes_max: u64,
    /// Maximum time that a commit waits for space. A commit that waits longer fails, and the entry is not stored.
    /// Default: 2 s.
    pub room_wait: Duration,
    /// Maximum time that a committed entry may wait to be written. If the process is killed, entries not yet written
    /// are lost. Some policies lose further entries ([`Policy::kept_after_kill`]). Default: 0.5 s.
    pub flush_interval: Duration,
    /// Maximum time between writing bytes and syncing the device. A power loss can lose bytes that are not synced.
    /// Default: 5 s.
    pub sync_interval: Duration,
    /// The kernel interface for device I/O. Default: `io_uring` where it works, otherwise threads.
    pub io: IoChoice,
    /// The source of time. Default: the system's clocks.
    pub clock: Clock,
    /// Derives a new volume's identity and hash key from this number instead of the system's random numbers, so that a
    /// simulation produces the same bytes every time. An attacker who knows the number can choose keys that collide:
    /// never set it where strangers choose keys. Default: none.
    pub identity_seed: Option<u64>,
    /// Whether a lookup waits until the part of the index that its key belongs to is loaded after a start. If not, such
    /// a lookup misses. A server that can fetch the object again need not wait. Default: no.
    pub waits_for_index: bool,
    /// Whether the store has a thread of its own that flushes, syncs and reclaims. Without it, the caller must call
    /// [`crate::Store::maintain`], as a simulation in virtual time does. Default: yes.
    pub background: bool,
}

impl StoreOptions {
    /// Creates options with defaults for a volume of `size_bytes` at `path`.
    pub fn new(path: impl Into<PathBuf>, size_bytes: u64) -> Self {
        Self {
            path: path.into(),
            size_bytes,
            is_sparse: false,
            policy: Policy::default_policy(),
            tuning: Tuning::default(),
            mean_entry_bytes: mean_entry_bytes_default(size_bytes),
            index_bytes_max: index_bytes_max_default(size_bytes),
            segment_size_bytes: None,
            dirty_bytes_max: 32 << 20,
            room_wait: Duration::from_secs(2),
            flush_interval: Duration::from_millis(500),
            sync_interval: Duration::from_secs(5),
            io: IoChoice::Auto,
            clock: Clock::default(),
            identity_seed: None,
            waits_for_index: false,
            background: true,
        }
    }
}

/// Returns the default of [`StoreOptions::mean_entry_bytes`] for a store of `size_bytes`.
///
/// The default is 8 KiB, less than the average of web responses, because a full index loses entries for which the
/// volume has room. From 128 GiB to 256 GiB it rises to 16 KiB, so that the index of `log` stays at about 115 MB in
/// that range. On larger volumes, the index takes at most 8 bytes for each 16 KiB.
pub fn mean_entry_bytes_default(size_bytes: u64) -> u64 {
    (size_bytes / ENTRY_COUNT_DEFAULT).clamp(8 << 10, 16 << 10)
}

/// Number of entries that stores of 128 GiB to 256 GiB are planned for by default. Their default mean entry size is
/// their size divided by this.
const ENTRY_COUNT_DEFAULT: u64 = 16 << 20;

/// Returns the default limit of an index's memory in bytes. It suffices for entries of any length up to 16 GiB, for
/// entries of 2 KB and more up to 64 GiB, and for entries of 8 KB and more on larger volumes.
pub fn index_bytes_max_default(size_bytes: u64) -> u64 {
    (size_bytes / 64).min((size_bytes / 1024).max(256 << 20)).max(64 << 10)
}

/// Bytes that an entry of 1 MiB takes in a segment: its body, and 4 KiB for its key, its checksums and the headers of
/// its unit and record.
const CHUNK_BYTES: u64 = (1 << 20) + (4 << 10);
/// Minimum number of bytes at the end of a segment for the list of its contents.
const TRAILER_BYTES: u64 = 4 << 10;

/// Segment size of the smallest volumes. Headers and the list of contents take 2% of such a segment.
const SHORT_SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Ratio of a volume's size to its bytes outside segments. Most of these are checkpoints of the index.
const BYTES_PER_FIXED_BYTE: u64 = 450;
/// Bytes outside segments that every volume needs, with a margin: superblocks, and roots of checkpoints.
const FIXED_BYTES: u64 = 128 << 10;

/// Returns the default segment size of `log` in bytes.
///
/// It is a 256th of the volume, so that the segments that are free or being filled take less than 2% of it. A segment
/// has room for 1 to 16 whole entries of 1 MiB, because the chunks of long bodies have that length. On volumes up to
/// 128 MiB it is a 200th of the volume. The remainder of the volume is divided among the segments.
pub fn segment_bytes_default(size_bytes: u64) -> u64 {
    // If a segment is shorter than an entry of 1 MiB, the entry is stored in parts.
    let short_bytes = (size_bytes / 200).clamp(SHORT_SEGMENT_BYTES_MIN, CHUNK_BYTES);
    let chunks = chunks_in_segment(size_bytes);
    segment_bytes_of_at_least(size_bytes, if chunks > 0 { chunks * CHUNK_BYTES } else { short_bytes })
}

/// Returns the segment size for policies that never split an entry: an entry of 1 MiB fits in a segment even on the
/// smallest volume.
pub(crate) fn whole_entries_segment_bytes(size_bytes: u64) -> u64 {
    segment_bytes_of_at_least(size_bytes, chunks_in_segment(size_bytes).max(1) * CHUNK_BYTES)
}

/// Returns the segment size for policies that gather the entries of a group in one unit: a 32nd of the volume, up to 16
/// entries of 1 MiB. A unit is at most a segment long.
pub(crate) fn grouped_segment_bytes(size_bytes: u64) -> u64 {
    let chunks = (size_bytes / GROUPED_SEGMENT_COUNT / CHUNK_BYTES).clamp(1, 16);
    segment_bytes_of_at_least(size_bytes, chunks * CHUNK_BYTES)
}

/// Number of segments on a small volume of a policy that gathers groups.
const GROUPED_SEGMENT_COUNT: u64 = 32;

fn chunks_in_segment(size_bytes: u64) -> u64 {
    ((size_bytes / 256 + CHUNK_BYTES / 2) / CHUNK_BYTES).min(16)
}

/// Returns the segment size that divides a volume into equal segments, each with room for `content_bytes` and its list
/// of contents.
fn segment_bytes_of_at_least(size_bytes: u64, content_bytes: u64) -> u64 {
    let least_bytes = content_bytes + TRAILER_BYTES;
    let in_segments = size_bytes.saturating_sub(size_bytes / BYTES_PER_FIXED_BYTE + FIXED_BYTES);
    let shared_out = in_segments.checked_div(in_segments / least_bytes).unwrap_or(least_bytes);
    shared_out / BLOCK_BYTES * BLOCK_BYTES
}

/// Information from the caller that helps the engine place and evict an entry.
///
/// ```
/// use larder_store::Hints;
///
/// // The pictures of a page are requested together with it.
/// let picture = Hints { group: 7, expires_at: 1_900_000_000, ..Hints::default() };
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// The site of the entry: a 64-bit number of the caller's choice, such as a hash of the host. Some policies store
    /// the entries of a site together. 0, the default, is a site like any other.
    pub site: u64,
    /// The group of the entry: a number that entries share if they are requested together. Some policies store them
    /// together. Only the lower 32 bits are used. 0 means no group.
    pub group: u64,
    /// Unix time in seconds after which the entry is useless, even as a stale response. 0, the default, means never.
    pub expires_at: u32,
}
