//! The index of the log's rows: two-choice buckets, or HashCache's sets.
//!
//! Does not: anything of its own. Invariant: both answer alike but for what they forget when they are full.
//! An enum, so that the engine, its readers and its recovery are not generic over it (docs/rfcs). Cost: one match a call.

use super::{Index, Inserted, Loaded, Slot, sets::located::LocatedSets};
use crate::units::Sector;

/// The index of one volume of the log's rows.
pub(crate) enum LogIndex {
    Buckets(Index),
    Sets(LocatedSets),
}

/// Runs `$call` on whichever index it is.
macro_rules! each {
    ($choice:expr, $index:ident => $call:expr) => {
        match $choice {
            LogIndex::Buckets($index) => $call,
            LogIndex::Sets($index) => $call,
        }
    };
}

impl LogIndex {
    /// The index whose image checkpoints keep.
    ///
    /// # Panics
    /// With sets, which have no checkpoints.
    pub(crate) fn buckets(&self) -> &Index {
        match self {
            Self::Buckets(index) => index,
            Self::Sets(_) => panic!("only an index of buckets has checkpoints"),
        }
    }

    /// As [`Index::memory_bytes`].
    pub(crate) fn memory_bytes(&self) -> u64 {
        each!(self, index => index.memory_bytes())
    }

    /// As [`Index::entries_max`].
    pub(crate) fn entries_max(&self) -> u64 {
        each!(self, index => index.entries_max())
    }

    /// As [`Index::entries`].
    pub(crate) fn entries(&self) -> u64 {
        each!(self, index => index.entries())
    }

    /// As [`Index::find`].
    pub(crate) fn find(&self, placing: u64) -> Option<Slot> {
        each!(self, index => index.find(placing))
    }

    /// As [`Index::peek`].
    pub(crate) fn peek(&self, placing: u64) -> Option<Slot> {
        each!(self, index => index.peek(placing))
    }

    /// Whether there is an entry of `placing`'s address.
    pub(crate) fn knows(&self, placing: u64) -> bool {
        match self {
            Self::Buckets(index) => index.peek(placing).is_some(),
            Self::Sets(index) => index.knows(placing),
        }
    }

    /// As [`Index::insert`].
    pub(crate) fn insert(&self, placing: u64, slot: Slot) -> Inserted {
        each!(self, index => index.insert(placing, slot))
    }

    /// As [`Index::address`].
    pub(crate) fn address(&self, placing: u64) -> u64 {
        each!(self, index => index.address(placing))
    }

    /// As [`Index::remove`].
    pub(crate) fn remove(&self, placing: u64) -> Option<Slot> {
        each!(self, index => index.remove(placing))
    }

    /// As [`Index::remove_at`].
    pub(crate) fn remove_at(&self, placing: u64, position: Sector) -> bool {
        each!(self, index => index.remove_at(placing, position))
    }

    /// As [`LocatedSets::relocate`]; the log of buckets moves nothing.
    pub(crate) fn relocate(&self, placing: u64, from: Sector, to: Sector, sectors: u64) {
        if let Self::Sets(index) = self {
            index.relocate(placing, from, to, sectors);
        }
    }

    /// As [`Index::begin_loading`].
    pub(crate) fn begin_loading(&self) {
        each!(self, index => index.begin_loading());
    }

    /// As [`Index::end_loading`].
    pub(crate) fn end_loading(&self) {
        each!(self, index => index.end_loading());
    }

    /// What recovery learns, as this index takes it.
    pub(crate) fn loaded(&self, placing: u64, slot: Option<Slot>) -> Loaded {
        match self {
            Self::Buckets(index) => index.shape().loaded(placing, slot),
            Self::Sets(index) => index.loaded(placing, slot),
        }
    }

    /// As [`Index::load`].
    pub(crate) fn load(&self, news: &[Loaded]) {
        each!(self, index => index.load(news));
    }
}
