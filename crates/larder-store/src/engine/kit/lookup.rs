//! Looking for an entry that may move while it is being read.
//!
//! Owns: how often it is followed, and what of it is counted. Does not: know how an engine looks once. Cost: nothing of
//! its own.

use crate::{
    Result,
    volume::{Volume, counters::add},
};
use std::future::Future;

/// How one look for an entry ends.
pub(crate) enum LookStep<T> {
    Found(T),
    Nothing,
    /// What was found moved, or was replaced, while it was read.
    Moved,
}

/// Returns what `look` finds, which is asked again a few times while what it finds moves. `counts`: whether it is a lookup, and a hit.
///
/// # Errors
/// Those of `look`, and a closed store.
pub(crate) async fn follow<T, F>(volume: &Volume, counts: bool, mut look: impl FnMut() -> F) -> Result<Option<T>>
where
    F: Future<Output = Result<LookStep<T>>>,
{
    volume.check_open()?;
    add(&volume.counters.lookups, counts.into());
    for _ in 0..MOVES_FOLLOWED_MAX {
        match look().await? {
            LookStep::Found(found) => {
                add(&volume.counters.hits, counts.into());
                return Ok(Some(found));
            }
            LookStep::Nothing => return Ok(None),
            LookStep::Moved => {}
        }
    }
    Ok(None)
}

/// An entry that moves more often than this while it is looked for is a miss.
const MOVES_FOLLOWED_MAX: u32 = 4;
