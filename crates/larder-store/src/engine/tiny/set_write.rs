//! Writes a set's new content. It is valid in memory at once, and on the device as soon as it accepts the write.
//!
//! Owns: the write of a set, and the consequences of its outcome. The choice of entries is elsewhere. Invariants: a set
//! has at most one write in flight. Entries that supersede a set's old content leave the front only when the new
//! content is on the device. A set whose write failed is suspect until a later write succeeds. Cost: one write, at most
//! three.

use super::{
    TinyEngine, TinyState,
    contents::{self, SetItem},
    front::FrontSlot,
    moves::{OldSet, SetOutcome},
    set_in_flight::SetInFlight,
};
use crate::{
    device::{AlignedBuffer, Completion},
    engine::kit::effects::completion_for,
    units::SetNumber,
};
use std::{io, sync::Arc};

/// The write of a set, until it is done.
struct SetWriteState {
    set: SetNumber,
    buffer: Arc<AlignedBuffer>,
    /// The entries that leave the front, the log before the sets, when the write is done.
    leaving: Vec<FrontSlot>,
    attempts_left: u32,
    completion: Completion<()>,
}

/// Maximum number of attempts to write a set. If all of them fail, moving entries to the set is postponed.
const ATTEMPTS_MAX: u32 = 3;

impl TinyEngine {
    /// Replaces the content of a set, at once in memory and then on the device.
    pub(super) async fn replace_set(
        self: &Arc<Self>,
        old: &OldSet,
        content: &[SetItem],
        leaving: Vec<FrontSlot>,
    ) -> SetOutcome {
        let OldSet { set, version, count: before, .. } = *old;
        let offset_bytes = self.plan.set_start_bytes(set);
        let next_version = self.lock().sets.next_version(set);
        let buffer = contents::assemble(self.volume.id, offset_bytes, self.plan.set_bytes, next_version, content);
        let buffer = Arc::new(buffer);
        {
            let mut state = self.lock();
            let state = &mut *state;
            if state.sets.version(set) != version || state.set_writes.contains_key(&set) {
                return SetOutcome::Not;
            }
            state.sets.note(set, next_version, content.iter().map(|item| item.piece.hash().key_hash()));
            state.set_entries = (state.set_entries + content.len() as u64).saturating_sub(before);
            let other = state.set_writes.insert(set, SetInFlight::new(Arc::clone(&buffer)));
            assert!(other.is_none(), "a set has one write on its way");
        }
        let (completion, written) = Completion::pair();
        self.submit_set(SetWriteState { set, buffer, leaving, attempts_left: ATTEMPTS_MAX, completion });
        if written.await.is_ok() { SetOutcome::Written } else { SetOutcome::Failed }
    }

    fn submit_set(self: &Arc<Self>, mut writing: SetWriteState) {
        writing.attempts_left -= 1;
        let offset_bytes = self.plan.set_start_bytes(writing.set);
        let buffer = Arc::clone(&writing.buffer);
        let written = completion_for(self, move |engine, outcome| engine.set_written(writing, outcome));
        self.volume.submit_write(offset_bytes, buffer, written);
    }

    fn set_written(self: &Arc<Self>, writing: SetWriteState, outcome: io::Result<()>) {
        self.volume.note_write(&outcome);
        let mut state = self.lock();
        let is_believed = state.set_writes.get(&writing.set).is_some_and(|write| write.is_believed);
        if outcome.is_err() && is_believed && writing.attempts_left > 0 {
            drop(state);
            return self.submit_set(writing);
        }
        let is_sound = is_believed && outcome.is_ok();
        state.is_device_suspect &= outcome.is_err();
        state.end_set_write(&writing, is_sound);
        drop(state);
        if !is_sound {
            self.volume.wakeup.wake_if_idle();
        }
        let overtaken = || io::Error::other("the set was forgotten while it was written");
        writing.completion.complete(outcome.and_then(|()| is_believed.then_some(()).ok_or_else(overtaken)));
    }
}

impl TinyState {
    /// Ends the write of a set. `is_sound` says whether the volume has the same content as memory.
    fn end_set_write(&mut self, writing: &SetWriteState, is_sound: bool) {
        let ended = self.set_writes.remove(&writing.set);
        assert!(ended.is_some(), "a write ends once");
        if !is_sound {
            return self.forget_set(writing.set);
        }
        self.sets_unsynced = true;
        self.suspects.remove(writing.set);
        for slot in &writing.leaving {
            self.index.remove(slot.prefix, slot.granule);
        }
    }
}
