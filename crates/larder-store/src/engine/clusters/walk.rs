//! Verifies every cluster of a `ucfs` volume, for `store check`.
//!
//! It does not know which clusters count: clusters written before a crash are valid, even if the store no longer trusts
//! them. Invariant: a flipped bit in a cluster's directory or in a record that it lists is found. Cost: reads
//! everything once.

use super::area_of;
use crate::{
    device::block_on,
    engine::kit::walk::{WalkItem, walk_pack},
    format::pack,
    volume::Volume,
};

/// Scans all clusters, as long as `goes_on` returns `true`. Passes what it finds to `meet`.
pub(crate) fn walk(volume: &Volume, goes_on: &dyn Fn() -> bool, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let Some(area) = area_of(&volume.shape) else {
        return meet(WalkItem::Damage { offset_bytes: 0, what: "the superblock's layout" });
    };
    let mut cluster = 0;
    while cluster < area.count && goes_on() {
        let offset_bytes = area.offset_bytes(cluster);
        let left_bytes = u64::from(area.count - cluster) * area.cluster_bytes;
        let read = |len_bytes| block_on(volume.read(offset_bytes, len_bytes));
        let span = match read(area.cluster_bytes) {
            Ok(bytes) => {
                let header = pack::decode(volume.id, offset_bytes, &bytes).ok().map(|(header, _)| header);
                let len_bytes = header.map_or(area.cluster_bytes, |header| u64::from(header.len_bytes)).min(left_bytes);
                let long = if len_bytes > area.cluster_bytes { read(len_bytes).ok() } else { None };
                walk_pack(volume.id, offset_bytes, &long.unwrap_or(bytes), meet);
                len_bytes.div_ceil(area.cluster_bytes).max(1) as u32
            }
            Err(_) => {
                meet(WalkItem::Damage { offset_bytes, what: "a cluster cannot be read" });
                1
            }
        };
        meet(WalkItem::Passed(u64::from(span) * area.cluster_bytes));
        cluster += span;
    }
}
