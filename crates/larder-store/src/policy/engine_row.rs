//! The settings that the engines can run, for each engine, and nothing else.
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
/// A map of all entries does not go with segments, nor batches of sorted reads with a file per entry; neither compiles:
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
    /// Clusters that are written, read and evicted whole.
    Clusters,
    /// A small log in front of sets.
    Tiny,
}

/// Rows of the segmented log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRow {
    /// Packed slots of all entries; what is worth it is written again when its segment is reclaimed.
    Packed(LogEviction),
    /// HashCache's sets with positions; the oldest segment is overwritten.
    Located(LocatedRow),
}

/// The choice of entries that are rewritten when a segment is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEviction {
    /// Entries that were hit, once for each hit, most hit for their length first. What comes in is chosen as well.
    Worth,
    /// Entries that were hit, once for each hit.
    Clock,
}

/// HashCache's rows on a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocatedRow {
    /// All positions in memory.
    Plain,
    /// The same, and what was asked for together lies and is read together.
    Grouped,
    /// Groups too, and the positions of the entries used last; the others' are in a file.
    Recent,
}

/// Rows with a map of all entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedRow {
    /// A file per entry.
    Files(FileNaming),
    /// A file of slots per length, and a file each for long entries.
    SizeClasses,
    /// One file of slots.
    Slots(SlotSchedule),
    /// One file of blocks in a bitmap of several levels, with eviction ahead of need.
    Bitmap,
}

/// In which directory the file of an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileNaming {
    /// The same for all.
    OneDirectory,
    /// One of 16 x 256, see `squid_directory_files`.
    RoundRobin,
    /// One for each site.
    BySite,
}

/// When the rows with one file of slots write and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSchedule {
    /// Each entry on its own; its commit waits for the device.
    Through,
    /// Each entry on its own, many in flight.
    Asynchronous,
    /// Contiguous writes gather in a page.
    Pages,
    /// The same, and reads go in sorted batches.
    PagesAndSortedReads,
    /// The same, and the entries of a site gather before they are written.
    SitePagesAndSortedReads,
}

/// Rows with a table on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableRow {
    /// A bin for each key.
    Bins,
    /// A set of bins for each key, of which memory knows nothing.
    Sets,
    /// The same, with tags and ranks of all sets in memory.
    TaggedSets,
    /// The same, with those of the sets used last.
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
            Self::Log(LogRow::Located(LocatedRow::Grouped)) => WriteAxis::UnitsByGroup,
            Self::Log(LogRow::Packed(_) | LogRow::Located(LocatedRow::Plain | LocatedRow::Recent)) => WriteAxis::Units,
            Self::Mapped(MappedRow::Slots(schedule)) => match schedule {
                SlotSchedule::Through => WriteAxis::Through,
                SlotSchedule::Asynchronous => WriteAxis::Asynchronous,
                SlotSchedule::Pages | SlotSchedule::PagesAndSortedReads => WriteAxis::Pages,
                SlotSchedule::SitePagesAndSortedReads => WriteAxis::SitePages,
            },
            Self::Mapped(MappedRow::Files(_) | MappedRow::SizeClasses | MappedRow::Bitmap) | Self::Table(_) => {
                WriteAxis::Through
            }
            Self::Clusters => WriteAxis::Clusters,
            Self::Tiny => WriteAxis::PacksThenSets,
        }
    }

    pub(super) const fn reads(self) -> ReadAxis {
        match self {
            Self::Log(LogRow::Located(LocatedRow::Grouped | LocatedRow::Recent)) => ReadAxis::Groups,
            Self::Mapped(MappedRow::Slots(schedule)) => match schedule {
                SlotSchedule::Through | SlotSchedule::Pages => ReadAxis::Direct,
                SlotSchedule::Asynchronous => ReadAxis::Asynchronous,
                SlotSchedule::PagesAndSortedReads | SlotSchedule::SitePagesAndSortedReads => ReadAxis::SortedBatches,
            },
            Self::Table(TableRow::Sets) => ReadAxis::WholeSet,
            Self::Clusters => ReadAxis::Clusters,
            Self::Log(LogRow::Packed(_) | LogRow::Located(LocatedRow::Plain))
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

    /// Returns whether reads go in sorted batches.
    pub(crate) const fn sorts_reads(self) -> bool {
        match self {
            Self::Slots(SlotSchedule::PagesAndSortedReads | SlotSchedule::SitePagesAndSortedReads) => true,
            Self::Slots(SlotSchedule::Through | SlotSchedule::Asynchronous | SlotSchedule::Pages)
            | Self::Files(_)
            | Self::SizeClasses
            | Self::Bitmap => false,
        }
    }
}

impl LogRow {
    /// Returns whether what was asked for together lies and is read together.
    pub(crate) const fn is_grouped(self) -> bool {
        match self {
            Self::Located(LocatedRow::Grouped | LocatedRow::Recent) => true,
            Self::Located(LocatedRow::Plain) | Self::Packed(_) => false,
        }
    }
}
