//! The tuning constants of the policies, each with its meaning, range and default: one table for the engine,
//! configuration and documents.
//!
//! Owns: [`Tuning`] and the list of its fields. The policies interpret them. Invariant: a store is opened only with
//! constants within their ranges. Constants that determine where bytes are stored apply only to a new volume; an
//! existing volume keeps its own. To add a constant, add one entry to the table at the end.

use crate::{Error, ErrorKind, Result};
use std::{ops::RangeInclusive, time::Duration};

/// A tuning constant, as configuration and documents show it.
///
/// ```
/// use larder_store::{Tuning, TuningKind};
///
/// for field in Tuning::fields() {
///     println!("{}: {}", field.name, field.about);
/// }
/// let field = Tuning::fields().iter().find(|field| field.name == "tiny_set_bytes").expect("a constant");
/// assert_eq!(field.kind, TuningKind::Power(4096..=65_536));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct TuningField {
    /// Name of the constant.
    pub name: &'static str,
    /// Description for users: the policies that use the constant, its meaning, and the effect of a larger or smaller
    /// value.
    pub about: &'static str,
    /// The values that the constant accepts.
    pub kind: TuningKind,
}

/// The kind of values that a constant accepts, with their range.
///
/// ```
/// use larder_store::{TuningKind, TuningValue};
///
/// let kind = TuningKind::Power(4096..=65_536);
/// assert!(kind.admits(TuningValue::Number(8192)));
/// assert!(!kind.admits(TuningValue::Number(8191)));
/// assert!(!kind.admits(TuningValue::Switch(true)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum TuningKind {
    /// On or off.
    Switch,
    /// A number of things.
    Count(RangeInclusive<u64>),
    /// A length in bytes.
    Bytes(RangeInclusive<u64>),
    /// A length in bytes that is a power of two.
    Power(RangeInclusive<u64>),
    /// A duration.
    Time(RangeInclusive<Duration>),
    /// A share of a whole, such as 0.25.
    Share(RangeInclusive<f64>),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A value for a constant.
///
/// ```
/// use larder_store::{Tuning, TuningValue};
/// use std::time::Duration;
///
/// let mut tuning = Tuning::default();
/// tuning.set("read_batch_time_out", TuningValue::Time(Duration::from_millis(5)))?;
/// assert_eq!(tuning.value("read_batch_count"), Some(TuningValue::Number(10)));
/// assert!(tuning.set("read_batch_count", TuningValue::Switch(true)).is_err());
/// # Ok::<(), larder_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TuningValue {
    /// On or off.
    Switch(bool),
    /// A number of things, or a length in bytes.
    Number(u64),
    /// A duration.
    Time(Duration),
    /// A share of a whole, such as 0.25.
    Share(f64),
    /// A word.
    Word(&'static str),
}

impl TuningKind {
    /// Returns whether `value` is of this kind and in its range.
    pub fn admits(&self, value: TuningValue) -> bool {
        match (self, value) {
            (Self::Switch, TuningValue::Switch(_)) => true,
            (Self::Count(range) | Self::Bytes(range), TuningValue::Number(number)) => range.contains(&number),
            (Self::Power(range), TuningValue::Number(number)) => number.is_power_of_two() && range.contains(&number),
            (Self::Time(range), TuningValue::Time(time)) => range.contains(&time),
            (Self::Share(range), TuningValue::Share(share)) => range.contains(&share),
            (Self::Word(words), TuningValue::Word(word)) => words.contains(&word),
            _ => false,
        }
    }
}

impl Tuning {
    /// Sets the constant `name` to `value`.
    ///
    /// # Errors
    /// `Invalid` if no constant has this name, or if `value` has the wrong kind or is out of range.
    pub fn set(&mut self, name: &str, value: TuningValue) -> Result<()> {
        let Some(field) = Self::fields().iter().find(|field| field.name == name) else {
            return Err(Error::new(ErrorKind::Invalid, format!("unknown constant: {name}")));
        };
        field.check(value)?;
        self.put(name, value);
        Ok(())
    }

    /// Returns an error if a constant is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        Self::fields().iter().try_for_each(|field| match self.value(field.name) {
            Some(value) => field.check(value),
            None => Ok(()),
        })
    }
}

impl TuningField {
    fn check(&self, value: TuningValue) -> Result<()> {
        if self.kind.admits(value) {
            return Ok(());
        }
        let place = format!("{} is out of range ({:?}): {value:?}", self.name, self.kind);
        Err(Error::new(ErrorKind::Invalid, place))
    }
}

/// A Rust type that can be the type of a constant.
trait Constant: Sized {
    fn value(self) -> TuningValue;

    /// Converts `value` to this type. Returns `None` if it is of another kind or too large.
    fn of(value: TuningValue) -> Option<Self>;
}

macro_rules! constant {
    ($($type:ty, $kind:ident;)*) => {
        $(impl Constant for $type {
            fn value(self) -> TuningValue {
                TuningValue::$kind(self.try_into().expect("no constant is larger than its kind of value"))
            }

            fn of(value: TuningValue) -> Option<Self> {
                if let TuningValue::$kind(value) = value { value.try_into().ok() } else { None }
            }
        })*
    };
}

constant! {
    bool, Switch;
    u32, Number;
    u64, Number;
    usize, Number;
    Duration, Time;
    f64, Share;
}

/// The quantity that the policy `log` maximizes when it chooses which entries to keep.
///
/// ```
/// use larder_store::{Objective, StoreOptions, TuningValue};
///
/// let mut options = StoreOptions::new("/var/cache/example.larder", 64 << 30);
/// assert_eq!(options.tuning.objective, Objective::Requests);
/// // A slow uplink gains most from the bytes that it need not carry.
/// options.tuning.objective = Objective::Bytes;
/// assert_eq!(options.tuning.value("objective"), Some(TuningValue::Word("bytes")));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The request hit ratio. Of two entries that are hit equally often, keeps the shorter one.
    #[default]
    Requests,
    /// A compromise between both hit ratios. Weighs an entry's hits against the square root of its length.
    Balanced,
    /// The byte hit ratio. Ignores the length of entries.
    Bytes,
}

impl Objective {
    const WORDS: &[&str] = &["requests", "balanced", "bytes"];

    /// Returns the exponent e of the rule that weighs hits against length. An entry of n sectors needs n^e times the
    /// hits of an entry of one sector to be worth as much.
    pub(crate) fn length_exponent(self) -> f64 {
        match self {
            Self::Requests => 1.0,
            Self::Balanced => 0.5,
            Self::Bytes => 0.0,
        }
    }
}

impl Constant for Objective {
    fn value(self) -> TuningValue {
        TuningValue::Word(Self::WORDS[self as usize])
    }

    fn of(value: TuningValue) -> Option<Self> {
        [Self::Requests, Self::Balanced, Self::Bytes].into_iter().find(|objective| objective.value() == value)
    }
}

/// Converts a kind of value, as written in the table of constants, to its `TuningKind`.
macro_rules! kind {
    (switch) => {
        TuningKind::Switch
    };
    (count $range:expr) => {
        TuningKind::Count($range)
    };
    (bytes $range:expr) => {
        TuningKind::Bytes($range)
    };
    (power $range:expr) => {
        TuningKind::Power($range)
    };
    (time $range:expr) => {
        TuningKind::Time($range)
    };
    (share $range:expr) => {
        TuningKind::Share($range)
    };
    (word $words:expr) => {
        TuningKind::Word($words)
    };
}

macro_rules! table {
    ($($(#[doc = $about:literal])* $name:ident: $type:ty = $default:expr, $kind:ident $(in $range:expr)?;)*) => {
        /// Constants of the policies. Where a paper states a value, it is the default.
        ///
        /// ```
        /// use larder_store::{Tuning, TuningValue};
        ///
        /// let mut tuning = Tuning::default();
        /// tuning.set("write_factor_max", TuningValue::Share(1.5))?;
        /// assert!(tuning.set("write_factor_max", TuningValue::Share(99.0)).is_err());
        /// # Ok::<(), larder_store::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Tuning {
            $($(#[doc = $about])* pub $name: $type,)*
        }

        impl Default for Tuning {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Tuning {
            /// Returns every constant, in the order of the table.
            pub fn fields() -> &'static [TuningField] {
                static FIELDS: &[TuningField] = &[$(TuningField {
                    name: stringify!($name),
                    about: concat!($($about),*),
                    kind: kind!($kind $($range)?),
                },)*];
                FIELDS
            }

            /// Returns the value of the constant with this name.
            pub fn value(&self, name: &str) -> Option<TuningValue> {
                match name {
                    $(stringify!($name) => Some(self.$name.value()),)*
                    _ => None,
                }
            }

            /// Sets the constant `name` to `value`, which was checked before.
            fn put(&mut self, name: &str, value: TuningValue) {
                match name {
                    $(stringify!($name) => if let Some(value) = Constant::of(value) { self.$name = value },)*
                    _ => {}
                }
            }
        }
    };
}

// name: type = default, kind in range;
// kinds: switch, count, bytes, power (of two, in bytes), time, share, word (one of)
table! {
    /// `log`, `log-clock`: largest share of a main segment that is rewritten because its entries were hit. More: more
    /// hits, but up to 1 / (1 - share) times as many bytes written as admitted. 0: no entry is rewritten for its hits.
    reinsertion_share: f64 = 0.75, share in 0.0..=0.75;
    /// `log`, `log-clock`: limit on rewriting. Entries are rewritten only while all bytes written, with headers,
    /// padding and checkpoints, stay within this multiple of the bytes admitted. More: more hits where few entries are
    /// requested again and again. Less: less flash wear.
    write_factor_max: f64 = 1.3, share in 1.0..=16.0;
    /// `log`: limit on the bytes written per day, in multiples of the volume's size, for new and rewritten entries.
    /// When the limit is reached, no new entry is stored. More: more hits. Less: less flash wear. 0: no limit.
    writes_per_day: f64 = 0.0, share in 0.0..=1000.0;
    /// `log`: what to maximize. `requests`: the request hit ratio, which favors short entries. `bytes`: the byte hit
    /// ratio, for mirrors of large files. `balanced`: a compromise.
    objective: Objective = Objective::Requests, word in Objective::WORDS;
    /// `log`, `log-clock`: largest share of a volume for pinned entries (`larder pin`). More: more entries can be
    /// exempt from eviction, and all others are evicted sooner.
    pin_share: f64 = 0.25, share in 0.0..=0.4;
    /// `log`: bytes written for index checkpoints, as a share of the bytes written to the log. More: less to replay
    /// after a crash. Less: fewer bytes written. 0: only at close.
    checkpoint_share: f64 = 0.02, share in 0.0..=1.0;
    /// `log`, `log-clock`, `hashcache-log`, `hashcache-log-lru`: how long the entries of a page wait in memory for the
    /// page's next entry, so that they are written next to each other; at most 12 seconds in all. More: pages with long
    /// pauses between their requests take fewer reads, but a kill loses the entries of a longer time.
    group_window: Duration = Duration::from_secs(2), time in Duration::ZERO..=Duration::from_secs(60);
    /// `simple` to `esp`, `ucfs`: whether changes of the map are written to a journal. On: a kill loses the entries of
    /// the last second and a power loss those of the last five seconds. The journal takes 24 bytes for each entry
    /// stored or removed, and occasionally 24 bytes for each entry in the store. Off: a kill or a power loss loses
    /// everything, as in the papers. Only for a new volume.
    map_journal: bool = true, switch;
    /// `buddy`: longest entry, with its key and head, that is kept in a file of slots. Longer entries get a file each.
    /// More: fewer files created and removed, more files of slots. 128 KiB as published.
    buddy_threshold_bytes: u64 = 128 << 10, bytes in 512..=500 << 10;
    /// `buddy`: share of the store's size that entries may take, in percent. The remainder allows for free slots of
    /// unsuitable lengths. More: more entries, but entries of rare lengths find no room once all files have their
    /// largest size.
    buddy_used_percent: u32 = 85, count in 10..=99;
    /// `buddy`: whether the file of a longer entry is in a directory of its site. If on, with a threshold of 8 KiB, the
    /// layout is that of SQUIDML. If off, all such files are in one directory, as published.
    buddy_long_by_site: bool = false, switch;
    /// `stream` and the policies on its file: share of the file that may be in use at a time, in percent. More: more
    /// entries, but shorter free runs, so that long entries evict more bytes than they need. The paper's working point
    /// is 70.
    stream_used_percent: u32 = 70, count in 10..=95;
    /// `stream-pack`, `lazy-reads`, `lazy-reads-loc`: size of the page in which contiguous writes are collected. More:
    /// fewer writes, but more to lose when the machine stops. The paper's machine has 8 KiB.
    page_bytes: u64 = 8 << 10, power in 4 << 10..=1 << 20;
    /// All policies except those with files: whether the reads of lookups wait for each other, and go to the device in
    /// batches that are sorted by place. Only for a spinning disk without a queue of its own. `lazy-reads` and
    /// `lazy-reads-loc` always do so. Do not turn it on for policies that read groups or clusters (`log`, `log-clock`,
    /// `hashcache-log`, `hashcache-log-lru`, `ucfs`): while the first read of a page waits, the rest of the page is
    /// requested too, and these policies lose almost half of their rate.
    sorted_reads: bool = false, switch;
    /// `lazy-reads`, `lazy-reads-loc`, `sorted_reads`: reads in a batch. More: shorter seeks of a disk's arm, but a
    /// longer wait for each read. 10 as published.
    read_batch_count: usize = 10, count in 1..=1024;
    /// `lazy-reads`, `lazy-reads-loc`, `sorted_reads`: how long a read waits until its batch is full. More: fuller
    /// batches when there are few reads.
    read_batch_time_out: Duration = Duration::from_millis(20), time in Duration::ZERO..=Duration::from_secs(1);
    /// `lazy-reads-loc`: number of locality buffers. More: more sites are kept together, more memory. The paper's best
    /// is 128.
    locality_buffer_count: usize = 128, count in 1..=4096;
    /// `lazy-reads-loc`: size of a locality buffer. More: longer writes for a site, more memory. The paper states no
    /// value.
    locality_buffer_bytes: u64 = 64 << 10, bytes in 4 << 10..=1 << 20;
    /// `squid`: number of consecutive files that go to one of the 16 x 256 directories before the next directory is
    /// used. File numbers are reused in a circle. 256 as in Squid, 1 as Markatos et al. describe it. Less: files
    /// written together are farther apart.
    squid_directory_files: u32 = 256, count in 1..=65_536;
    /// `esp`: block size. More: a smaller bitmap, but more wasted space behind each entry. 4 KiB as published.
    esp_block_bytes: u64 = 4 << 10, power in 512..=64 << 10;
    /// `esp`: levels of the bitmap. More: long free runs are found sooner, but more of each run's ends is skipped. With
    /// 7 levels, where a node of the top level covers 64 blocks, a full store found so few free runs that it refused
    /// many entries: 22% of the requests were hits instead of 46%. 3 as in the paper's example.
    esp_level_count: u32 = 3, count in 1..=16;
    /// `esp`: the search looks for a free run longer than this. More: entries that are stored together are close
    /// together, but a disk's arm moves far. 1 MB is too low according to the paper.
    esp_threshold_bytes: u64 = 4 << 20, bytes in 0..=1 << 30;
    /// `esp`: low watermark. Share of blocks in use, in percent, above which eviction is fast; not above the high
    /// watermark. 90 as in Squid.
    esp_low_percent: u32 = 90, count in 0..=99;
    /// `esp`: high watermark. Share of blocks in use, in percent, above which eviction is fastest. 95 as in Squid.
    esp_high_percent: u32 = 95, count in 0..=99;
    /// `esp`: entries evicted per second below the low watermark. Another 5, 10 or 15 are evicted if free runs are
    /// short. 10 as published.
    esp_base_evictions_per_s: u32 = 10, count in 0..=10_000;
    /// `esp`: entries evicted per second between the watermarks; above the high one, twice as many. Too low: entries
    /// find no room and are not stored. 200 as published.
    esp_evictions_per_s: u32 = 200, count in 0..=1_000_000;
    /// `hashcache-basic` to `hashcache-setmem-lru`: size of a bin. More: more entries take a single read, but fewer fit
    /// in the table. Only for a new volume.
    hashcache_bin_bytes: u64 = 8 << 10, power in 4096..=1 << 20;
    /// `hashcache-set` and later: entries of a set; 2, 4, 8 or 16. More: better eviction, but more false matches, and
    /// more to read if the set is not in memory. Only for a new volume.
    hashcache_ways: u32 = 8, count in 2..=16;
    /// `hashcache-basic` to `hashcache-setmem-lru`: share of the volume for bytes that do not fit in bins; the paper
    /// states no value. Less: long entries are overwritten sooner. More: fewer bins. Only for a new volume.
    hashcache_ring_share: f64 = 0.33, share in 0.01..=0.9;
    /// `hashcache-setmem` and later: bits of an entry's tag. Each bit more halves the useless reads of misses (3.1% of
    /// the misses with 8 bits and full sets of 8) and takes one more bit per entry.
    hashcache_tag_bits: u32 = 8, count in 4..=16;
    /// `hashcache-setmem-lru`: share of the sets in memory. More: fewer reads of whole sets, but more memory (at 0.5 as
    /// much as `hashcache-setmem`).
    hashcache_resident_share: f64 = 0.4, share in 0.01..=1.0;
    /// `ucfs`: size of a cluster. More: more entries share a read and a write, and are evicted together. An entry
    /// longer than half a cluster has clusters of its own. Only for a new volume.
    ucfs_cluster_bytes: u64 = 128 << 10, power in (32 << 10)..=(1 << 20);
    /// `ucfs`: number of clusters that are filled at a time, each for a share of the sites. More: fewer sites share a
    /// cluster, but more bytes wait in memory to be written. At most one cluster in eight is being filled.
    ucfs_groups: usize = 16, count in 1..=1024;
    /// `tiny`: size of a set. An entry longer than half a set takes two reads. More: more entries take one read, but
    /// more bytes are written and read for each. Only for a new volume.
    tiny_set_bytes: u64 = 8 << 10, power in (4 << 10)..=(64 << 10);
    /// `tiny`: size of the front in percent of the sets. More: more entries share a write of their set, but the front's
    /// index takes more memory. Only for a new volume.
    tiny_front_percent: u64 = 5, count in 1..=50;
    /// `tiny`: number of entries of a set that must be in the front before the set is written. Applies to short entries
    /// without hits; a set that is almost empty is written earlier. If a set holds more than 15 times this many
    /// entries, one for every 15 is required instead. More: fewer bytes written, but more entries dropped before they
    /// could be hit.
    tiny_threshold: u64 = 2, count in 1..=16;
    /// `tiny`: bytes that must move to a set, in percent of the set, for a write if there are fewer entries than the
    /// threshold. An entry in the ring of long entries counts as its whole length, an entry that was hit as four times
    /// its length. Less: fewer entries dropped before they could be hit, but more bytes written for each (at 25, up to
    /// four times their length).
    tiny_move_percent: u64 = 25, count in 1..=100;
    /// `hashcache-log-n` and later: bits of the generation, which counts the log's rounds. More: fewer useless reads of
    /// entries that the log has overwritten. With n bits, one in 2^n of these reads remains.
    hashcache_generation_bits: u32 = 4, count in 0..=8;
    /// `hashcache-log-n`, and `hashcache-log-lru` for the data in its file: bytes of the first read of an entry,
    /// because the index does not know its length. More: fewer second reads for long entries. Less: fewer bytes read.
    /// The paper reads up to 64 KiB at the price of a seek.
    hashcache_first_read_bytes: u64 = 64 << 10, power in 4096..=1 << 20;
    /// `hashcache-log-lru`: entries of a set whose position is in memory; the other positions are in a file. Half of
    /// `hashcache_ways` as published. More: fewer hits that take a second read, but 32 bits of memory per set for each
    /// position.
    hashcache_positions: u32 = 4, count in 1..=15;
    /// `hashcache-log-lru`: number of new positions that are collected before they are written to the file. More: more
    /// positions share a write. At most twice this number are in memory, 40 bytes each. The store uses at most one for
    /// every 256 of its entries.
    hashcache_positions_waiting: usize = 1_000_000, count in 1..=1_000_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_their_ranges_and_every_constant_can_be_set() {
        let defaults = Tuning::default();
        defaults.check().unwrap();
        for field in Tuning::fields() {
            let value = defaults.value(field.name).expect("it is in the table");
            let other = match (value, &field.kind) {
                (TuningValue::Switch(on), _) => TuningValue::Switch(!on),
                (_, TuningKind::Count(range) | TuningKind::Bytes(range) | TuningKind::Power(range)) => {
                    TuningValue::Number(*range.end())
                }
                (_, TuningKind::Time(range)) => TuningValue::Time(*range.end()),
                (_, TuningKind::Share(range)) => TuningValue::Share(*range.end()),
                (_, TuningKind::Word(words)) => TuningValue::Word(words[words.len() - 1]),
                (_, TuningKind::Switch) => panic!("a switch has a switch's value"),
            };
            let mut tuning = Tuning::default();
            tuning.set(field.name, other).unwrap();
            assert_eq!(tuning.value(field.name), Some(other));
            assert!(!field.about.trim().is_empty());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut tuning = Tuning::default();
        for (name, value) in [
            ("no_such", TuningValue::Switch(true)),
            ("sorted_reads", TuningValue::Number(1)),
            ("sorted_reads", TuningValue::Share(0.5)),
        ] {
            assert_eq!(tuning.set(name, value).unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert!(TuningKind::Count(1..=8).admits(TuningValue::Number(8)));
        assert!(!TuningKind::Count(1..=8).admits(TuningValue::Number(9)));
        assert!(TuningKind::Power(512..=8192).admits(TuningValue::Number(8192)));
        assert!(!TuningKind::Power(512..=8192).admits(TuningValue::Number(6144)));
        assert!(!TuningKind::Share(0.0..=1.0).admits(TuningValue::Share(f64::NAN)));
        let times = Duration::ZERO..=Duration::from_secs(1);
        assert!(!TuningKind::Time(times).admits(TuningValue::Time(Duration::from_secs(2))));
        assert_eq!(tuning, Tuning::default());
    }
}
