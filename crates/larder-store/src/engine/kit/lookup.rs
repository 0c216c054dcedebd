//! Looks up an entry that may move while it is being read.
//!
//! Owns: the number of attempts, and the counting. The engine makes each attempt. Cost: no I/O besides the attempts.

use crate::{
    Result,
    volume::{Volume, counters::add},
};
use std::future::Future;

/// The result of one attempt to find an entry.
pub(crate) enum LookStep<T> {
    Found(T),
    Nothing,
    /// The entry was moved or replaced while it was being read. The attempt must be repeated.
    Moved,
}

/// Returns the result of `look`. Calls `look` again, up to a limit, if the entry was moved in the meantime. If `counts`
/// is set, adds the lookup to the counters of lookups and hits.
///
/// # Errors
/// The errors of `look`, and `Closed` if the store is closed.
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

/// Maximum number of attempts of a lookup. If the entry was moved during each of them, the lookup is a miss.
const MOVES_FOLLOWED_MAX: u32 = 4;
