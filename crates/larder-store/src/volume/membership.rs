//! The last run of a store of several volumes, and the set of volumes in it. With it, a start notices a volume that was
//! absent from that run, or that was restored from an older copy.
//!
//! Owns: comparing and renewing the membership in the superblocks. The volume of a key is chosen elsewhere. Invariant:
//! a volume that was absent at the end of the store's last use is emptied (by an invalidation) before any of its
//! entries is trusted, because removals may have reached only the other volumes. A volume that joins empties no other.
//! A start that is cut off empties none: each volume prepares the new membership before any of them takes it.
//!
//! Superblocks of older programs have no prepared membership, and the same membership for many runs. They are believed
//! once. A volume that is alone has nothing to be compared with.
//!
//! Cost: four small writes per volume at each start, and two when the set of volumes changes.

use super::{
    Volume, superblocks,
    waiters::{TaskWaiters, wait_for},
};
use crate::sync::IgnorePoison;
use crate::{
    Error, ErrorKind, Result,
    device::block_on,
    format::{
        VolumeId,
        superblock::{Superblock, VolumeMembership},
    },
};
use futures_util::future::join_all;
use siphasher::sip::SipHasher13;
use std::{
    hash::Hasher,
    io, mem,
    sync::{Mutex, MutexGuard},
};

/// Lets one task at a time change the membership (which volumes of the store are in use), and do the I/O for the
/// change.
#[derive(Default)]
pub(crate) struct MembershipGate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    is_taken: bool,
    waiting: TaskWaiters,
}

/// The right to change the membership (which volumes of the store are in use). Dropping it lets the next task in.
pub(crate) struct MembershipPass<'a>(&'a MembershipGate);

impl MembershipGate {
    /// Waits until no other task is changing the membership, and returns the right to change it.
    pub(crate) async fn pass(&self) -> MembershipPass<'_> {
        let take = |state: &mut GateState| {
            let is_free = !mem::replace(&mut state.is_taken, true);
            is_free.then(|| MembershipPass(self))
        };
        wait_for(|| self.lock(), take).await
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().ignore_poison()
    }
}

impl AsMut<TaskWaiters> for GateState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

impl Drop for MembershipPass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_taken = false;
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }
}

/// Compares the memberships in the superblocks of a store's volumes. Empties volumes that were absent from the last
/// run, and records the present run on all.
///
/// # Errors
/// `Invalid` if two of the volumes are copies of the same volume. `Unavailable` if a superblock cannot be written.
pub(crate) fn reconcile(volumes: &[&Volume]) -> Result<()> {
    check_copies(volumes)?;
    let newest = newest(volumes);
    let set = set_of(volumes.iter().map(|volume| volume.id));
    let is_lone_as_before = volumes.len() == 1 && (newest == VolumeMembership::default() || newest.set == set);
    if is_lone_as_before {
        return Ok(());
    }
    let present = next(newest, set)?;
    let (there, away): (Vec<&Volume>, Vec<&Volume>) = volumes.iter().partition(|volume| {
        let superblock = volume.superblock();
        superblock.membership == newest || superblock.prepared == newest
    });
    change_all(&there, move |superblock| superblock.prepared = present)?;
    for volume in &away {
        if volume.superblock().generation > 1 {
            let path = volume.options.path.display();
            tracing::warn!(volume = %path, "a volume was absent while others changed, or is an older copy: it is emptied");
        }
    }
    let join = move |superblock: &mut Superblock| {
        superblock.membership = present;
        superblock.epochs.invalidate_all();
    };
    change_all(&away, join)?;
    change_all(&there, move |superblock| superblock.membership = present)
}

/// Checks that no two volumes have the same identity.
fn check_copies(volumes: &[&Volume]) -> Result<()> {
    for (index, volume) in volumes.iter().enumerate() {
        if let Some(copy) = volumes[..index].iter().find(|other| other.id == volume.id) {
            let place = format!(
                "{} and {} are copies of one volume; use only one of them",
                copy.options.path.display(),
                volume.options.path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, place));
        }
    }
    Ok(())
}

/// Changes the superblocks of all `volumes` in parallel. Blocks until all are written.
fn change_all(volumes: &[&Volume], alter: impl Fn(&mut Superblock) + Clone + Send + 'static) -> Result<()> {
    let changes: Vec<_> = volumes.iter().map(|volume| superblocks::change(volume, alter.clone())).collect();
    for (volume, written) in volumes.iter().zip(block_on(join_all(changes))) {
        written.map_err(|source| cannot_write(volume, source))?;
    }
    Ok(())
}

/// Records on the volumes in use that `lost` is excluded. The next start then empties `lost`. Returns whether the
/// record is durable on at least one volume.
pub(crate) async fn record_outage(volumes: &[&Volume], lost: &Volume) -> bool {
    let in_use = || in_use_but(volumes, lost);
    let Ok(present) = next(newest(volumes), set_of(in_use().map(|volume| volume.id))) else { return false };
    let mut is_recorded = false;
    for volume in in_use() {
        match superblocks::change(volume, move |superblock| superblock.membership = present).await {
            Ok(()) => is_recorded = true,
            Err(error) => tracing::error!(%error, "cannot record on a volume that another one failed"),
        }
    }
    is_recorded
}

/// Records that the excluded volume `back` is in use again, first on the other volumes and then on `back`. If the
/// process is killed in between, the next start empties only `back`. Also gives `back` the label of the other volumes.
///
/// # Errors
/// `Unavailable` if a superblock cannot be written.
pub(crate) async fn rejoin(volumes: &[&Volume], back: &Volume) -> Result<()> {
    let in_use = || in_use_but(volumes, back);
    let present = next(newest(volumes), set_of(in_use().map(|volume| volume.id).chain([back.id])))?;
    let label = in_use().next().map(|volume| volume.superblock().label);
    for volume in in_use().chain([back]) {
        let changed = superblocks::change(volume, move |superblock| {
            superblock.membership = present;
            superblock.label = label.unwrap_or(superblock.label);
        });
        changed.await.map_err(|source| cannot_write(volume, source))?;
    }
    Ok(())
}

fn in_use_but<'a>(volumes: &'a [&Volume], other: &'a Volume) -> impl Iterator<Item = &'a Volume> {
    volumes.iter().copied().filter(|volume| volume.id != other.id && !volume.health.is_out())
}

fn newest(volumes: &[&Volume]) -> VolumeMembership {
    volumes.iter().map(|volume| volume.superblock().membership).max().unwrap_or_default()
}

fn cannot_write(volume: &Volume, source: io::Error) -> Error {
    let place = format!("cannot write the superblock of {}", volume.options.path.display());
    Error::io(ErrorKind::Unavailable, place, source)
}

/// Creates the membership that follows `newest`. It has a random number, because two copies of a volume may go on
/// separately from the same membership.
fn next(newest: VolumeMembership, set: u64) -> Result<VolumeMembership> {
    let nonce = getrandom::u64().map_err(|error| {
        Error::io(
            ErrorKind::Unavailable,
            "cannot get random bytes from the system",
            io::Error::other(error.to_string()),
        )
    })?;
    Ok(VolumeMembership { generation: newest.generation + 1, nonce, set })
}

/// Returns a hash of a set of volumes, the same for every order of `ids`.
fn set_of(ids: impl Iterator<Item = VolumeId>) -> u64 {
    let mut ids: Vec<[u8; 16]> = ids.map(|id| id.0).collect();
    ids.sort_unstable();
    let mut hasher = SipHasher13::new();
    ids.iter().for_each(|id| hasher.write(id));
    hasher.finish()
}
