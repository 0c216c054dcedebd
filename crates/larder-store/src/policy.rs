//! The policy table: each policy is an engine with its settings.
//!
//! Owns: the policies, and the words that describe them. The one table feeds configuration, `--help`, tests, simulator
//! and documents. A policy that no engine can run does not compile, because [`EngineRow`] has no value for it. Index,
//! layout, reads and eviction are columns that follow from the policy. To add a policy that recombines existing parts,
//! add one entry to [`POLICIES`].

mod axes;
mod costs;
mod engine_row;
pub mod plan;

use crate::units::SECTOR_BYTES;
pub use axes::{EvictionAxis, IndexAxis, LayoutAxis, ReadAxis, WriteAxis};
pub(crate) use costs::{CostAssumptions, HITS_EXPONENT, PolicyCosts, TransferWork, mean_rest_bytes};
pub use engine_row::{EngineRow, FileNaming, LocatedRow, LogEviction, LogRow, MappedRow, SlotSchedule, TableRow};
use std::fmt;

/// A policy: how a store finds, places, writes, reads and evicts its entries.
///
/// Take `log`, the default: a hit takes one read, a miss none, and an entry at most 63 bits of memory on volumes up to
/// 1 TB. Take `tiny` for many small entries with very little memory. The others implement published designs, for
/// comparison. [`Policy::all`] lists them, and [`plan`] compares them for a disk and a memory.
///
/// ```
/// use larder_store::Policy;
///
/// assert_eq!(Policy::default_policy().name, "log");
/// for policy in Policy::all() {
///     println!("{}: {} ({})", policy.name, policy.about, policy.source);
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// The policy's name in configuration and messages.
    pub name: &'static str,
    /// Description of the policy in one sentence.
    pub about: &'static str,
    /// The paper or program that describes the design.
    pub source: &'static str,
    /// The engine that runs the policy, and its settings.
    pub engine: EngineRow,
    /// The data that the index keeps in memory for each entry.
    pub index: IndexAxis,
    /// The place at which an entry's bytes are stored.
    pub layout: LayoutAxis,
    /// When and in which pieces bytes are written.
    pub writes: WriteAxis,
    /// The way in which bytes are read for a lookup.
    pub reads: ReadAxis,
    /// The choice of entries that are dropped when there is no room.
    pub eviction: EvictionAxis,
    /// The number that stands for the policy in the superblock. It is never reused for another policy.
    pub(crate) code: u32,
}

/// The texts that describe a policy to users.
struct PolicyWords {
    about: &'static str,
    source: &'static str,
}

/// The policy table: every policy of the engine.
static POLICIES: &[Policy] = &[
    Policy::new(
        1,
        "log",
        EngineRow::Log(LogRow::Packed(LogEviction::Worth)),
        PolicyWords {
            about: "segmented log with a packed index: one read per hit, none per miss, sequential writes",
            source: "STREAM-PACK (Markatos et al., USITS 1999) and HashCache-Log (NSDI 2009), with whole segments and hit bits",
        },
    ),
    Policy::new(
        38,
        "log-clock",
        EngineRow::Log(LogRow::Packed(LogEviction::Clock)),
        PolicyWords {
            about: "as log, but an entry survives one round for each of its hits",
            source: "generalised CLOCK (Smith, ACM TODS 1978), with its hand at the end of the log",
        },
    ),
    Policy::new(
        2,
        "simple",
        EngineRow::Mapped(MappedRow::Files(FileNaming::OneDirectory)),
        PolicyWords { about: "a file per entry, all in one directory", source: "SIMPLE, Markatos et al., USITS 1999" },
    ),
    Policy::new(
        3,
        "squid",
        EngineRow::Mapped(MappedRow::Files(FileNaming::RoundRobin)),
        PolicyWords {
            about: "a file per entry, in 16 x 256 directories",
            source: "SQUID, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        4,
        "multiple-dirs",
        EngineRow::Mapped(MappedRow::Files(FileNaming::BySite)),
        PolicyWords {
            about: "a file per entry, a directory per site",
            source: "MULTIPLE-DIRS, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        5,
        "buddy",
        EngineRow::Mapped(MappedRow::SizeClasses),
        PolicyWords {
            about: "a file of slots for each length, and a file for each long entry",
            source: "BUDDY, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        6,
        "stream",
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::Through)),
        PolicyWords {
            about: "one file of 512-byte slots, written round and round",
            source: "STREAM, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        7,
        "stream-pack",
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::Pages)),
        PolicyWords {
            about: "stream, with contiguous writes gathered in pages",
            source: "STREAM-PACKETIZER, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        8,
        "lazy-reads",
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::PagesAndSortedReads)),
        PolicyWords {
            about: "stream-pack, with reads in sorted batches",
            source: "LAZY-READS, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        9,
        "lazy-reads-loc",
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::SitePagesAndSortedReads)),
        PolicyWords {
            about: "lazy-reads, with the entries of a site gathered before they are written",
            source: "LAZY-READS-LOC, Markatos et al., USITS 1999",
        },
    ),
    Policy::new(
        10,
        "large-file",
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::Asynchronous)),
        PolicyWords {
            about: "stream without waiting: many writes and reads in flight, on a file or a raw device",
            source: "expv1, Performance Issues in Squid, 2002",
        },
    ),
    Policy::new(
        11,
        "esp",
        EngineRow::Mapped(MappedRow::Bitmap),
        PolicyWords {
            about: "4 KiB blocks in a bitmap of several levels, written in long free runs that eviction keeps open",
            source: "ESP, ICS 2002",
        },
    ),
    Policy::new(
        31,
        "hashcache-basic",
        EngineRow::Table(TableRow::Bins),
        PolicyWords {
            about: "no index: a key has one bin of the disk table, and a collision overwrites it",
            source: "HashCache-Basic (NSDI 2009)",
        },
    ),
    Policy::new(
        32,
        "hashcache-set",
        EngineRow::Table(TableRow::Sets),
        PolicyWords {
            about: "no index: a key has a set of eight bins, which is read whole",
            source: "HashCache-Set (NSDI 2009)",
        },
    ),
    Policy::new(
        33,
        "hashcache-setmem",
        EngineRow::Table(TableRow::TaggedSets),
        PolicyWords {
            about: "11 bits per entry: tags and ranks of all sets in memory, one read per hit, none per miss",
            source: "HashCache-SetMem (NSDI 2009)",
        },
    ),
    Policy::new(
        34,
        "hashcache-setmem-lru",
        EngineRow::Table(TableRow::RecentlyTaggedSets),
        PolicyWords {
            about: "less than 11 bits per entry: tags and ranks of the most recently used sets",
            source: "HashCache-SetMemLRU (NSDI 2009)",
        },
    ),
    Policy::new(
        35,
        "hashcache-log-n",
        EngineRow::Log(LogRow::Located(LocatedRow::Plain)),
        PolicyWords {
            about: "47 bits per entry: sets with positions in memory, everything in a log, no groups",
            source: "HashCache-LogN (NSDI 2009)",
        },
    ),
    Policy::new(
        36,
        "hashcache-log",
        EngineRow::Log(LogRow::Located(LocatedRow::Grouped)),
        PolicyWords {
            about: "55 bits per entry: as hashcache-log-n, but entries requested together are stored and read \
                    together",
            source: "HashCache-Log (NSDI 2009)",
        },
    ),
    Policy::new(
        37,
        "hashcache-log-lru",
        EngineRow::Log(LogRow::Located(LocatedRow::Recent)),
        PolicyWords {
            about: "35 bits per entry: as hashcache-log, with half the positions in a file",
            source: "HashCache-LogLRU (NSDI 2009)",
        },
    ),
    Policy::new(
        12,
        "ucfs",
        EngineRow::Clusters,
        PolicyWords {
            about: "clusters of 128 KiB, filled by site, and written, read and evicted whole",
            source: "UCFS/CFS (Wang, Hu: IEEE Transactions on Computers, 2002), after its abstract",
        },
    ),
    Policy::new(
        20,
        "tiny",
        EngineRow::Tiny,
        PolicyWords {
            about: "a small log in front of sets, for very little memory on flash: one read per hit, two for a long \
                    entry",
            source: "Larder's own, after Kangaroo (SOSP 2021), with HashCache's log for long entries",
        },
    ),
];

impl Policy {
    const fn new(code: u32, name: &'static str, engine: EngineRow, words: PolicyWords) -> Self {
        let PolicyWords { about, source } = words;
        let index = engine.index();
        let layout = engine.layout();
        let writes = engine.writes();
        let reads = engine.reads();
        let eviction = engine.eviction();
        Self { name, about, source, engine, index, layout, writes, reads, eviction, code }
    }

    /// Returns every policy, in the order of the table.
    pub fn all() -> &'static [Self] {
        POLICIES
    }

    /// Returns the policy with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// Returns the default policy, `log`.
    pub fn default_policy() -> &'static Self {
        &POLICIES[0]
    }

    /// Returns the smallest mean entry size, in bytes, with which a store of this policy can be created.
    ///
    /// `tiny` packs entries into sets, so entries can be short. In the other policies an entry takes at least one
    /// sector.
    pub(crate) fn mean_entry_bytes_min(&self) -> u64 {
        match self.engine {
            EngineRow::Tiny => 64,
            EngineRow::Log(_) | EngineRow::Mapped(_) | EngineRow::Table(_) | EngineRow::Clusters => SECTOR_BYTES,
        }
    }

    /// Returns whether a read of one entry also reads others, which the store then passes on
    /// ([`crate::Store::set_neighbors`]).
    pub fn brings_neighbors(&self) -> bool {
        matches!(self.reads, ReadAxis::Clusters | ReadAxis::Groups)
    }

    /// Returns whether the policy can exempt entries from eviction ([`crate::Store::pin`]).
    pub fn can_pin(&self) -> bool {
        matches!(self.engine, EngineRow::Log(LogRow::Packed(_)))
    }

    /// Returns whether the size of the index is fixed by [`crate::StoreOptions::mean_entry_bytes`]. If not, the index
    /// grows with the entries that are stored.
    pub fn index_assumes_mean(&self) -> bool {
        !matches!(self.engine, EngineRow::Log(LogRow::Packed(_)))
    }

    /// Returns whether an open store of this policy can list its keys ([`crate::Store::scan`]). Policies with a map of
    /// all entries cannot: only the snapshot that they write at close says where entries are.
    pub fn can_scan(&self) -> bool {
        !matches!(self.engine, EngineRow::Mapped(_))
    }

    /// Returns a short description of what a store of this policy keeps after `kill -9`. `has_journal` says whether the
    /// store was created with a journal of its map (`Tuning::map_journal`); other policies ignore it.
    pub fn kept_after_kill(&self, has_journal: bool) -> &'static str {
        match self.engine {
            EngineRow::Log(LogRow::Packed(_) | LogRow::Located(LocatedRow::Grouped | LocatedRow::Recent)) => {
                "all but the entries of the last second, of pages the last four, and of pages that were being fetched \
                 for up to sixteen"
            }
            EngineRow::Log(LogRow::Located(LocatedRow::Plain)) | EngineRow::Tiny => {
                "all but the entries of the last second"
            }
            EngineRow::Table(_) => "everything that was written",
            EngineRow::Mapped(_) | EngineRow::Clusters if !has_journal => {
                "nothing: it has no journal (map_journal, for a new store)"
            }
            EngineRow::Clusters => "all but the clusters that were being filled",
            EngineRow::Mapped(_) => {
                "all but the entries of the last second; their order of use becomes that of writing"
            }
        }
    }

    /// Returns the policy with the number `code` in the superblock.
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
    fn the_default_policy_is_log() {
        assert_eq!(Policy::default_policy().name, "log");
    }
}
