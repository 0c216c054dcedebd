//! The policy table: every row is a composition of an index, a layout, a schedule and an eviction.
//!
//! Owns: the rows and the axes they are made of. The one table feeds configuration, `--help`, tests,
//! simulator and documents; a row that no engine can run does not compile, because each family's match
//! over the axes is exhaustive. Does not: run anything. Adding a row that recombines existing parts is
//! one entry in [`POLICIES`].

mod costs;

pub use costs::{Assumptions, Costs, Work};
use std::fmt;

/// A row: how entries are found, where they lie, when they travel, and which of them go.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Its name in configuration and messages.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// Where the idea comes from.
    pub source: &'static str,
    /// What is in memory for an entry.
    pub index: IndexAxis,
    /// Where an entry's bytes go.
    pub layout: LayoutAxis,
    /// When bytes are written.
    pub writes: WriteAxis,
    /// How bytes are read.
    pub reads: ReadAxis,
    /// Which entries go when there is no room.
    pub eviction: EvictionAxis,
    /// Its number in the superblock, never used for another row.
    pub(crate) code: u32,
}

/// What is in memory for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexAxis {
    /// Two-choice buckets of 16 packed slots with tag, position, length class and hit bits.
    Buckets,
    /// A hash table of all entries with their places and order of use: 272 bits an entry.
    Map,
    /// Nothing: the volume itself says what is where.
    Nothing,
    /// Per set of the disk table a tag and a rank for each way.
    SetTags,
    /// The same, of the sets used last.
    RecentSetTags,
    /// Eight bytes for an entry in the front; for a set a Bloom filter of 3 bits and 1 hit bit an entry.
    FrontAndFilters,
    /// An object table of 20 bytes an entry, a cluster table of 24 bytes a cluster.
    Objects,
    /// Per set of the index a tag, a rank and a generation for each way, and the entry's position in the log.
    SetPlaces,
    /// The same, with positions of the entries used last; the others' are in a file.
    RecentSetPlaces,
}

/// Where an entry's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutAxis {
    /// Segments written once from start to end, in a circle.
    Segments,
    /// A file per entry, all in one directory.
    OneDirectory,
    /// A file per entry, in 16 x 256 directories by turns.
    RoundRobinDirectories,
    /// A file per entry, a directory per site.
    SiteDirectories,
    /// A file of slots per length, the first free slot; long entries a file each.
    SizeClasses,
    /// One file of 512-byte slots, the next free ones from a pointer that goes round.
    Slots,
    /// One file of 4 KiB blocks in a bitmap of several levels, written along long free runs.
    MultilevelBitmap,
    /// A table of bins, a key having one; what does not fit it in a ring.
    Bins,
    /// The same with bins in sets, a key having all bins of one.
    Sets,
    /// A small log in front of sets; long entries in a ring of their own.
    FrontAndSets,
    /// Clusters that are written, read and evicted whole.
    Clusters,
}

impl LayoutAxis {
    /// Whether entries are kept in files of a directory, instead of on one file or device.
    pub fn keeps_files(self) -> bool {
        matches!(self, Self::OneDirectory | Self::RoundRobinDirectories | Self::SiteDirectories | Self::SizeClasses)
    }
}

/// When bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteAxis {
    /// Gathered into units of up to 1 MiB.
    Units,
    /// The same, the entries of a group side by side.
    UnitsByGroup,
    /// Each entry on its own; its commit waits for the device.
    Through,
    /// Each entry on its own, many in flight; commits do not wait.
    Asynchronous,
    /// Contiguous writes gather in a page.
    Pages,
    /// As [`Self::Pages`], behind buffers that each gather the entries of one site.
    SitePages,
    /// To the front in packs, from there to their sets, several entries at once.
    PacksThenSets,
    /// Gathered into whole clusters, by site.
    Clusters,
}

/// How bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAxis {
    /// Each entry on its own, at once.
    Direct,
    /// Each entry on its own, at once, many in flight.
    Asynchronous,
    /// In batches sorted by place, with a time-out.
    SortedBatches,
    /// A group with one read, at its first entry.
    Groups,
    /// The whole set, at once.
    WholeSet,
    /// The whole cluster, whose other entries go to the hot tier.
    Clusters,
}

/// Which entries go when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvictionAxis {
    /// The oldest segment; what of it was hit is written again, up to `Tuning::reinsertion_share`.
    Reinsertion,
    /// The least recently used entries, until there is room for the new one.
    Lru,
    /// The least recently used entries, ahead of need, at a pace set by fill and by the free runs found.
    PacedLru,
    /// Whatever stands where a new entry belongs.
    Overwrite,
    /// The entry of the set that was written first.
    FirstInSet,
    /// The entry of the set that was used least recently.
    LeastRecentInSet,
    /// Out of a set what is believed to be used last; from the front into a set what is worth it.
    RankInSet,
    /// The least recently used cluster, and all that is in it.
    ClusterLru,
    /// The oldest segment, unread; before that the entry of the index's set that was used least recently.
    OverwriteOrLeastRecent,
}

/// Every row.
static POLICIES: &[Policy] = &[
    Policy {
        name: "log",
        about: "segmented log with a packed index: one read a hit, none a miss, sequential writes",
        source: "STREAM-PACK (Markatos et al., USITS 1999) and HashCache-Log (NSDI 2009), with whole segments and hit bits",
        index: IndexAxis::Buckets,
        layout: LayoutAxis::Segments,
        writes: WriteAxis::Units,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Reinsertion,
        code: 1,
    },
    Policy {
        name: "simple",
        about: "a file per entry, all in one directory",
        source: "SIMPLE, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::OneDirectory,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Lru,
        code: 2,
    },
    Policy {
        name: "squid",
        about: "a file per entry, in 16 x 256 directories by turns",
        source: "SQUID, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::RoundRobinDirectories,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Lru,
        code: 3,
    },
    Policy {
        name: "multiple-dirs",
        about: "a file per entry, a directory per site",
        source: "MULTIPLE-DIRS, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::SiteDirectories,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Lru,
        code: 4,
    },
    Policy {
        name: "buddy",
        about: "a file of slots for each length, a file each for long entries",
        source: "BUDDY, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::SizeClasses,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Lru,
        code: 5,
    },
    Policy {
        name: "stream",
        about: "one file of 512-byte slots, written by a pointer that goes round",
        source: "STREAM, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::Slots,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Lru,
        code: 6,
    },
    Policy {
        name: "stream-pack",
        about: "stream, with contiguous writes gathered in pages",
        source: "STREAM-PACKETIZER, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::Slots,
        writes: WriteAxis::Pages,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Lru,
        code: 7,
    },
    Policy {
        name: "lazy-reads",
        about: "stream-pack, with reads in sorted batches",
        source: "LAZY-READS, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::Slots,
        writes: WriteAxis::Pages,
        reads: ReadAxis::SortedBatches,
        eviction: EvictionAxis::Lru,
        code: 8,
    },
    Policy {
        name: "lazy-reads-loc",
        about: "lazy-reads, with the entries of a site gathered before they are written",
        source: "LAZY-READS-LOC, Markatos et al., USITS 1999",
        index: IndexAxis::Map,
        layout: LayoutAxis::Slots,
        writes: WriteAxis::SitePages,
        reads: ReadAxis::SortedBatches,
        eviction: EvictionAxis::Lru,
        code: 9,
    },
    Policy {
        name: "large-file",
        about: "stream without waiting: many writes and reads in flight, on a file or a raw device",
        source: "expv1, Performance Issues in Squid, 2002",
        index: IndexAxis::Map,
        layout: LayoutAxis::Slots,
        writes: WriteAxis::Asynchronous,
        reads: ReadAxis::Asynchronous,
        eviction: EvictionAxis::Lru,
        code: 10,
    },
    Policy {
        name: "esp",
        about: "4 KiB blocks in a bitmap of several levels, written along long free runs that eviction keeps open",
        source: "ESP, ICS 2002",
        index: IndexAxis::Map,
        layout: LayoutAxis::MultilevelBitmap,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::PacedLru,
        code: 11,
    },
    Policy {
        name: "hashcache-basic",
        about: "no index at all: a key has one bin of the disk table, a collision overwrites",
        source: "HashCache-Basic (NSDI 2009)",
        index: IndexAxis::Nothing,
        layout: LayoutAxis::Bins,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::Overwrite,
        code: 31,
    },
    Policy {
        name: "hashcache-set",
        about: "no index at all: a key has a set of eight bins, read whole",
        source: "HashCache-Set (NSDI 2009)",
        index: IndexAxis::Nothing,
        layout: LayoutAxis::Sets,
        writes: WriteAxis::Through,
        reads: ReadAxis::WholeSet,
        eviction: EvictionAxis::FirstInSet,
        code: 32,
    },
    Policy {
        name: "hashcache-setmem",
        about: "11 bits an entry: tags and ranks of all sets in memory, one read a hit, none a miss",
        source: "HashCache-SetMem (NSDI 2009)",
        index: IndexAxis::SetTags,
        layout: LayoutAxis::Sets,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::LeastRecentInSet,
        code: 33,
    },
    Policy {
        name: "hashcache-setmem-lru",
        about: "less than 11 bits an entry: tags and ranks of the sets used last",
        source: "HashCache-SetMemLRU (NSDI 2009)",
        index: IndexAxis::RecentSetTags,
        layout: LayoutAxis::Sets,
        writes: WriteAxis::Through,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::LeastRecentInSet,
        code: 34,
    },
    Policy {
        name: "hashcache-log-n",
        about: "47 bits an entry: sets with positions in memory, everything in a log, no groups",
        source: "HashCache-LogN (NSDI 2009)",
        index: IndexAxis::SetPlaces,
        layout: LayoutAxis::Segments,
        writes: WriteAxis::Units,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::OverwriteOrLeastRecent,
        code: 35,
    },
    Policy {
        name: "hashcache-log",
        about: "55 bits an entry: as hashcache-log-n, and what was asked for together lies and is read together",
        source: "HashCache-Log (NSDI 2009)",
        index: IndexAxis::SetPlaces,
        layout: LayoutAxis::Segments,
        writes: WriteAxis::UnitsByGroup,
        reads: ReadAxis::Groups,
        eviction: EvictionAxis::OverwriteOrLeastRecent,
        code: 36,
    },
    Policy {
        name: "hashcache-log-lru",
        about: "31 bits an entry: as hashcache-log-n, with half the positions in a file: one read a hit, or two",
        source: "HashCache-LogLRU (NSDI 2009)",
        index: IndexAxis::RecentSetPlaces,
        layout: LayoutAxis::Segments,
        writes: WriteAxis::Units,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::OverwriteOrLeastRecent,
        code: 37,
    },
    Policy {
        name: "ucfs",
        about: "clusters of 128 KiB, filled by site, written, read and evicted whole; starts empty after a crash",
        source: "UCFS/CFS (Wang, Hu: IEEE Transactions on Computers, 2002), by what its abstract says",
        index: IndexAxis::Objects,
        layout: LayoutAxis::Clusters,
        writes: WriteAxis::Clusters,
        reads: ReadAxis::Clusters,
        eviction: EvictionAxis::ClusterLru,
        code: 12,
    },
    Policy {
        name: "tiny",
        about: "a small log in front of sets, for very little memory on flash: one read a hit, two if it is long",
        source: "Larder's own, after Kangaroo (SOSP 2021), with HashCache's log for long entries; docs/tiny.md",
        index: IndexAxis::FrontAndFilters,
        layout: LayoutAxis::FrontAndSets,
        writes: WriteAxis::PacksThenSets,
        reads: ReadAxis::Direct,
        eviction: EvictionAxis::RankInSet,
        code: 20,
    },
];

impl Policy {
    /// Every row, in the order of the table.
    pub fn all() -> &'static [Self] {
        POLICIES
    }

    /// The row of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// The row used unless another is asked for: `log`.
    pub fn default_row() -> &'static Self {
        &POLICIES[0]
    }

    /// Whether a read brings entries along that nobody asked for, see [`crate::Store::set_neighbours`].
    pub fn brings_neighbours(&self) -> bool {
        matches!(self.reads, ReadAxis::Clusters | ReadAxis::Groups)
    }

    /// The row with this number in the superblock.
    pub(crate) fn of_code(code: u32) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.code == code)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_numbers_of_rows_are_unique() {
        let names: HashSet<_> = Policy::all().iter().map(|policy| policy.name).collect();
        let codes: HashSet<_> = Policy::all().iter().map(|policy| policy.code).collect();
        assert_eq!((names.len(), codes.len()), (POLICIES.len(), POLICIES.len()));
        assert!(!codes.contains(&0), "0 is what an empty field says");
        for policy in Policy::all() {
            assert_eq!(Policy::named(policy.name), Some(policy));
            assert_eq!(Policy::of_code(policy.code), Some(policy));
        }
    }

    #[test]
    fn the_default_row_is_log() {
        assert_eq!(Policy::default_row().name, "log");
    }
}
