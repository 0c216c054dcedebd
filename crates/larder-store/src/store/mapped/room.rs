//! How records get room and lose it: eviction, placing, and handing to the schedule.
//!
//! Invariant: room is given back once, and not before the last write to it has completed. Cost: a record
//! evicts at most [`EVICTED_FOR_RUN_MAX`] times its own length in search of room in one piece; if there is
//! still none, it is not stored.

use super::{
    commit::NoRoom,
    state::{State, Writes},
};
use crate::{index::map::Entry, schedule::packets::Packet, store::counters::add, units::SECTOR_BYTES};
use std::{sync::Arc, time::Duration};

const EVICTED_FOR_RUN_MAX: u64 = 16;

impl State {
    /// Drops the least recently used entry; the sectors it had.
    pub(super) fn evict_oldest(&mut self) -> Option<u64> {
        let (placing, entry) = self.map.oldest()?;
        self.map.remove(placing);
        self.let_go(&entry);
        add(&self.volume.counters.evicted, 1);
        Some(self.space.taken_by(entry.sectors.into()))
    }

    /// Lets go of an entry that is no longer in the map.
    pub(super) fn let_go(&mut self, entry: &Entry) {
        let taken = self.space.taken_by(entry.sectors.into());
        let Some(dirty) = self.dirty.entry_mut(entry.sequence) else {
            return self.give_back(entry.place, entry.sectors);
        };
        if let (None, Writes::Packets { locality: Some(locality), .. }) = (dirty.place, &mut self.writes)
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

    pub(super) fn give_back(&mut self, place: u64, sectors: u32) {
        let taken = self.space.taken_by(sectors.into());
        self.space.free(place, taken);
        self.used_sectors -= taken;
    }

    /// Takes room in one piece, by evicting if that is the layout's way.
    pub(super) fn take_place(&mut self, taken: u64, packets: &mut Vec<Packet>) -> Result<u64, NoRoom> {
        let mut evictable = taken * EVICTED_FOR_RUN_MAX;
        loop {
            if let Some(place) = self.space.take(taken) {
                return Ok(place);
            }
            let evicted = if self.space.makes_runs_by_evicting() && evictable > 0 { self.evict_oldest() } else { None };
            let Some(evicted) = evicted else {
                if self.held_back_sectors == 0 {
                    return Err(NoRoom::Ever);
                }
                self.send_page(packets);
                return Err(NoRoom::Now);
            };
            evictable = evictable.saturating_sub(evicted);
        }
    }

    /// Hands a placed entry to the schedule.
    pub(super) fn send(&mut self, sequence: u32, now: Duration, packets: &mut Vec<Packet>) {
        let entry = self.dirty.entry_mut(sequence).expect("what is sent is dirty");
        let place = entry.place.expect("what is sent has a place");
        let (offset_bytes, buffer) = (place * SECTOR_BYTES, Arc::clone(&entry.record));
        entry.pieces_left = match &mut self.writes {
            Writes::Packets { packetizer, .. } => {
                packetizer.add((sequence, offset_bytes), buffer.as_slice(), now, packets)
            }
            Writes::Through | Writes::Asynchronous => {
                packets.push(Packet { offset_bytes, buffer, writes: vec![sequence] });
                1
            }
        };
    }

    /// Places entries that waited together, side by side if there is a run for all of them.
    pub(super) fn place_group(&mut self, group: &[u32], now: Duration, packets: &mut Vec<Packet>) {
        let total = group.iter().map(|&sequence| self.taken_by_write(sequence)).sum();
        let mut run = self.space.take(total);
        for &sequence in group {
            let taken = self.taken_by_write(sequence);
            let place = run.or_else(|| self.take_place(taken, packets).ok());
            run = run.map(|run| run + taken);
            if self.settle(sequence, place) {
                self.send(sequence, now, packets);
            }
        }
    }

    /// Sends the packetizer's open page.
    pub(super) fn send_page(&mut self, packets: &mut Vec<Packet>) {
        if let Writes::Packets { packetizer, .. } = &mut self.writes {
            packets.extend(packetizer.take());
        }
    }

    fn taken_by_write(&mut self, sequence: u32) -> u64 {
        let sectors = self.dirty.entry_mut(sequence).map_or(0, |entry| entry.sectors);
        self.space.taken_by(sectors.into())
    }

    /// Gives an entry that waited its place. `false` if it is lost: there was no room in one piece, or it
    /// was evicted itself to make room for a neighbour.
    fn settle(&mut self, sequence: u32, place: Option<u64>) -> bool {
        let entry = self.dirty.entry_mut(sequence).expect("an entry that waits in a buffer is dirty");
        let (placing, sectors, dropped) = (entry.placing, entry.sectors, entry.dropped);
        if let (Some(place), false) = (place, dropped) {
            entry.place = Some(place);
            let settled = self.map.settle(placing, sequence, place);
            assert!(settled, "an entry that was not dropped is in the map");
            return true;
        }
        let taken = self.space.taken_by(sectors.into());
        self.dirty.remove(sequence);
        self.used_sectors -= taken;
        if let Some(place) = place {
            self.space.free(place, taken);
        }
        if dropped {
            self.held_back_sectors -= taken;
        } else {
            self.map.remove_write(placing, sequence);
            add(&self.volume.counters.rejected, 1);
        }
        false
    }
}
