//! Every entry of a closed volume with a map, verified: what `store check` does.
//!
//! Owns: going from the snapshot to the records. Does not: look for entries that no snapshot lists: after a crash these
//! rows believe none. Invariant: a flipped bit in a listed record, in a page of the snapshot or in its heads is found.
//! Cost: a read per entry.

use crate::{
    format::snapshot::{HEADER_COUNT, Header, Listing, PAGE_LISTING_COUNT, decode_page, listings_in},
    store::{
        keeper::block_on,
        survey::{Met, verify},
        volume::Volume,
    },
    units::{BLOCK_BYTES, SECTOR_BYTES},
};

/// Walks over the snapshot and the records it lists.
pub(in crate::store) fn walk(volume: &Volume, meet: &mut dyn FnMut(Met)) {
    let area = volume.shape.index_area();
    let mut newest: Option<Header> = None;
    for copy in 0..HEADER_COUNT {
        let offset_bytes = area.start + copy * BLOCK_BYTES;
        let block = block_on(volume.read(offset_bytes, BLOCK_BYTES)).unwrap_or_default();
        match Header::decode(volume.id, &block) {
            Some(header) if newest.is_none_or(|newest| header.generation > newest.generation) => newest = Some(header),
            Some(_) => {}
            // One that was never written.
            None if !block.is_empty() && block.iter().all(|byte| *byte == 0) => {}
            None => meet(Met::Damage { offset_bytes, what: "a head of the snapshot" }),
        }
    }
    let Some(header) = newest.filter(|header| header.whole) else { return };
    let listing_count = header.listing_count.min(listings_in(volume.shape.index_bytes));
    for number in 0..listing_count.div_ceil(PAGE_LISTING_COUNT) {
        let offset_bytes = area.start + (HEADER_COUNT + number) * BLOCK_BYTES;
        let page = block_on(volume.read(offset_bytes, BLOCK_BYTES)).unwrap_or_default();
        match decode_page(volume.id, header.generation, number as u32, &page) {
            Some(mut listings) => {
                listings.sort_by_key(|listing| listing.place);
                listings.iter().for_each(|listing| meet_listed(volume, listing, meet));
            }
            None => meet(Met::Damage { offset_bytes, what: "a page of the snapshot" }),
        }
    }
}

fn meet_listed(volume: &Volume, listing: &Listing, meet: &mut dyn FnMut(Met)) {
    let (offset_bytes, len_bytes) = (listing.place * SECTOR_BYTES, u64::from(listing.sectors) * SECTOR_BYTES);
    let area = volume.shape.data_area();
    let is_inside = area.contains(&offset_bytes) && offset_bytes + len_bytes <= area.end;
    let bytes =
        if is_inside { block_on(volume.read(offset_bytes, len_bytes)).unwrap_or_default() } else { Default::default() };
    meet(match verify(volume.id, &bytes) {
        Ok(decoded) if decoded.meta.sequence != listing.sequence || decoded.meta.hash.placing() != listing.placing => {
            Met::Damage { offset_bytes, what: "a record in the place of another" }
        }
        Ok(decoded) => Met::of(&decoded),
        Err(what) => Met::Damage { offset_bytes, what },
    });
    meet(Met::Passed(len_bytes));
}
