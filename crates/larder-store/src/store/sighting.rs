//! Where an entry was seen, so that it can be found out again and again, without I/O, that it is still there.
//!
//! Owns: what is remembered of one look. Does not: read; each engine does, as little as tells whose entry it is. Invariant:
//! what is in sight was found under exactly its key (rows that know all their entries: under its 64 bits of hash), and has
//! since been neither moved, replaced, removed nor reclaimed. It says nothing about damage: that shows when the entry is
//! read. Cost: 16 bytes, and one lookup in memory to ask again.

use crate::units::Sector;

/// Where an entry was seen, see [`crate::Store::sight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting(pub(crate) Sight);

/// What an engine remembers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A record of the log, in this use of its segment.
    At { position: Sector, sequence: u32 },
    /// Memory knows every entry by the whole of its hash.
    Known,
    /// Memory cannot tell: it has to be looked for each time.
    Passing,
}
