//! The tuning constants of the policies, each with its meaning, range and default: one table for the engine,
//! configuration and documents.
//!
//! Owns: [`Tuning`] and the list of its fields. The policies interpret them. Invariant: a store is opened only with
//! constants within their ranges. Constants that determine where bytes lie apply only to a new volume; an existing one
//! keeps its own. To add a constant, add one entry to the table at the end.

use crate::{Error, ErrorKind, Result};
use std::{ops::RangeInclusive, time::Duration};

/// One constant, as configuration and documents see it.
#[derive(Debug)]
#[non_exhaustive]
pub struct TuningField {
    /// The constant's name.
    pub name: &'static str,
    /// The rows it is of, its meaning, and what more or less of it does.
    pub about: &'static str,
    /// The values it accepts.
    pub kind: TuningKind,
}

/// The kind of values that a constant accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum TuningKind {
    /// On or off.
    Switch,
    /// A count.
    Count(RangeInclusive<u64>),
    /// A length in bytes.
    Bytes(RangeInclusive<u64>),
    /// A length in bytes that is a power of two.
    Power(RangeInclusive<u64>),
    /// A time.
    Time(RangeInclusive<Duration>),
    /// A share of a whole.
    Share(RangeInclusive<f64>),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A value of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TuningValue {
    /// On or off.
    Switch(bool),
    /// A count or a length in bytes.
    Number(u64),
    /// A time.
    Time(Duration),
    /// A share of a whole.
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
    /// Sets the constant of this name.
    ///
    /// # Errors
    /// `Invalid`: there is none, or `value` is not of its kind or out of its range.
    pub fn set(&mut self, name: &str, value: TuningValue) -> Result<()> {
        let Some(field) = Self::fields().iter().find(|field| field.name == name) else {
            return Err(Error::new(ErrorKind::Invalid, format!("no such constant: {name}")));
        };
        field.check(value)?;
        self.put(name, value);
        Ok(())
    }

    /// Refuses constants out of their ranges.
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
        let place = format!("{} is out of its range ({:?}): {value:?}", self.name, self.kind);
        Err(Error::new(ErrorKind::Invalid, place))
    }
}

/// A type that a constant can have.
trait Constant: Sized {
    fn value(self) -> TuningValue;

    /// Converts a value. Returns `None` if it is of another kind, or too large for the type.
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

/// The goal of the store when it chooses which entries to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Hits: of two entries that are hit as often, the shorter one stays.
    #[default]
    Requests,
    /// Something of both.
    Balanced,
    /// Bytes of hits: length does not count.
    Bytes,
}

impl Objective {
    const WORDS: &[&str] = &["requests", "balanced", "bytes"];

    /// Returns the exponent that weighs length: an entry of n sectors is worth keeping if it has n to this power times
    /// the hits of an entry of one sector.
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

/// Maps each word for a kind in the table to its `TuningKind`.
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
        /// Constants of the policy rows. The defaults are the papers' where a paper names them.
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

            /// Sets a constant to a value that was checked.
            fn put(&mut self, name: &str, value: TuningValue) {
                match name {
                    $(stringify!($name) => if let Some(value) = Constant::of(value) { self.$name = value },)*
                    _ => {}
                }
            }
        }
    };
}

// name: type = default, kind in range;   kinds: switch, count, bytes, power (of two, in bytes), time, share, word (one of)
table! {
    /// `log`: whether entries that were hit are written again when their segment is reclaimed. On: more hits, more
    /// bytes written.
    reinsertion: bool = true, switch;
    /// `log`, `log-clock`: most of a main segment that is written again, as a share of it. More: more hits; bytes written grow to as
    /// much as 1 / (1 - share) times what is admitted.
    reinsertion_share: f64 = 0.75, share in 0.0..=0.75;
    /// `log`, `log-clock`: limit on rewriting. Entries are written again only while all bytes written, with headers, padding
    /// and checkpoints, stay within this multiple of the bytes admitted. More: more hits where few entries are requested
    /// again and again. Less: less wear of flash.
    write_factor_max: f64 = 1.3, share in 1.0..=16.0;
    /// `log`: bytes that may be written a day, in multiples of the volume's size, for new entries and for reinsertion.
    /// When they are used up, no new entry is stored. More: more hits; less: less wear of flash. 0: no limit.
    writes_per_day: f64 = 0.0, share in 0.0..=1000.0;
    /// `log`: of what the store is to have most. `requests`: hits, so that short entries stay rather than long ones; `bytes`: bytes
    /// of hits, as mirrors of large files want; `balanced`: something of both.
    objective: Objective = Objective::Requests, word in Objective::WORDS;
    /// `log`, `log-clock`: most of a volume that entries may take that are pinned (`larder pin`), as a share of it. More: more that
    /// eviction spares, and as much less for everything else, which is evicted sooner.
    pin_share: f64 = 0.25, share in 0.0..=0.4;
    /// `log`: bytes written for checkpoints of the index, as a share of the log's. More: less to replay after a
    /// crash; less: fewer bytes written. 0: only at close.
    checkpoint_share: f64 = 0.02, share in 0.0..=1.0;
    /// `simple` to `esp`, `ucfs`: whether changes of the map are written to a journal, so that a kill costs a second of what was
    /// stored and a power cut five, not everything. On: 24 bytes are written for each entry stored and each that goes, and now and
    /// then for each there is. Off: as in the papers. Only for a new volume.
    map_journal: bool = true, switch;
    /// `buddy`: longest entry, with its key and head, that is kept in a file of slots; longer ones get a file each.
    /// Longer: fewer files made and removed, more files of slots. 128 KiB as published.
    buddy_threshold_bytes: u64 = 128 << 10, bytes in 512..=500 << 10;
    /// `buddy`: how much of its size entries may take, in percent; the rest is for slots that are free while
    /// others are wanted. More: more entries, but rare lengths find no room once all files are as long as they may be.
    buddy_used_percent: u32 = 85, count in 10..=99;
    /// `stream` and the rows on its file: how much of the file may be used at a time, in percent. More: more
    /// entries, but shorter free runs, so that long entries push out more than their length. The paper's working
    /// point is 70.
    stream_used_percent: u32 = 70, count in 10..=95;
    /// `stream-pack`, `lazy-reads`, `lazy-reads-loc`: the page in which contiguous writes gather. Larger: fewer
    /// writes, more to lose when the machine stops. The paper's machine has 8 KiB.
    page_bytes: u64 = 8 << 10, power in 4 << 10..=1 << 20;
    /// `lazy-reads`, `lazy-reads-loc`: reads in a batch. More: shorter ways for a disk's arm, longer waits for
    /// each read. 10 as published.
    read_batch_count: usize = 10, count in 1..=1024;
    /// `lazy-reads`, `lazy-reads-loc`: how long a read waits for its batch. Longer: fuller batches when there are
    /// few reads.
    read_batch_time_out: Duration = Duration::from_millis(20), time in Duration::ZERO..=Duration::from_secs(1);
    /// `lazy-reads-loc`: locality buffers. More: more sites keep together, more memory. The paper's best is 128.
    locality_buffer_count: usize = 128, count in 1..=4096;
    /// `lazy-reads-loc`: size of a locality buffer. Larger: longer writes of one site, more memory. The paper
    /// does not say.
    locality_buffer_bytes: u64 = 64 << 10, bytes in 4 << 10..=1 << 20;
    /// `squid`: consecutive files that one of its 16 x 256 directories gets before the next is taken, numbers being used again in
    /// circulation. 256 as Squid does; 1 is by turns, as Markatos et al. describe it. Fewer: files written together lie apart.
    squid_directory_files: u32 = 256, count in 1..=65_536;
    /// `esp`: the block. Larger: less bitmap, more waste behind each entry. 4 KiB as published.
    esp_block_bytes: u64 = 4 << 10, power in 512..=64 << 10;
    /// `esp`: levels of the bitmap. More: longer free runs are seen at once, more of their ends is passed over, and once
    /// entries go here and there, no run is seen at all: with 7, where a node of the top level is 64 blocks, a full
    /// store refused so many entries that 22% were hits in place of 46%. 3 as in the paper's example.
    esp_level_count: u32 = 3, count in 1..=16;
    /// `esp`: a free run is searched for that is longer than this. Larger: entries that come together lie
    /// together, but a disk's arm moves far. 1 MB is too low according to the paper.
    esp_threshold_bytes: u64 = 4 << 20, bytes in 0..=1 << 30;
    /// `esp`: share of blocks in use, in percent, above which eviction is fast; at most the high watermark. 90 as
    /// in Squid.
    esp_low_percent: u32 = 90, count in 0..=99;
    /// `esp`: share of blocks in use, in percent, above which eviction is faster still. 95 as in Squid.
    esp_high_percent: u32 = 95, count in 0..=99;
    /// `esp`: entries evicted per second below the low watermark, in addition to 5, 10 or 15 more when free runs are
    /// short. 10 as published.
    esp_base_evictions_per_s: u32 = 10, count in 0..=10_000;
    /// `esp`: entries evicted per second between the watermarks; above the high one twice as many. Too few: entries
    /// are not stored for want of room. 200 as published.
    esp_evictions_per_s: u32 = 200, count in 0..=1_000_000;
    /// `hashcache-log`: how long entries are gathered before those of a page are written side by side. Longer: pages that come at once
    /// or slowly are read with fewer reads; a kill costs as much more of what was stored last.
    hashcache_group_window: Duration = Duration::from_secs(2), time in Duration::ZERO..=Duration::from_secs(60);
    /// `hashcache-basic` to `hashcache-setmem-lru`: size of a bin. Larger: more entries are read with one read, and fewer
    /// fit the table. Only for a new volume.
    hashcache_bin_bytes: u64 = 8 << 10, power in 4096..=1 << 20;
    /// `hashcache-set` and later: entries of a set; 2, 4, 8 or 16. More: better eviction, more false matches, and more to
    /// read where memory does not know a set. Only for a new volume.
    hashcache_ways: u32 = 8, count in 2..=16;
    /// `hashcache-basic` to `hashcache-setmem-lru`: share of the volume for what does not fit bins; the paper names none.
    /// Less: long entries are overwritten sooner; more: fewer bins. Only for a new volume.
    hashcache_ring_share: f64 = 0.33, share in 0.01..=0.9;
    /// `hashcache-setmem` and later: bits of an entry's tag. More: fewer needless reads at misses (3.1% of them in full
    /// sets of 8 with 8 bits), and as many more bits an entry.
    hashcache_tag_bits: u32 = 8, count in 4..=16;
    /// `hashcache-setmem-lru`: share of the sets in memory. More: fewer reads of whole sets, more memory (as much as
    /// `hashcache-setmem` at a half).
    hashcache_resident_share: f64 = 0.4, share in 0.01..=1.0;
    /// `ucfs`: size of a cluster. Larger: more entries share a read and a write, and go together; an entry longer than
    /// half a cluster has clusters of its own. Only for a new volume.
    ucfs_cluster_bytes: u64 = 128 << 10, power in (32 << 10)..=(1 << 20);
    /// `ucfs`: clusters that are filled at a time, each for its share of the sites. More: sites are kept apart better,
    /// more memory waits to be written. A store has at most one for every eight clusters.
    ucfs_groups: usize = 16, count in 1..=1024;
    /// `tiny`: size of a set. An entry longer than half a set takes two reads. Larger: more entries with one read,
    /// more bytes written and read for each. Only for a new volume.
    tiny_set_bytes: u64 = 8 << 10, power in (4 << 10)..=(64 << 10);
    /// `tiny`: size of the front in percent of the sets. Larger: more entries share a write of their set, and more
    /// memory is needed for the front's index. Only for a new volume.
    tiny_front_percent: u64 = 5, count in 1..=50;
    /// `tiny`: how many entries of one set have to be in the front for it to be written when none of them was hit
    /// and they are short, and the set is not almost empty. Larger: fewer bytes written, more entries dropped unseen.
    tiny_threshold: u64 = 2, count in 1..=16;
    /// `tiny`: the oldest part of the ring of long entries, in percent, in which a hit writes an entry again.
    /// Larger: popular long entries stay, more bytes are written.
    tiny_rescue_percent: u64 = 0, count in 0..=90;
    /// `hashcache-log-n` and later: bits that tell how often the log has gone round. More: fewer needless reads of what it
    /// has overwritten, which are one in 2^bits of those without.
    hashcache_generation_bits: u32 = 4, count in 0..=8;
    /// `hashcache-log-n`, and `hashcache-log-lru` for the data in its file: bytes of the first read of an entry, whose
    /// length the index does not know. More: fewer second reads for long entries; less: fewer bytes read. The paper
    /// reads up to 64 KiB at the price of a seek.
    hashcache_first_read_bytes: u64 = 64 << 10, power in 4096..=1 << 20;
    /// `hashcache-log-lru`: entries of a set whose position is in memory; the others' are in a file. Half of
    /// `hashcache_ways` as published. More: fewer hits that take a second read, and 32 bits a set for each.
    hashcache_positions: u32 = 4, count in 1..=15;
    /// `hashcache-log-lru`: positions that wait for the file before they are written. More: several go with one write
    /// more often, and twice as many are kept in memory at most, 40 bytes each. At most one for 256 entries of the store.
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
            ("reinsertion", TuningValue::Number(1)),
            ("reinsertion", TuningValue::Share(0.5)),
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
