//! Where bytes go on a volume: plain decisions over plain data, no I/O.

pub(crate) mod checkpoint;
pub(crate) mod classes;
pub(crate) mod clusters;
pub(crate) mod files;
pub(crate) mod levels;
pub(crate) mod log;
pub(crate) mod pack;
pub(crate) mod ring;
pub(crate) mod segments;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod tiny;
pub(crate) mod tiny_ring;

/// Why a record gets no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Not until transfers have completed, something was evicted, or earlier entries are loaded.
    Now,
    /// Not at all: it is longer than the layout takes.
    Ever,
    /// Not in this run: the layout has no number left for what it would have to begin.
    Spent,
}
