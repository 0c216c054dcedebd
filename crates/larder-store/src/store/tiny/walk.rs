//! Every pack of a volume of `tiny`, verified: the front, the sets, the long ring. What `store check` does.
//!
//! Owns: finding packs without knowing the order of time. Does not: judge which of several records of a key counts.
//! Invariant: a flipped bit in a pack's directory or in a record that it lists is found. Cost: one read of everything.

use crate::{
    format::{
        VolumeId,
        pack::{self, PackedKind, Stub},
    },
    layout::tiny::TinyPlan,
    store::{
        keeper::block_on,
        survey::{Met, verify},
        volume::Volume,
    },
    units::BLOCK_BYTES,
};

/// Walks over both rings and the sets.
pub(in crate::store) fn walk(volume: &Volume, meet: &mut dyn FnMut(Met)) {
    let plan = TinyPlan::from_parameters(volume.shape.data_area().start, volume.shape.parameters);
    let Some(plan) = plan.filter(|plan| plan.long.end_bytes() <= volume.shape.data_area().end) else {
        return meet(Met::Damage { offset_bytes: 0, what: "the superblock's layout" });
    };
    for ring in [&plan.front, &plan.long] {
        for segment in 0..ring.segment_count {
            walk_piece(volume, ring.segment_start_bytes(segment), ring.segment_bytes, meet);
        }
    }
    for set in 0..plan.set_count {
        walk_piece(volume, plan.set_start_bytes(set), plan.set_bytes, meet);
    }
}

/// The packs of a segment, or the one of a set.
fn walk_piece(volume: &Volume, start_bytes: u64, len_bytes: u64, meet: &mut dyn FnMut(Met)) {
    let bytes = match block_on(volume.read(start_bytes, len_bytes)) {
        Ok(bytes) => bytes,
        Err(_) => return meet(Met::Damage { offset_bytes: start_bytes, what: "packs cannot be read" }),
    };
    let mut offset = 0;
    while offset < len_bytes {
        let at = start_bytes + offset;
        offset += match walk_pack(volume.id, at, &bytes[offset as usize..], meet) {
            Some(pack_bytes) => pack_bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES),
            None => BLOCK_BYTES,
        };
    }
    meet(Met::Passed(len_bytes));
}

/// The pack at `offset_bytes` of the volume; its length, if there is one.
pub(in crate::store) fn walk_pack(
    volume: VolumeId,
    offset_bytes: u64,
    bytes: &[u8],
    meet: &mut dyn FnMut(Met),
) -> Option<u64> {
    let Ok((header, listings)) = pack::decode(volume, offset_bytes, bytes) else {
        // One flipped bit leaves the magic or the place that the pack says it is for.
        let says_its_place = bytes.get(8..16) == Some(&offset_bytes.to_le_bytes()[..]);
        if bytes.starts_with(b"LDRp") || says_its_place {
            meet(Met::Damage { offset_bytes, what: "the directory of a pack" });
        }
        return None;
    };
    for listing in &listings {
        let at = offset_bytes + u64::from(listing.at);
        let record = bytes.get(listing.at as usize..(listing.at + listing.len) as usize).unwrap_or_default();
        if listing.kind != PackedKind::Entry {
            match Stub::decode(volume, record).filter(|stub| stub.hash.placing() == listing.placing) {
                None => meet(Met::Damage { offset_bytes: at, what: "a stub" }),
                Some(_) if listing.kind == PackedKind::Tombstone => meet(Met::Removal),
                Some(_) => {}
            }
            continue;
        }
        meet(match verify(volume, record) {
            Ok(decoded)
                if decoded.meta.sequence != listing.sequence || decoded.meta.hash.placing() != listing.placing =>
            {
                Met::Damage { offset_bytes: at, what: "a record in the place of another" }
            }
            Ok(decoded) => Met::of(&decoded),
            Err(what) => Met::Damage { offset_bytes: at, what },
        });
    }
    Some(u64::from(header.len_bytes))
}
