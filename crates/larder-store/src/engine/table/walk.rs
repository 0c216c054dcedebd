//! Verifies every bin of a disk table, with its remainder in the ring, for `store check`.
//!
//! Owns: the distinction between a damaged remainder and one that the ring has overwritten. After a kill, the position
//! of the ring in the session block can be behind the writes, and the last ones have no bin yet. A wrong remainder that
//! they may have overwritten belongs to an entry that the kill cut off. It does not need the memory of the sets.
//! Invariant: a flipped bit in a bin, in a remainder that counts or in the newer session block is found. Cost: one read
//! per set, one more per entry longer than its bin.

use super::{layout::TableLayout, layout_of, ring::RingState, session};
use crate::{
    device::block_on,
    engine::kit::walk::{WalkItem, verify},
    format::{
        bin::{BIN_HEADER_BYTES, BinHeader, is_blank},
        session::{RunSession, SESSION_AREA_BYTES},
    },
    units::{BLOCK_BYTES, SetNumber},
    volume::Volume,
};

/// Scans every set, as long as `goes_on` returns `true`. Passes what it finds to `meet`.
pub(crate) fn walk(volume: &Volume, goes_on: &dyn Fn() -> bool, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let Some(layout) = layout_of(&volume.shape) else {
        return meet(WalkItem::Damage { offset_bytes: 0, what: "the superblock's layout" });
    };
    let area_start = volume.shape.index_area().start;
    let area = block_on(volume.read(area_start, SESSION_AREA_BYTES)).unwrap_or_default();
    for (copy, block) in area.chunks(BLOCK_BYTES as usize).enumerate().take(2) {
        if RunSession::decode(volume.id, block).is_none() && block.iter().any(|byte| *byte != 0) {
            let offset_bytes = area_start + copy as u64 * BLOCK_BYTES;
            meet(WalkItem::Damage { offset_bytes, what: "a session block" });
        }
    }
    let next = RunSession::newest(volume.id, &area).unwrap_or_default().ring_next;
    let mut walk = TableWalk { volume, layout, ring: session::ring(&layout, next), next, wrong: Vec::new() };
    for set in (0..layout.set_count).map(SetNumber).take_while(|_| goes_on()) {
        let offset_bytes = layout.set_offset_bytes(set);
        match block_on(volume.read(offset_bytes, layout.set_bytes())) {
            Ok(bytes) => {
                for (way, bin) in bytes.chunks(layout.bin_bytes as usize).enumerate() {
                    walk.meet_bin(layout.bin_offset_bytes(set, way as u64), bin, meet);
                }
            }
            Err(_) => meet(WalkItem::Damage { offset_bytes, what: "a set cannot be read" }),
        }
        meet(WalkItem::Passed(layout.set_bytes()));
    }
    walk.meet_wrong(meet);
}

struct TableWalk<'a> {
    volume: &'a Volume,
    layout: TableLayout,
    ring: RingState,
    /// End of the newest remainder that was found in the ring, the circular log, or the position in the session block
    /// if that is later.
    next: u64,
    /// Entries that are longer than their bins, and whose remainders in the ring are not valid.
    wrong: Vec<WrongRemainder>,
}

/// An entry that is longer than its bin, and whose remainder in the ring, the circular log, is not valid.
struct WrongRemainder {
    offset_bytes: u64,
    rest_at: u64,
    what: &'static str,
}

impl TableWalk<'_> {
    fn meet_bin(&mut self, offset_bytes: u64, bin: &[u8], meet: &mut dyn FnMut(WalkItem<'_>)) {
        if is_blank(bin) {
            return;
        }
        let Some(header) = BinHeader::decode(self.volume.id, bin, offset_bytes) else {
            // Data from before the device was formatted does not count as damage. One flipped bit leaves three bytes of
            // the magic.
            let magic_bytes = bin.iter().zip(b"LDRb").filter(|(found, magic)| found == magic).count();
            if magic_bytes >= 3 {
                meet(WalkItem::Damage { offset_bytes, what: "the head of a bin" });
            }
            return;
        };
        if header.is_wiped() {
            return;
        }
        let len = u64::from(header.record_bytes);
        let first = self.layout.first_bytes();
        let mut record = bin[BIN_HEADER_BYTES..][..len.min(first) as usize].to_vec();
        if len > first {
            self.next = self.next.max(header.rest_at.saturating_add(len - first));
            // The ring has overwritten the remainder: the entry is gone, not damaged.
            let Some(rest_offset) = self.ring.offset_bytes(header.rest_at, len - first) else { return };
            match block_on(self.volume.read(rest_offset, len - first)) {
                Ok(rest) => record.extend_from_slice(&rest),
                Err(_) => return meet(WalkItem::Damage { offset_bytes: rest_offset, what: "the ring cannot be read" }),
            }
        }
        meet(match verify(self.volume.id, &record) {
            Ok(decoded) if decoded.meta.sequence != header.sequence as u32 || decoded.meta.hash != header.hash => {
                WalkItem::Damage { offset_bytes, what: "a record in the bin of another" }
            }
            Ok(decoded) => WalkItem::of(&decoded, &record),
            Err(what) if len > first => {
                return self.wrong.push(WrongRemainder { offset_bytes, rest_at: header.rest_at, what });
            }
            Err(what) => WalkItem::Damage { offset_bytes, what },
        });
    }

    /// Reports each remainder, the part of a record in the ring, that is not valid. Reports it as lost if writes after
    /// the ring's last saved position may have overwritten it before a kill, otherwise as damage.
    fn meet_wrong(&self, meet: &mut dyn FnMut(WalkItem<'_>)) {
        let margin = self.layout.ring_len_bytes / UNSURE_DIVISOR;
        for &WrongRemainder { offset_bytes, rest_at, what } in &self.wrong {
            let is_overwritten = rest_at.saturating_add(self.layout.ring_len_bytes) < self.next.saturating_add(margin)
                || rest_at.saturating_add(margin) >= self.ring.next() && self.ring.next() >= self.layout.ring_len_bytes;
            meet(if is_overwritten { WalkItem::Lost } else { WalkItem::Damage { offset_bytes, what } });
        }
    }
}

/// Up to 1/`UNSURE_DIVISOR` of the ring, the circular log, behind its saved position may have been overwritten before a
/// kill.
const UNSURE_DIVISOR: u64 = 8;
