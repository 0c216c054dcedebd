//! Every entry of a closed volume with a map, verified: what `store check` does.
//!
//! Owns: going from the snapshot to the records. Does not: look for entries that no snapshot lists: after a crash these
//! rows believe none. Invariant: a flipped bit in a listed record, in a page of the snapshot or in its heads is found.
//! Cost: a read per entry.

use super::layout::{Space, Spot};
use crate::{
    MappedRow,
    device::block_on,
    engine::kit::walk::{Met, verify},
    format::snapshot::{HEADER_COUNT, Header, Listing, PAGE_LISTING_COUNT, decode_page, listings_in},
    units::{BLOCK_BYTES, SECTOR_BYTES},
    volume::Volume,
};
use bytes::Bytes;

/// Walks over the snapshot and the records it lists.
pub(crate) fn walk(volume: &Volume, row: MappedRow, meet: &mut dyn FnMut(Met<'_>)) {
    let area_start = volume.shape.index_area().start;
    let space = Space::new(volume, row);
    let Some(header) = newest_header(volume, meet).filter(|header| header.whole) else { return };
    let listing_count = header.listing_count.min(listings_in(volume.shape.index_bytes));
    for number in 0..listing_count.div_ceil(PAGE_LISTING_COUNT) {
        let offset_bytes = area_start + (HEADER_COUNT + number) * BLOCK_BYTES;
        let page = block_on(volume.read(offset_bytes, BLOCK_BYTES)).unwrap_or_default();
        match decode_page(volume.id, header.generation, number as u32, &page) {
            Some(mut listings) => {
                listings.sort_by_key(|listing| listing.place);
                listings.iter().for_each(|listing| meet_listed(volume, &space, listing, meet));
            }
            None => meet(Met::Damage { offset_bytes, what: "a page of the snapshot" }),
        }
    }
}

/// How many entries the snapshot lists; none after a crash.
pub(crate) fn listed_count(volume: &Volume) -> u64 {
    newest_header(volume, &mut |_| {}).filter(|header| header.whole).map_or(0, |header| header.listing_count)
}

fn newest_header(volume: &Volume, meet: &mut dyn FnMut(Met<'_>)) -> Option<Header> {
    let mut newest: Option<Header> = None;
    for copy in 0..HEADER_COUNT {
        let offset_bytes = volume.shape.index_area().start + copy * BLOCK_BYTES;
        let block = block_on(volume.read(offset_bytes, BLOCK_BYTES)).unwrap_or_default();
        match Header::decode(volume.id, &block) {
            Some(header) if newest.as_ref().is_none_or(|newest| header.generation > newest.generation) => {
                newest = Some(header);
            }
            Some(_) => {}
            // One that was never written.
            None if !block.is_empty() && block.iter().all(|byte| *byte == 0) => {}
            None => meet(Met::Damage { offset_bytes, what: "a head of the snapshot" }),
        }
    }
    newest
}

fn meet_listed(volume: &Volume, space: &Space, listing: &Listing, meet: &mut dyn FnMut(Met<'_>)) {
    let Listing { key_hash, place, sectors, sequence, .. } = *listing;
    let spot = space.spot(place, sectors.into(), sequence);
    let len_bytes = u64::from(sectors) * SECTOR_BYTES;
    let (Spot::Volume(offset_bytes) | Spot::File(_, offset_bytes)) = spot;
    let bytes = match (spot, &volume.directory) {
        (Spot::File(file, offset_bytes), Some(directory)) => {
            let read = block_on(directory.read(file, offset_bytes, len_bytes as usize));
            read.map(Bytes::from_owner).unwrap_or_default()
        }
        (Spot::Volume(offset_bytes), _) if offset_bytes + len_bytes <= volume.shape.data_area().end => {
            block_on(volume.read(offset_bytes, len_bytes)).unwrap_or_default()
        }
        _ => Bytes::new(),
    };
    meet(match verify(volume.id, &bytes) {
        Ok(decoded) if decoded.meta.sequence != sequence || decoded.meta.hash.key_hash() != key_hash => {
            Met::Damage { offset_bytes, what: "a record in the place of another" }
        }
        Ok(decoded) => Met::of(&decoded, &bytes),
        Err(what) => Met::Damage { offset_bytes, what },
    });
    meet(Met::Passed(len_bytes));
}
