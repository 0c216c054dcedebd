//! The words that describe rows: what is in memory, where bytes lie, when they travel, which entries go.
//!
//! Columns of the table for documents, costs and tests; [`super::EngineRow`] decides what runs, and says which words are a row's.

/// The memory that an index takes per entry.
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
    /// An entry table of 20 bytes an entry, a cluster table of 24 bytes a cluster.
    Objects,
    /// Per set of the index a tag, a rank and a generation for each way, and the entry's position in the log.
    SetPlaces,
    /// The same, with positions of the entries used last; the others' are in a file.
    RecentSetPlaces,
}

/// The place of an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutAxis {
    /// Segments written once from start to end, in a circle.
    Segments,
    /// A file per entry, all in one directory.
    OneDirectory,
    /// A file per entry, in 16 x 256 directories.
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
    /// Returns whether entries are kept in files of a directory, instead of in one file or on a device.
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

/// The way in which bytes are read.
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

/// The choice of entries to drop when there is no room.
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
    /// Drops from a set the entries believed to be used last; moves entries from the front into a set if they are worth
    /// it.
    RankInSet,
    /// The least recently used cluster, and all that is in it.
    ClusterLru,
    /// The oldest segment, unread; before that the entry of the index's set that was used least recently.
    OverwriteOrLeastRecent,
}
