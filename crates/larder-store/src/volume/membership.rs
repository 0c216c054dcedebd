//! Which volumes made up a store when it was last used, so that one that was away is noticed.
//!
//! Owns: comparing and renewing the membership in the superblocks. Does not: choose volumes for keys. Invariant: a
//! volume that was absent from a use of the store is emptied (by an invalidation) before any of its entries is
//! believed: meanwhile others may have been told what it was not. A volume that joins empties no other. Cost: two
//! small writes per volume when the set of volumes changes, none otherwise.

use super::{Volume, superblocks};
use crate::{
    Error, ErrorKind, Result,
    format::{VolumeId, superblock::Membership},
};
use siphasher::sip::SipHasher13;
use std::{hash::Hasher, io};

/// Compares what the superblocks say, empties volumes that were away, and notes the present set.
///
/// # Errors
/// `Unavailable`: a superblock cannot be written.
pub(crate) fn reconcile(volumes: &[&Volume]) -> Result<()> {
    let memberships: Vec<Membership> = volumes.iter().map(|volume| volume.superblock().membership).collect();
    let newest = memberships.iter().copied().max().unwrap_or_default();
    let set = set_of(volumes.iter().map(|volume| volume.id));
    let was_always_alone = volumes.len() == 1 && newest == Membership::default();
    let is_as_it_was = newest.set == set && memberships.iter().all(|membership| *membership == newest);
    if was_always_alone || is_as_it_was {
        return Ok(());
    }
    let present = next(newest, set)?;
    for (volume, membership) in volumes.iter().zip(&memberships) {
        let was_away = *membership != newest;
        if was_away && volume.superblock().generation > 1 {
            tracing::warn!(volume = %volume.options.path.display(), "a volume was away meanwhile and is emptied");
        }
        let changed = superblocks::change_blocking(volume, |superblock| {
            superblock.membership = present;
            if was_away {
                superblock.epochs.invalidate_all();
            }
        });
        changed.map_err(|source| {
            let place = format!("cannot write the superblock of {}", volume.options.path.display());
            Error::io(ErrorKind::Unavailable, place, source)
        })?;
    }
    Ok(())
}

/// Notes on all volumes but `lost` that it is out, and empties it itself if it still can be written. Whether any
/// of this is durable. Blocks.
pub(crate) fn record_outage(volumes: &[&Volume], lost: VolumeId) -> bool {
    let newest = volumes.iter().map(|volume| volume.superblock().membership).max().unwrap_or_default();
    let rest = || volumes.iter().filter(|volume| volume.id != lost && !volume.health.is_out());
    let Ok(present) = next(newest, set_of(rest().map(|volume| volume.id))) else { return false };
    let mut is_recorded = false;
    for volume in rest() {
        match superblocks::change_blocking(volume, |superblock| superblock.membership = present) {
            Ok(()) => is_recorded = true,
            Err(error) => tracing::error!(%error, "cannot note on a volume that another is out"),
        }
    }
    let emptied = volumes
        .iter()
        .filter(|volume| volume.id == lost)
        .all(|volume| superblocks::change_blocking(volume, |superblock| superblock.epochs.invalidate_all()).is_ok());
    is_recorded || emptied
}

/// A membership after `newest`. The random number tells two successors of one membership apart.
fn next(newest: Membership, set: u64) -> Result<Membership> {
    let nonce = getrandom::u64().map_err(|error| {
        Error::io(ErrorKind::Unavailable, "cannot draw random bytes", io::Error::other(error.to_string()))
    })?;
    Ok(Membership { generation: newest.generation + 1, nonce, set })
}

/// Names a set of volumes, whatever their order.
fn set_of(ids: impl Iterator<Item = VolumeId>) -> u64 {
    let mut ids: Vec<[u8; 16]> = ids.map(|id| id.0).collect();
    ids.sort_unstable();
    let mut hasher = SipHasher13::new();
    ids.iter().for_each(|id| hasher.write(id));
    hasher.finish()
}
