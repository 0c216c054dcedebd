//! The settings that each engine can run. Other combinations cannot be expressed.
//!
//! Owns: the types in which [`super::POLICIES`] is written, and the columns that follow from them. Policies are named
//! elsewhere. Invariant: every value is a policy that an engine can run; each engine matches its own type without a
//! wildcard.

use super::{EvictionAxis, IndexAxis, LayoutAxis, ReadAxis, WriteAxis};

/// An engine with its settings.
///
/// ```
/// use larder_store::{EngineRow, LogEviction, LogRow};
/// let row = EngineRow::Log(LogRow::Packed(LogEviction::Worth));
/// ```
///
/// Combinations that no engine can run do not compile. Two examples: segments with a map of all entries, and sorted
/// batches of reads with a file per entry.
///
/// ```compile_fail
/// use larder_store::{EngineRow, LogEviction, MappedRow};
/// let row = EngineRow::Mapped(MappedRow::Segments(LogEviction::Worth));
/// ```
///
/// ```compile_fail
/// use larder_store::{EngineRow, FileNaming, MappedRow, SlotSchedule};
/// let row = EngineRow::Mapped(MappedRow::Files(FileNaming::BySite, SlotSchedule::PagesAndSortedReads));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineRow {
    /// A segmented log.
    Log(LogRow),
    /// A map of all entries in memory.
    Mapped(MappedRow),
    /// A table of sets on the volume.
    Table(TableRow),
    /// Clusters that are written, read and evicted as a whole.
    Clusters,
    /// A small log before a table of sets (policy `tiny`).
    Tiny,
}

/// The policies on the segmented log.
///
/// ```
/// use larder_store::{EngineRow, LogRow, Policy};
///
/// let on_log = |policy: &&Policy| matches!(policy.engine, EngineRow::Log(LogRow::Located(_)));
/// let names: Vec<&str> = Policy::all().iter().filter(on_log).map(|policy| policy.name).collect();
/// assert_eq!(names, ["hashcache-log-n", "hashcache-log", "hashcache-log-lru"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRow {
    /// An index with a packed slot for every entry. Reclaim writes the useful entries of a segment again.
    Packed(LogEviction),
    /// HashCache's index: sets with positions in the log. The oldest segment is overwritten without being read.
    Located(LocatedRow),
}

/// The rule by which reclaim chooses the entries of a segment that it writes again.
///
/// ```
/// use larder_store::{EngineRow, LogEviction, LogRow, Policy};
///
/// let clock = Policy::named("log-clock").expect("one of the policies");
/// assert_eq!(clock.engine, EngineRow::Log(LogRow::Packed(LogEviction::Clock)));
/// assert_eq!(Policy::default_policy().engine, EngineRow::Log(LogRow::Packed(LogEviction::Worth)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEviction {
    /// Rewrites entries that were hit, in the order of hits per byte. Each hit saves an entry once. This engine also
    /// refuses new entries that are worth less than the stored ones.
    Worth,
    /// Rewrites entries that were hit. Each hit saves an entry once. All new entries are admitted.
    Clock,
}

/// HashCache's policies on a log. They differ in which positions are in memory, and in whether the entries of a group
/// are stored together.
///
/// ```
/// use larder_store::{EngineRow, LocatedRow, LogRow, Policy};
///
/// let policy = Policy::named("hashcache-log").expect("one of the policies");
/// assert_eq!(policy.engine, EngineRow::Log(LogRow::Located(LocatedRow::Grouped)));
/// assert!(policy.brings_neighbors());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocatedRow {
    /// The index has all positions in memory.
    Plain,
    /// The index has all positions in memory. Entries that were requested together are stored and read together.
    Grouped,
    /// Like [`Self::Grouped`], but only the positions of recently used entries are in memory. A file has the others.
    Recent,
}

/// The policies with a map of all entries in memory, by the layout of the volume.
///
/// ```
/// use larder_store::{EngineRow, MappedRow, Policy};
///
/// let esp = Policy::named("esp").expect("one of the policies");
/// assert_eq!(esp.engine, EngineRow::Mapped(MappedRow::Bitmap));
/// // A store with a map of all entries cannot list its keys while it is open.
/// assert!(!esp.can_scan());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedRow {
    /// One file per entry.
    Files(FileNaming),
    /// One file of slots per length class, and one file for each long entry.
    SizeClasses,
    /// One file of 512-byte slots. A pointer circles through the file, and an entry takes the next free slots behind
    /// it.
    Slots(SlotSchedule),
    /// One file of blocks with a bitmap of several levels. Entries are evicted before space is needed.
    Bitmap,
}

/// The rule that chooses the directory for an entry's file.
///
/// ```
/// use larder_store::{EngineRow, FileNaming, MappedRow, Policy};
///
/// let by_site = EngineRow::Mapped(MappedRow::Files(FileNaming::BySite));
/// let policy = Policy::all().iter().find(|policy| policy.engine == by_site);
/// assert_eq!(policy.map(|policy| policy.name), Some("multiple-dirs"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNaming {
    /// One directory for all files.
    OneDirectory,
    /// 16 x 256 directories, each with `squid_directory_files` consecutive files in turn.
    RoundRobin,
    /// One directory per site.
    BySite,
}

/// When the policies with one file of slots write entries and read them.
///
/// ```
/// use larder_store::{EngineRow, MappedRow, Policy, ReadAxis, SlotSchedule};
///
/// let sorted = EngineRow::Mapped(MappedRow::Slots(SlotSchedule::PagesAndSortedReads));
/// let policy = Policy::all().iter().find(|policy| policy.engine == sorted).expect("one of the policies");
/// assert_eq!((policy.name, policy.reads), ("lazy-reads", ReadAxis::SortedBatches));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSchedule {
    /// Each entry is written separately. Its commit waits until the device has it.
    Through,
    /// Each entry is written separately, with many writes in flight. Commits do not wait.
    Asynchronous,
    /// Contiguous entries are collected in a page before it is written.
    Pages,
    /// Like [`Self::Pages`], and reads go in sorted batches.
    PagesAndSortedReads,
    /// Like [`Self::PagesAndSortedReads`], and the entries of each site are collected before they are written.
    SitePagesAndSortedReads,
}

/// The policies with a hash table on the volume, by its shape and by what is in memory.
///
/// ```
/// use larder_store::{EngineRow, IndexAxis, Policy, TableRow};
///
/// let tagged = EngineRow::Table(TableRow::TaggedSets);
/// let policy = Policy::all().iter().find(|policy| policy.engine == tagged).expect("one of the policies");
/// assert_eq!((policy.name, policy.index), ("hashcache-setmem", IndexAxis::SetTags));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableRow {
    /// One bin (a place of fixed length on the volume) per key, and nothing in memory.
    Bins,
    /// A set of bins per key, and nothing in memory.
    Sets,
    /// Like [`Self::Sets`], with tags and ranks of all sets in memory.
    TaggedSets,
    /// Like [`Self::TaggedSets`], but in memory only for recently used sets.
    RecentlyTaggedSets,
}

impl EngineRow {
    pub(super) const fn index(self) -> IndexAxis {
        match self {
            Self::Log(LogRow::Packed(_)) => IndexAxis::Buckets,
            Self::Log(LogRow::Located(LocatedRow::Plain | LocatedRow::Grouped)) => IndexAxis::SetPlaces,
            Self::Log(LogRow::Located(LocatedRow::Recent)) => IndexAxis::RecentSetPlaces,
            Self::Mapped(_) => IndexAxis::Map,
            Self::Table(TableRow::Bins | TableRow::Sets) => IndexAxis::Nothing,
            Self::Table(TableRow::TaggedSets) => IndexAxis::SetTags,
            Self::Table(TableRow::RecentlyTaggedSets) => IndexAxis::RecentSetTags,
            Self::Clusters => IndexAxis::Objects,
            Self::Tiny => IndexAxis::FrontAndFilters,
        }
    }

    pub(super) const fn layout(self) -> LayoutAxis {
        match self {
            Self::Log(_) => LayoutAxis::Segments,
            Self::Mapped(MappedRow::Files(FileNaming::OneDirectory)) => LayoutAxis::OneDirectory,
            Self::Mapped(MappedRow::Files(FileNaming::RoundRobin)) => LayoutAxis::RoundRobinDirectories,
            Self::Mapped(MappedRow::Files(FileNaming::BySite)) => LayoutAxis::SiteDirectories,
            Self::Mapped(MappedRow::SizeClasses) => LayoutAxis::SizeClasses,
            Self::Mapped(MappedRow::Slots(_)) => LayoutAxis::Slots,
            Self::Mapped(MappedRow::Bitmap) => LayoutAxis::MultilevelBitmap,
            Self::Table(TableRow::Bins) => LayoutAxis::Bins,
            Self::Table(TableRow::Sets | TableRow::TaggedSets | TableRow::RecentlyTaggedSets) => LayoutAxis::Sets,
            Self::Clusters => LayoutAxis::Clusters,
            Self::Tiny => LayoutAxis::FrontAndSets,
        }
    }

    pub(super) const fn writes(self) -> WriteAxis {
        match self {
            Self::Log(row) if row.is_grouped() => WriteAxis::UnitsByGroup,
            Self::Log(_) => WriteAxis::Units,
            Self::Mapped(MappedRow::Slots(schedule)) => match schedule {
                SlotSchedule::Through => WriteAxis::Through,
                SlotSchedule::Asynchronous => WriteAxis::Asynchronous,
                SlotSchedule::Pages | SlotSchedule::PagesAndSortedReads => WriteAxis::Pages,
                SlotSchedule::SitePagesAndSortedReads => WriteAxis::SitePages,
            },
            Self::Mapped(MappedRow::Files(_) | MappedRow::SizeClasses | MappedRow::Bitmap) => WriteAxis::Through,
            Self::Table(_) => WriteAxis::ThroughByGroup,
            Self::Clusters => WriteAxis::Clusters,
            Self::Tiny => WriteAxis::PacksThenSets,
        }
    }

    pub(super) const fn reads(self) -> ReadAxis {
        match self {
            Self::Log(row) if row.is_grouped() => ReadAxis::Groups,
            Self::Mapped(MappedRow::Slots(schedule)) => match schedule {
                SlotSchedule::Through | SlotSchedule::Pages => ReadAxis::Direct,
                SlotSchedule::Asynchronous => ReadAxis::Asynchronous,
                SlotSchedule::PagesAndSortedReads | SlotSchedule::SitePagesAndSortedReads => ReadAxis::SortedBatches,
            },
            Self::Table(TableRow::Sets) => ReadAxis::WholeSet,
            Self::Clusters => ReadAxis::Clusters,
            Self::Log(_)
            | Self::Mapped(MappedRow::Files(_) | MappedRow::SizeClasses | MappedRow::Bitmap)
            | Self::Table(TableRow::Bins | TableRow::TaggedSets | TableRow::RecentlyTaggedSets)
            | Self::Tiny => ReadAxis::Direct,
        }
    }

    pub(super) const fn eviction(self) -> EvictionAxis {
        match self {
            Self::Log(LogRow::Packed(LogEviction::Worth | LogEviction::Clock)) => EvictionAxis::Reinsertion,
            Self::Log(LogRow::Located(_)) => EvictionAxis::OverwriteOrLeastRecent,
            Self::Mapped(MappedRow::Bitmap) => EvictionAxis::PacedLru,
            Self::Mapped(MappedRow::Files(_) | MappedRow::SizeClasses | MappedRow::Slots(_)) => EvictionAxis::Lru,
            Self::Table(TableRow::Bins) => EvictionAxis::Overwrite,
            Self::Table(TableRow::Sets) => EvictionAxis::FirstInSet,
            Self::Table(TableRow::TaggedSets | TableRow::RecentlyTaggedSets) => EvictionAxis::LeastRecentInSet,
            Self::Clusters => EvictionAxis::ClusterLru,
            Self::Tiny => EvictionAxis::RankInSet,
        }
    }
}

impl MappedRow {
    /// Returns whether a commit waits until the device has the entry.
    pub(crate) const fn waits_for_device(self) -> bool {
        match self {
            Self::Files(_) | Self::SizeClasses | Self::Bitmap | Self::Slots(SlotSchedule::Through) => true,
            Self::Slots(
                SlotSchedule::Asynchronous
                | SlotSchedule::Pages
                | SlotSchedule::PagesAndSortedReads
                | SlotSchedule::SitePagesAndSortedReads,
            ) => false,
        }
    }
}

impl LogRow {
    /// Returns whether entries that were requested together are stored and read together.
    pub(crate) const fn is_grouped(self) -> bool {
        match self {
            Self::Packed(_) | Self::Located(LocatedRow::Grouped | LocatedRow::Recent) => true,
            Self::Located(LocatedRow::Plain) => false,
        }
    }
}
