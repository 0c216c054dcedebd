//! The I/O that follows from a change of the state. It is submitted after the state's lock is released.
//!
//! Invariant: every action ends in one change of the state.

use super::{MappedEngine, map::MapPlace, schedule::packets::PacketTransfer, state::MappedState};
use crate::{
    device::{AlignedBuffer, FileName, FileWork},
    engine::kit::{effects::completion_for, map_checkpoint},
};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

/// An I/O operation that the state requests.
pub(super) enum MapTransfer {
    Write(PacketTransfer),
    WriteFile {
        file: FileName,
        offset_bytes: u64,
        buffer: Arc<AlignedBuffer>,
        sequence: u32,
    },
    /// Removes the file of a single record.
    RemoveFile {
        file: FileName,
        place: MapPlace,
        sectors: u64,
    },
}

impl MappedEngine {
    /// Changes the state by `change`. Then submits the I/O that the change requires.
    pub(super) fn update<T>(self: &Arc<Self>, change: impl FnOnce(&mut MappedState) -> T) -> T {
        let mut state = self.lock();
        let answer = change(&mut state);
        let effects = std::mem::take(&mut state.effects);
        let has_changes = state.checkpoint.journal.has_sealed();
        drop(state);
        effects.begin(|transfer| self.perform(transfer));
        if has_changes {
            map_checkpoint::send(self);
        }
        answer
    }

    fn perform(self: &Arc<Self>, action: MapTransfer) {
        match action {
            MapTransfer::Write(PacketTransfer { offset_bytes, buffer, writes }) => {
                let written = completion_for(self, move |engine, outcome| engine.packet_written(&writes, &outcome));
                self.volume.submit_write(offset_bytes, buffer, written);
            }
            MapTransfer::WriteFile { file, offset_bytes, buffer, sequence } => {
                let completion =
                    completion_for(self, move |engine, outcome| engine.packet_written(&[sequence], &outcome));
                self.volume.submit_file_work(FileWork::Write { file, offset_bytes, buffer, completion });
            }
            MapTransfer::RemoveFile { file, place, sectors } => {
                let completion =
                    completion_for(self, move |engine, outcome| engine.file_removed(place, sectors, &outcome));
                self.volume.submit_file_work(FileWork::Remove { file, completion });
            }
        }
    }

    fn packet_written(self: &Arc<Self>, writes: &[u32], outcome: &io::Result<()>) {
        self.volume.note_write(outcome);
        let done = self.update(|state| state.written(writes, outcome.is_ok()));
        for (completion, ok) in done {
            let failed = || io::Error::other("a transfer with a piece of the entry failed");
            completion.complete(if ok { Ok(()) } else { Err(failed()) });
        }
    }

    fn file_removed(self: &Arc<Self>, place: MapPlace, sectors: u64, outcome: &io::Result<()>) {
        // A kill may have come after the removal of a file and before the note of it in the journal.
        let is_gone = outcome.as_ref().err().is_none_or(|error| error.kind() == io::ErrorKind::NotFound);
        if let Err(error) = outcome
            && !is_gone
            && self.volume.counters.io_errors.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::error!("cannot remove a file of the store: {error}");
        }
        self.update(|state| state.file_removed(place, sectors, is_gone));
    }
}
