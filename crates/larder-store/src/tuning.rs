//! The constants of the rows, each with its meaning and its source.
//!
//! Owns: [`Tuning`]. Does not: check them (each family refuses what it cannot work with when a store is
//! opened). Constants that fix where bytes lie count only for a new volume; an existing one keeps its own.

/// Constants of the policy rows. The defaults are the papers' where a paper names them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tuning {
    /// `log`: whether entries that were hit are written again when their segment is reclaimed, up to a
    /// quarter of the segment. On: more hits, up to a third more bytes written. Default on.
    pub reinsertion: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { reinsertion: true }
    }
}
