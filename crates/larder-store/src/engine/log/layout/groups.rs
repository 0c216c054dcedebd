//! Sorts a unit's records so that those of a group are adjacent and one read fetches them all.
//!
//! Pure decision, made when the unit is sealed. Until then its records are in the order of their commits. Records of
//! groups that still grow are sorted to the end, from where [`carry`](super::carry) takes them to the next unit.
//! Invariant: two records of one key keep their order (they are left out of their groups), so their places still show
//! which is newer. Cost: a copy of the unit in memory if anything moves. Source: HashCache (NSDI 2009), Log's grouped
//! prefetch: entries requested together are written together.

use crate::{
    format::trailer::TrailerRecord,
    hash::KeyHash,
    units::{SECTOR_BYTES, Sector},
};
use std::collections::HashMap;

/// A record that was moved, or the first of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedRecord {
    pub(crate) key_hash: KeyHash,
    pub(crate) from: Sector,
    pub(crate) to: Sector,
    /// Sectors to read there: the record and the remainder of its group.
    pub(crate) sectors: u64,
}

/// Returns where the record that was at `position` is after these steps of moves.
pub(crate) fn place_after(steps: &[Vec<MovedRecord>], position: Sector) -> Sector {
    let follow = |at, step: &Vec<MovedRecord>| step.iter().find(|moved| moved.from == at).map_or(at, |moved| moved.to);
    steps.iter().fold(position, follow)
}

/// An order of a unit's records.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnitOrder {
    /// Old index of each record, in the new order.
    order: Vec<usize>,
    /// Group of each record in the new order; 0 is none.
    groups: Vec<u32>,
    /// Number of records, at the end of the order, whose groups still grow.
    pub(super) growing_count: usize,
}

/// Returns the new order of records given the group of each (0 is none), or `None` if it does not change and no group
/// grows.
pub(super) fn arrange(
    groups: &[u32],
    listings: &[TrailerRecord],
    is_growing: &dyn Fn(u32) -> bool,
) -> Option<UnitOrder> {
    assert_eq!(groups.len(), listings.len());
    let mut key_hashes = HashMap::new();
    listings.iter().for_each(|listing| *key_hashes.entry(listing.key_hash).or_insert(0) += 1);
    let is_alone = |listing: &TrailerRecord| key_hashes[&listing.key_hash] == 1;
    let groups = groups.iter().zip(listings).map(|(&group, listing)| if is_alone(listing) { group } else { 0 });
    let groups: Vec<u32> = groups.collect();
    let mut members: HashMap<u32, Vec<usize>> = HashMap::new();
    for (at, &group) in groups.iter().enumerate().filter(|(_, group)| **group != 0) {
        members.entry(group).or_default().push(at);
    }
    let grows = |group: &u32| *group != 0 && is_growing(*group);
    if members.iter().all(|(group, members)| members.len() == 1 && !grows(group)) {
        return None;
    }
    let mut order = Vec::with_capacity(groups.len());
    let mut growing = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        match members.get(group) {
            None => order.push(at),
            Some(members) if members[0] == at && grows(group) => growing.extend(members),
            Some(members) if members[0] == at => order.extend(members),
            Some(_) => {}
        }
    }
    let growing_count = growing.len();
    order.append(&mut growing);
    assert_eq!(order.len(), groups.len(), "each record stands somewhere");
    Some(UnitOrder { order, groups, growing_count })
}

impl UnitOrder {
    /// Brings the groups of a unit's records into this order.
    pub(super) fn reorder(&self, groups: &mut [u32]) {
        assert_eq!(groups.len(), self.order.len(), "each record has a group");
        let before = groups.to_vec();
        groups.iter_mut().zip(&self.order).for_each(|(group, &from)| *group = before[from]);
    }
}

/// Returns the sector where a record begins, relative to its segment's start.
fn sector_of(listing: &TrailerRecord) -> Sector {
    Sector(u64::from(listing.start_bytes) / SECTOR_BYTES)
}

/// Sorts the records of `unit` into `order`: copies their bytes to `target` and reorders their listings. `unit` begins
/// `unit_start_bytes` into its segment. Returns the records that were moved or begin a group.
pub(super) fn rearrange(
    UnitOrder { order, groups, .. }: &UnitOrder,
    listings: &mut [TrailerRecord],
    unit_start_bytes: u64,
    unit: &[u8],
    target: &mut [u8],
) -> Vec<MovedRecord> {
    let before = listings.to_vec();
    let bytes_of = |listing: &TrailerRecord| {
        let from = (u64::from(listing.start_bytes) - unit_start_bytes) as usize;
        from..from + listing.len_bytes as usize
    };
    let mut start_bytes = before[0].start_bytes;
    for (to, &from) in order.iter().enumerate() {
        listings[to] = TrailerRecord { start_bytes, ..before[from] };
        target[bytes_of(&listings[to])].copy_from_slice(&unit[bytes_of(&before[from])]);
        start_bytes = listings[to].end_bytes();
    }
    let end = before.last().map_or(0, TrailerRecord::end_bytes);
    assert_eq!(start_bytes, end, "records side by side take what they took");
    let ordered: Vec<u32> = order.iter().map(|&from| groups[from]).collect();
    let mut moved = Vec::new();
    for (to, &from) in order.iter().enumerate() {
        let leads = ordered[to] != 0 && (to == 0 || ordered[to - 1] != ordered[to]);
        let run = (to..order.len()).take_while(|&at| at == to || (leads && ordered[at] == ordered[to]));
        let sectors = run.map(|at| listings[at].sectors()).sum();
        if sectors > listings[to].sectors() {
            listings[to].run_blocks = TrailerRecord::blocks_of_run(sectors);
        }
        if before[from].start_bytes != listings[to].start_bytes || sectors > listings[to].sectors() {
            moved.push(MovedRecord {
                key_hash: listings[to].key_hash,
                from: sector_of(&before[from]),
                to: sector_of(&listings[to]),
                sectors,
            });
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::trailer::ListedKind, hash::KeyHash};

    fn listing(key_hash: KeyHash, sector: u32, sectors: u32) -> TrailerRecord {
        let start_bytes = sector * 512;
        let len_bytes = sectors * 512;
        TrailerRecord { key_hash, start_bytes, len_bytes, kind: ListedKind::Entry, run_blocks: 0, expires_at: 0 }
    }

    #[test]
    fn what_belongs_together_comes_together_and_the_first_knows_how_much_that_is() {
        let mut listings = [
            listing(KeyHash(10), 9, 1),
            listing(KeyHash(11), 10, 2),
            listing(KeyHash(12), 12, 1),
            listing(KeyHash(13), 13, 3),
        ];
        let groups = [7, 0, 7, 8];
        let arrangement = arrange(&groups, &listings, &|_| false).unwrap();
        assert_eq!(arrangement.order, [0, 2, 1, 3]);
        // After its header, the unit's records begin at sector 8.
        let unit: Vec<u8> = (0..8 * 512).map(|at| (at / 512) as u8).collect();
        let mut target = unit.clone();
        let moved = rearrange(&arrangement, &mut listings, 8 * 512, &unit, &mut target);
        assert_eq!(target.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>(), [0, 1, 4, 2, 3, 5, 6, 7]);
        let sectors: Vec<_> = listings.iter().map(|listing| (listing.key_hash.0, sector_of(listing).0)).collect();
        assert_eq!(sectors, [(10, 9), (12, 10), (11, 11), (13, 13)]);
        assert_eq!(listings.map(|listing| listing.run_blocks), [1, 0, 0, 0]);
        let of = |key_hash, from, to, sectors| MovedRecord { key_hash, from: Sector(from), to: Sector(to), sectors };
        assert_eq!(moved, [of(KeyHash(10), 9, 9, 2), of(KeyHash(12), 12, 10, 1), of(KeyHash(11), 10, 11, 2)]);
    }

    #[test]
    fn a_unit_without_groups_is_left_alone_and_two_records_of_a_key_keep_their_order() {
        let listings = [10, 11, 10, 12, 13].map(|key| listing(KeyHash(key), 8 + key as u32, 1));
        let arrange = |groups: &[u32]| super::arrange(groups, &listings, &|_| false);
        assert_eq!(arrange(&[5, 6, 0, 0, 7]), None);
        assert_eq!(arrange(&[5, 0, 5, 0, 0]), None, "the newer of two must stay behind the older");
        let order = arrange(&[5, 6, 6, 5, 6]).map(|arrangement| arrangement.order);
        assert_eq!(order, Some(vec![0, 1, 4, 2, 3]), "what else is in their groups comes together");
    }

    #[test]
    fn groups_that_still_grow_are_last_except_for_records_whose_order_matters() {
        let listings = [10, 11, 10, 12, 13, 14].map(|key| listing(KeyHash(key), 8 + key as u32, 1));
        let arrange = |groups: &[u32]| super::arrange(groups, &listings, &|group| group == 6 || group == 0);
        let of = |groups: &[u32]| arrange(groups).map(|arrangement| (arrangement.order, arrangement.growing_count));
        assert_eq!(of(&[0, 6, 0, 7, 6, 7]), Some((vec![0, 2, 3, 5, 1, 4], 2)));
        assert_eq!(of(&[6, 7, 6, 6, 0, 0]), Some((vec![0, 1, 2, 4, 5, 3], 1)), "two records of a key stay");
        assert_eq!(of(&[6, 7, 6, 0, 0, 0]), None);
    }
}
