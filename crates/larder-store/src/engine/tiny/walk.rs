//! Verifies every pack of a `tiny` volume, for `store check`: the front, the sets, the long ring.
//!
//! Owns: finding packs without knowing their order. Which of several records of a key counts is decided elsewhere.
//! Invariant: a flipped bit in a pack's directory or in a record that it lists is found. Cost: reads everything once.

use super::layout::TinyPlan;
use crate::{
    device::block_on,
    engine::kit::walk::{WalkItem, walk_compact, walk_pack},
    units::{BLOCK_BYTES, SetNumber},
    volume::Volume,
};

/// Scans the front (the log before the sets), the long ring (the log of long entries) and the sets, as long as
/// `goes_on` returns `true`. Passes what it finds to `meet`.
pub(crate) fn walk(volume: &Volume, goes_on: &dyn Fn() -> bool, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let plan = TinyPlan::from_parameters(volume.shape.data_area().start, volume.shape.parameters);
    let Some(plan) = plan.filter(|plan| plan.long.end_bytes() <= volume.shape.data_area().end) else {
        return meet(WalkItem::Damage { offset_bytes: 0, what: "the superblock's layout" });
    };
    for ring in [&plan.front, &plan.long] {
        for segment in (0..ring.segment_count).take_while(|_| goes_on()) {
            walk_piece(volume, ring.segment_start_bytes(segment), ring.segment_bytes, meet);
        }
    }
    for set in (0..u64::from(plan.set_count)).map(SetNumber).take_while(|_| goes_on()) {
        walk_piece(volume, plan.set_start_bytes(set), plan.set_bytes, meet);
    }
}

/// Scans the packs of a segment, or the pack of a set. Passes what it finds to `meet`.
fn walk_piece(volume: &Volume, start_bytes: u64, len_bytes: u64, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let bytes = match block_on(volume.read(start_bytes, len_bytes)) {
        Ok(bytes) => bytes,
        Err(_) => return meet(WalkItem::Damage { offset_bytes: start_bytes, what: "packs cannot be read" }),
    };
    let mut offset = 0;
    while offset < len_bytes {
        let at = start_bytes + offset;
        let rest = &bytes[offset as usize..];
        let walked = walk_compact(volume.id, at, rest, meet).or_else(|| walk_pack(volume.id, at, rest, meet));
        offset += match walked {
            Some(pack_bytes) => pack_bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES),
            None => BLOCK_BYTES,
        };
    }
    meet(WalkItem::Passed(len_bytes));
}
