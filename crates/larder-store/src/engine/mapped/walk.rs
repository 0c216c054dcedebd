//! Verifies every entry of a volume with a map, for `store check`.
//!
//! Owns: the path from snapshot and journal to the records. Entries listed in neither are not searched, because they
//! are not trusted. An entry is listed until its removal is in the journal, which a kill can prevent after its file was
//! given to another; such an entry is lost, not damaged. (On a device, its room rests until then: `resting`.)
//! Invariant: a flipped bit in a listed record, in a page of the snapshot or the journal, or in their headers is found.
//! Cost: one read per entry, and 40 bytes of memory per entry of a volume that was not closed.

use super::{
    layout::{RecordPlace, SpaceLayout, layout_of},
    map::MapPlace,
};
use crate::{
    MappedRow,
    device::block_on,
    engine::kit::{
        map_checkpoint::{MapCheckpointArea, read_journal},
        walk::{WalkItem, is_of_another, verify},
    },
    format::{
        journal::MapChange,
        snapshot::{HEADER_COUNT, PAGE_LISTING_COUNT, SnapshotEntry, SnapshotHeader, decode_page},
    },
    units::{BLOCK_BYTES, SECTOR_BYTES},
    volume::Volume,
};
use bytes::Bytes;
use std::{collections::HashMap, io::ErrorKind};

/// Scans the snapshot and the journal, and verifies the records that they list. Passes what it finds to `meet`.
pub(crate) fn walk(volume: &Volume, row: MappedRow, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let space = layout_of(volume, row);
    let Some(header) = newest_header(volume, meet) else { return };
    let mut listings = if header.whole { listed(volume, &header, meet) } else { recovered(volume, &header, meet) };
    listings.sort_by_key(|listing| listing.place);
    listings.iter().for_each(|listing| meet_listed(volume, &*space, listing, meet));
}

/// Returns how many entries a start would find.
pub(crate) fn listed_count(volume: &Volume) -> u64 {
    match newest_header(volume, &mut |_| {}) {
        None => 0,
        Some(header) if header.whole => header.listing_count,
        Some(header) => recovered(volume, &header, &mut |_| {}).len() as u64,
    }
}

/// Returns the entries in the snapshot that `header` names.
fn listed(volume: &Volume, header: &SnapshotHeader, meet: &mut dyn FnMut(WalkItem<'_>)) -> Vec<SnapshotEntry> {
    let area = MapCheckpointArea::of(&volume.shape);
    let (start_bytes, generation) = area.snapshot_of(header);
    let listing_count = header.listing_count.min(area.listings_max());
    let mut all = Vec::new();
    for number in 0..listing_count.div_ceil(PAGE_LISTING_COUNT) {
        let offset_bytes = start_bytes + number * BLOCK_BYTES;
        let page = block_on(volume.read(offset_bytes, BLOCK_BYTES)).unwrap_or_default();
        match decode_page(volume.id, generation, number as u32, &page) {
            Some(listings) => all.extend(listings),
            None => meet(WalkItem::Damage { offset_bytes, what: "a page of the snapshot" }),
        }
    }
    all
}

/// Returns the entries of a volume that was not closed: those of the snapshot, changed by the journal.
fn recovered(volume: &Volume, header: &SnapshotHeader, meet: &mut dyn FnMut(WalkItem<'_>)) -> Vec<SnapshotEntry> {
    let Some(recovery) = header.recovery else { return Vec::new() };
    let listings = listed(volume, header, meet);
    let mut map: HashMap<_, _> = listings.into_iter().map(|listing| (listing.key_hash, listing)).collect();
    let replayed = block_on(read_journal(volume, recovery, |MapChange { listing, is_gone }| {
        let is_there = map.get(&listing.key_hash).is_some_and(|found| found.sequence == listing.sequence);
        if !is_gone {
            map.insert(listing.key_hash, listing);
        } else if is_there {
            map.remove(&listing.key_hash);
        }
    }));
    if replayed.is_broken {
        let offset_bytes = volume.shape.index_area().end;
        meet(WalkItem::Damage { offset_bytes, what: "the journal that ends here" });
        return Vec::new();
    }
    map.into_values().collect()
}

fn newest_header(volume: &Volume, meet: &mut dyn FnMut(WalkItem<'_>)) -> Option<SnapshotHeader> {
    let mut newest: Option<SnapshotHeader> = None;
    for copy in 0..HEADER_COUNT {
        let offset_bytes = volume.shape.index_area().start + copy * BLOCK_BYTES;
        let block = block_on(volume.read(offset_bytes, BLOCK_BYTES)).unwrap_or_default();
        match SnapshotHeader::decode(volume.id, &block) {
            Some(header) if newest.as_ref().is_none_or(|newest| header.generation > newest.generation) => {
                newest = Some(header);
            }
            Some(_) => {}
            // A header that was never written.
            None if !block.is_empty() && block.iter().all(|byte| *byte == 0) => {}
            None => meet(WalkItem::Damage { offset_bytes, what: "a head of the snapshot" }),
        }
    }
    newest
}

fn meet_listed(volume: &Volume, space: &dyn SpaceLayout, listing: &SnapshotEntry, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let SnapshotEntry { key_hash, place, sectors, sequence, .. } = *listing;
    let spot = space.spot(MapPlace(place), sectors.into(), sequence);
    let len_bytes = u64::from(sectors) * SECTOR_BYTES;
    let (RecordPlace::Volume(offset_bytes) | RecordPlace::File(_, offset_bytes)) = spot;
    let bytes = match (spot, &volume.directory) {
        (RecordPlace::File(file, offset_bytes), Some(directory)) => {
            match block_on(directory.read(file, offset_bytes, len_bytes as usize)) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
                    return meet(WalkItem::Lost);
                }
                read => read.map(Bytes::from_owner).unwrap_or_default(),
            }
        }
        (RecordPlace::Volume(offset_bytes), _) if offset_bytes + len_bytes <= volume.shape.data_area().end => {
            block_on(volume.read(offset_bytes, len_bytes)).unwrap_or_default()
        }
        _ => Bytes::new(),
    };
    meet(match verify(volume.id, &bytes) {
        _ if is_of_another(&bytes, sequence) => WalkItem::Lost,
        Ok(decoded) if decoded.meta.sequence != sequence || decoded.meta.hash.key_hash() != key_hash => {
            WalkItem::Damage { offset_bytes, what: "a record in the place of another" }
        }
        Ok(decoded) => WalkItem::of(&decoded, &bytes),
        Err(what) => WalkItem::Damage { offset_bytes, what },
    });
    meet(WalkItem::Passed(len_bytes));
}
