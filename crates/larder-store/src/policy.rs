//! The policy table: every row is a composition of an index, a layout, a schedule and an eviction.
//!
//! Owns: the rows and the axes they are made of. The one table feeds configuration, `--help`, tests,
//! simulator and documents; a row that no engine can run does not compile, because each family's match
//! over the axes is exhaustive. Does not: run anything. Adding a row that recombines existing parts is
//! one entry in [`POLICIES`].

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
}

/// Where an entry's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutAxis {
    /// Segments written once from start to end, in a circle.
    Segments,
}

/// When bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteAxis {
    /// Gathered into units of up to 1 MiB.
    Units,
}

/// How bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAxis {
    /// Each entry on its own, at once.
    Direct,
}

/// Which entries go when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvictionAxis {
    /// The oldest segment; what of it was hit is written again, up to a quarter.
    Reinsertion,
}

/// Every row.
static POLICIES: [Policy; 1] = [Policy {
    name: "log",
    about: "segmented log with a packed index: one read a hit, none a miss, sequential writes",
    source: "STREAM-PACK (Markatos et al., USITS 1999) and HashCache-Log (NSDI 2009), with whole segments and hit bits",
    index: IndexAxis::Buckets,
    layout: LayoutAxis::Segments,
    writes: WriteAxis::Units,
    reads: ReadAxis::Direct,
    eviction: EvictionAxis::Reinsertion,
    code: 1,
}];

impl Policy {
    /// Every row, in the order of the table.
    pub fn all() -> &'static [Self] {
        &POLICIES
    }

    /// The row of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// The row used unless another is asked for: `log`.
    pub fn default_row() -> &'static Self {
        &POLICIES[0]
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
