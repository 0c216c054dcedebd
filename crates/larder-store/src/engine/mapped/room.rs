//! Assigns room to records and frees it: eviction, placing, and passing entries to the schedule.
//!
//! Invariant: room is freed once, and not before the last write to it has completed. Cost: a record evicts at most
//! [`EVICTED_FOR_RUN_MAX`] times its own length to get contiguous room. If there is still none, it is not stored.

use super::{
    action::MapTransfer,
    commit::PendingWrite,
    layout::{RecordPlace, RoomRemedy},
    map::{MapEntry, MapPlace, PLACE_BITS},
    schedule::packets::{PacketTransfer, PlacedWrite},
    state::{MappedState, WriteSchedule},
};
use crate::{engine::kit::room::NoRoom, hash::KeyHash, units::Site, volume::counters::add};
use std::{sync::Arc, time::Duration};

const EVICTED_FOR_RUN_MAX: u64 = 16;
/// If more than 1/`RESTING_SHARE` of the volume waits for the journal before it can be reused, the journal is written
/// at once.
const RESTING_SHARE: u64 = 32;
/// Maximum number of least recently used entries that a search for an entry of a given length examines.
const OLDEST_LOOKED_AT_MAX: usize = 1024;

impl MappedState {
    /// Evicts the least recently used entry. Returns the sectors that it took; `None` if there is no entry.
    pub(super) fn evict_oldest(&mut self) -> Option<u64> {
        let (key_hash, entry) = self.map.oldest()?;
        let count = self.map.entry_count();
        self.map.remove(key_hash);
        assert_eq!(self.map.entry_count() + 1, count, "the oldest entry is one of the map");
        self.detach(key_hash, &entry);
        add(&self.volume.counters.evicted, 1);
        Some(self.space.taken_by(entry.sectors.into()))
    }

    /// Evicts the least recently used entry whose space a record of `sectors` can use. Returns the sectors that it
    /// took; `None` if there is no such entry.
    fn evict_for(&mut self, sectors: u64) -> Option<u64> {
        match self.space.remedy() {
            RoomRemedy::AnyEntry => self.evict_oldest(),
            RoomRemedy::EntryOfLength => {
                let is_wanted = |entry: &MapEntry| self.space.is_of_class(entry.sectors.into(), sectors);
                let mut oldest = self.map.oldest_first().take(OLDEST_LOOKED_AT_MAX);
                let found = oldest.find(|(_, entry)| is_wanted(entry));
                drop(oldest);
                let (key_hash, entry) = found?;
                let removed = self.map.remove(key_hash);
                assert_eq!(removed, Some(entry), "the removed entry is the one that was found");
                self.detach(key_hash, &entry);
                add(&self.volume.counters.evicted, 1);
                Some(self.space.taken_by(entry.sectors.into()))
            }
            RoomRemedy::Nothing => None,
        }
    }

    /// Frees the space of an entry that was removed from the map. If the entry is still being written, its space is
    /// freed when the write is done.
    pub(super) fn detach(&mut self, key_hash: KeyHash, entry: &MapEntry) {
        let taken = self.space.taken_by(entry.sectors.into());
        let Some(dirty) = self.dirty.entry_mut(entry.sequence) else {
            self.note_gone(key_hash, entry);
            return self.release_room(entry.place, entry.sectors, entry.sequence);
        };
        if let (None, WriteSchedule::Packets { locality: Some(locality), .. }) = (dirty.place, &mut self.writes)
            && locality.drop_write(entry.sequence)
        {
            self.dirty.remove(entry.sequence);
            self.used_sectors -= taken;
            return;
        }
        assert!(!dirty.dropped, "an entry goes once");
        dirty.dropped = true;
        self.held_back_sectors += taken;
    }

    /// Frees the space of an entry that is neither in the map nor being written. If the entry is a file, its space is
    /// freed once the file is removed.
    pub(super) fn release_room(&mut self, place: MapPlace, sectors: u32, sequence: u32) {
        let sectors = u64::from(sectors);
        let taken = self.space.taken_by(sectors);
        match self.space.spot(place, sectors, sequence) {
            RecordPlace::File(file, _) if self.space.has_own_file(sectors) => {
                self.held_back_sectors += taken;
                self.effects.transfers.push(MapTransfer::RemoveFile { file, place, sectors });
                return;
            }
            RecordPlace::File(..) => self.space.free(place, sectors),
            RecordPlace::Volume(_) => self.rest(place, taken),
        }
        assert!(taken <= self.used_sectors, "only used room is freed");
        self.used_sectors -= taken;
    }

    /// Keeps a space from being reused until the journal no longer lists its entry. If much space waits in this way,
    /// writes the journal at once, one page after the other.
    fn rest(&mut self, place: MapPlace, taken: u64) {
        let journal = &mut self.checkpoint.journal;
        self.resting.add(place, taken, journal.noted());
        let is_much = self.resting.sectors() > self.space.capacity_sectors() / RESTING_SHARE;
        // A page for each removal would fill the ring.
        if is_much && journal.is_all_written_but_open() {
            journal.seal(self.space.pointer());
        }
    }

    /// Takes contiguous space for `sectors`, without evicting anything.
    fn take_free(&mut self, sectors: u64, site: Site) -> Option<MapPlace> {
        let journal = &self.checkpoint.journal;
        while let Some((place, sectors)) = self.resting.take_rested(|noted| journal.is_written_until(noted)) {
            self.space.free(place, sectors);
        }
        let place = self.space.take(sectors, site);
        assert!(place.is_none_or(|place| place.0 < 1 << PLACE_BITS), "the map has room for every place: {place:?}");
        place
    }

    /// Notes the outcome of removing a file. If the removal failed, the file's space stays used until the store starts
    /// empty.
    pub(super) fn file_removed(&mut self, place: MapPlace, sectors: u64, ok: bool) {
        let taken = self.space.taken_by(sectors);
        assert!(
            taken <= self.held_back_sectors && taken <= self.used_sectors,
            "a file's room is held back until it is gone"
        );
        self.held_back_sectors -= taken;
        if ok {
            self.space.free(place, sectors);
            self.used_sectors -= taken;
        } else {
            self.lost_sectors += taken;
        }
        self.wake_waiting();
    }

    /// Returns how many sectors may be evicted to get contiguous space for a record of `sectors`.
    pub(super) fn evictable_for(&self, sectors: u64) -> u64 {
        self.space.taken_by(sectors) * EVICTED_FOR_RUN_MAX
    }

    /// Takes contiguous space for a write. If there is none, and entries are evicted as time passes, evicts those that
    /// are due and tries again. Returns `None` if space becomes free as soon as the journal is written.
    pub(super) fn take_place_in_time(&mut self, write: &mut PendingWrite) -> Result<Option<MapPlace>, NoRoom> {
        let sectors = write.sectors.into();
        let site = write.site;
        assert!(sectors > 0, "a write has a length");
        match self.take_place(sectors, site, &mut write.evictable) {
            Err(NoRoom::Ever) if self.is_paced() && write.evictable > 0 => {
                write.evictable = 0;
                self.note_unplaced();
                self.evict_due(write.now);
                self.take_place(sectors, site, &mut write.evictable)
            }
            outcome => outcome,
        }
    }

    /// Takes contiguous space for a record of `sectors`. If the layout allows, evicts up to `evictable` sectors for it.
    /// Returns `None` if space becomes free as soon as the journal is written.
    fn take_place(&mut self, sectors: u64, site: Site, evictable: &mut u64) -> Result<Option<MapPlace>, NoRoom> {
        assert!(sectors > 0 && self.held_back_sectors <= self.used_sectors, "what is held back is used");
        let taken = self.space.taken_by(sectors);
        loop {
            let place = self.take_free(sectors, site);
            if place.is_some() {
                return Ok(place);
            }
            let is_enough = self.resting.sectors() >= taken || *evictable == 0;
            let Some(evicted) = (if is_enough { None } else { self.evict_for(sectors) }) else { break };
            *evictable = evictable.saturating_sub(evicted);
        }
        if self.resting.sectors() > 0 {
            return Ok(None);
        }
        if self.held_back_sectors == 0 {
            return Err(NoRoom::Ever);
        }
        self.send_page();
        Err(NoRoom::Now)
    }

    /// Passes an entry to the schedule of writes. The entry must already have a place.
    pub(super) fn send(&mut self, sequence: u32, now: Duration) {
        let entry = self.dirty.entry_mut(sequence).expect("what is sent is dirty");
        let place = entry.place.expect("what is sent has a place");
        assert!(entry.pieces_left == 0 && !entry.dropped, "an entry is sent once, while it is wanted");
        let buffer = Arc::clone(&entry.record);
        let offset_bytes = match self.space.spot(place, entry.sectors.into(), sequence) {
            RecordPlace::Volume(offset_bytes) => offset_bytes,
            RecordPlace::File(file, offset_bytes) => {
                entry.pieces_left = 1;
                self.effects.transfers.push(MapTransfer::WriteFile { file, offset_bytes, buffer, sequence });
                return;
            }
        };
        let mut packets = Vec::new();
        entry.pieces_left = match &mut self.writes {
            WriteSchedule::Packets { packetizer, .. } => {
                packetizer.add(PlacedWrite { sequence, offset_bytes }, buffer.as_slice(), now, &mut packets)
            }
            WriteSchedule::Through | WriteSchedule::Asynchronous => {
                packets.push(PacketTransfer { offset_bytes, buffer, writes: vec![sequence] });
                1
            }
        };
        self.effects.transfers.extend(packets.into_iter().map(MapTransfer::Write));
    }

    /// Takes space for entries that waited together in a locality buffer, next to each other if possible.
    pub(super) fn place_group(&mut self, group: &[u32], now: Duration) {
        let total = group.iter().map(|&sequence| self.taken_by_write(sequence)).sum();
        // Only policies whose room does not depend on the site have groups.
        assert!(total <= self.used_sectors, "the room of what waits is promised");
        let mut run = self.take_free(total, Site::default());
        for &sequence in group {
            let taken = self.taken_by_write(sequence);
            let mut evictable = self.evictable_for(taken);
            let place = run.or_else(|| self.take_place(taken, Site::default(), &mut evictable).ok().flatten());
            run = run.map(|run| MapPlace(run.0 + taken));
            if self.place_entry(sequence, place) {
                self.send(sequence, now);
            }
        }
    }

    /// Submits the write of the page that is being collected.
    pub(super) fn send_page(&mut self) {
        if let WriteSchedule::Packets { packetizer, .. } = &mut self.writes {
            self.effects.transfers.extend(packetizer.take().map(MapTransfer::Write));
            debug_assert!(packetizer.opened_at().is_none(), "no page is open once it was sent");
        }
    }

    fn taken_by_write(&mut self, sequence: u32) -> u64 {
        let sectors = self.dirty.entry_mut(sequence).map_or(0, |entry| entry.sectors);
        self.space.taken_by(sectors.into())
    }

    /// Takes space for an entry that waited in a locality buffer. Returns `false` if the entry is lost: there was no
    /// contiguous space, or it was evicted for another entry of its group.
    fn place_entry(&mut self, sequence: u32, place: Option<MapPlace>) -> bool {
        let entry = self.dirty.entry_mut(sequence).expect("an entry that waits in a buffer is dirty");
        let key_hash = entry.key_hash;
        let sectors = entry.sectors;
        let dropped = entry.dropped;
        if let (Some(place), false) = (place, dropped) {
            entry.place = Some(place);
            let is_placed = self.map.set_place(key_hash, sequence, place);
            assert!(is_placed, "an entry that was not dropped is in the map");
            return true;
        }
        let taken = self.space.taken_by(sectors.into());
        assert!(taken <= self.used_sectors, "the room of what waits is promised");
        self.dirty.remove(sequence);
        self.used_sectors -= taken;
        if let Some(place) = place {
            // Nothing was written there.
            self.space.free(place, sectors.into());
        }
        if dropped {
            self.held_back_sectors -= taken;
        } else {
            self.map.remove_write(key_hash, sequence);
            add(&self.volume.counters.rejected, 1);
        }
        false
    }
}
