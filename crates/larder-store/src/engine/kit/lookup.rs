//! Looks up an entry that may move while it is being read.
//!
//! Owns: the number of attempts, and the counting. The engine makes each attempt. Cost: no I/O besides the attempts.

use crate::{
    Result,
    volume::{Volume, counters::add},
};
use std::future::Future;

/// The outcome of one attempt to find an entry.
pub(crate) enum LookStep<T> {
    Found(T),
    Nothing,
    /// The entry was moved or replaced while it was being read.
    Moved,
}

/// Returns the result of `look`, which is called again a few times while the entry moves. With `counts`, counts a
/// lookup and a hit.
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

/// An entry that moves more often than this during a lookup is a miss.
const MOVES_FOLLOWED_MAX: u32 = 4;
