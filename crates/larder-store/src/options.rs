//! The options of a store, and the hints that a caller can give about an entry.

use crate::{Clock, IoChoice, Policy, Tuning, units::BLOCK_BYTES};
use std::{path::PathBuf, time::Duration};

/// Options of a store. [`crate::Store::open`] refuses invalid values; it never corrects them.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The volume: a regular file, created with `size_bytes` if it does not exist.
    pub path: PathBuf,
    /// Size of the file in bytes, which it never exceeds. At least eight segments, at most 16 TiB. An existing store
    /// must match.
    pub size_bytes: u64,
    /// Whether a new file takes disk space only as it is written. If the disk is full then, entries are not stored.
    /// Default: no.
    pub is_sparse: bool,
    /// The policy: how entries are found, placed, moved and evicted ([`Policy::named`]). An existing store must have
    /// the same policy. Default: `log`.
    pub policy: &'static Policy,
    /// Constants of the policies.
    pub tuning: Tuning,
    /// Expected mean size of an entry with its head, in bytes, from 512 B (`tiny`: 64 B) to 1 MiB. Default:
    /// [`mean_entry_bytes_default`].
    ///
    /// The index of `log` does not depend on it: its memory grows with the entries. A new volume reserves room for
    /// checkpoints of about `size / mean` entries; with more entries, a start takes longer. HashCache's policies and
    /// `tiny` have room for `size / mean` entries.
    pub mean_entry_bytes: u64,
    /// Limit on the memory of the index of `log`, in bytes. At this limit, a new entry displaces the entry with the
    /// fewest hits. Default: [`index_bytes_max_default`].
    pub index_bytes_max: u64,
    /// Segment size in bytes: a multiple of 4 KiB, from 64 KiB to 64 MiB. An existing volume keeps its own.
    ///
    /// Larger segments mean fewer and larger steps of reclaim, and less memory for segments. Smaller segments mean
    /// finer eviction on small volumes. With `None`, the default, the policy chooses: 16 entries of 1 MiB, fewer on
    /// volumes under 4 GiB, one on volumes under 384 MiB. `log` uses a 200th of a volume of up to 128 MiB.
    pub segment_size_bytes: Option<u64>,
    /// Committed bytes that may wait for the device. Further commits wait. Default: 32 MiB.
    pub dirty_bytes_max: u64,
    /// Longest time that a commit waits for room. After it, the entry is not stored. Default: 2 s.
    pub room_wait: Duration,
    /// Longest time that a committed entry may wait to be written. A kill loses the entries that are not written yet,
    /// and in some policies others ([`Policy::kept_after_kill`]). Default: 0.5 s.
    pub flush_interval: Duration,
    /// Longest time that written bytes may stay in the device's own cache. A power loss loses them. Default: 5 s.
    pub sync_interval: Duration,
    /// The I/O interface of the kernel.
    pub io: IoChoice,
    /// The source of time. Default: the system.
    pub clock: Clock,
    /// Derives a new volume's identity and hash key from this number instead of the system's random numbers, so that a
    /// simulation produces the same bytes every time. An attacker who knows the number can choose keys that collide:
    /// never set it where strangers choose keys. Default: none.
    pub identity_seed: Option<u64>,
    /// Whether a lookup that finds nothing waits until its part of an earlier run's index is loaded. A server that can
    /// fetch need not wait: it takes the entry for missing, and replaces it. Default: no.
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

/// Returns the default for the mean entry size, in bytes, that sizes the index of a store of `size_bytes`.
///
/// It is 8 KiB, less than the average of web responses, because a full index loses entries for which the volume has
/// room. From 128 GiB to 256 GiB it rises to 16 KiB, so that the index of `log` stays at about 115 MB in that range.
/// Beyond it, the index takes at most 8 bytes for each 16 KiB.
pub fn mean_entry_bytes_default(size_bytes: u64) -> u64 {
    (size_bytes / ENTRY_COUNT_DEFAULT).clamp(8 << 10, 16 << 10)
}

/// Number of entries on a store whose default mean entry size is between 8 KiB and 16 KiB.
const ENTRY_COUNT_DEFAULT: u64 = 16 << 20;

/// Returns the default limit of an index's memory in bytes. It suffices for entries of any length up to 16 GiB, for
/// entries of 2 KB and more up to 64 GiB, and for entries of 8 KB and more on larger volumes.
pub fn index_bytes_max_default(size_bytes: u64) -> u64 {
    (size_bytes / 64).min((size_bytes / 1024).max(256 << 20)).max(64 << 10)
}

/// Bytes of a segment for each entry of 1 MiB: its body, and 4 KiB for its key, its checksums and the headers of its
/// unit and record.
const CHUNK_BYTES: u64 = (1 << 20) + (4 << 10);
/// Fewest bytes of a segment for the list of its contents.
const TRAILER_BYTES: u64 = 4 << 10;

/// Segment size of the smallest volumes. Headers and trailers are 2% of such a segment.
const SHORT_SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Bytes of a volume for each byte outside segments. Checkpoints of its index take about this share.
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

/// Returns the segment size of policies that store each entry whole: an entry of 1 MiB fits even on the smallest
/// volume.
pub(crate) fn whole_entries_segment_bytes(size_bytes: u64) -> u64 {
    segment_bytes_of_at_least(size_bytes, chunks_in_segment(size_bytes).max(1) * CHUNK_BYTES)
}

/// Returns the segment size of policies that gather groups in a unit, which is at most a segment: a 32nd of the volume,
/// up to 16 entries of 1 MiB.
pub(crate) fn grouped_segment_bytes(size_bytes: u64) -> u64 {
    let chunks = (size_bytes / GROUPED_SEGMENT_COUNT / CHUNK_BYTES).clamp(1, 16);
    segment_bytes_of_at_least(size_bytes, chunks * CHUNK_BYTES)
}

/// Number of segments of a small volume that gathers groups.
const GROUPED_SEGMENT_COUNT: u64 = 32;

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

/// Information from the caller that helps the engine place and evict an entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// The site of the entry, as any 64-bit number that the caller chooses, for policies that store the entries of a
    /// site together. 0, the default, is a site like any other.
    pub site: u64,
    /// The group of the entry, for policies that store together what is requested together. The lower 32 bits count. 0
    /// means none.
    pub group: u64,
    /// Unix time in seconds after which the entry cannot be used, not even as a stale one. 0 means never.
    pub expires_at: u32,
}
