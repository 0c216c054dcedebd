//! The order of a unit's records: those of one group side by side, so that one read brings them all.
//!
//! Pure decision, taken when the unit is sent off: until then its records stand in the order of their commits.
//! Invariant: two records of one key keep their order (a unit that has such is left as it is), so that what is
//! newer is still told by where it stands. Cost: a copy of the unit in memory if anything moves.
//! Source: HashCache (NSDI 2009), Log's grouped prefetch: what was asked for together is written together.

use crate::{
    format::trailer::Listing,
    hash::KeyHash,
    units::{SECTOR_BYTES, Sector},
};
use std::collections::HashSet;

/// A record that lies elsewhere now, or at which a group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) key_hash: KeyHash,
    pub(crate) from: Sector,
    pub(crate) to: Sector,
    /// How much is to be read there: the record with the rest of its group.
    pub(crate) sectors: u64,
}

/// The order in which records are to stand, given the group of each (0 is none); `None` if as they do.
pub(super) fn arrange(groups: &[u32], listings: &[Listing]) -> Option<Vec<usize>> {
    assert_eq!(groups.len(), listings.len());
    let mut known = HashSet::new();
    let in_groups = groups.iter().filter(|&&group| group != 0);
    if in_groups.clone().all(|group| known.insert(group)) {
        return None;
    }
    let mut key_hashes = HashSet::new();
    if !listings.iter().all(|listing| key_hashes.insert(listing.key_hash)) {
        return None;
    }
    let mut order = Vec::with_capacity(groups.len());
    let mut done = HashSet::new();
    for (at, &group) in groups.iter().enumerate() {
        if group == 0 {
            order.push(at);
        } else if done.insert(group) {
            order.extend((at..groups.len()).filter(|&other| groups[other] == group));
        }
    }
    Some(order)
}

/// An order of a unit's records.
#[derive(Clone, Copy)]
pub(super) struct Arrangement<'a> {
    /// The records by their numbers now, in their order then.
    pub(super) order: &'a [usize],
    /// Of each record its group, in the order of now.
    pub(super) groups: &'a [u32],
}

/// Puts the records of `unit`, which begins `unit_start_bytes` into its segment, into `order`: their bytes go to
/// `target`, their listings change places. Returns what a reader must know.
pub(super) fn rearrange(
    Arrangement { order, groups }: Arrangement<'_>,
    listings: &mut [Listing],
    unit_start_bytes: u64,
    unit: &[u8],
    target: &mut [u8],
) -> Vec<Moved> {
    let before = listings.to_vec();
    let start = (unit_start_bytes / SECTOR_BYTES) as u32;
    let bytes_of = |sector: u32, sectors: u16| {
        let from = (u64::from(sector - start) * SECTOR_BYTES) as usize;
        from..from + usize::from(sectors) * SECTOR_BYTES as usize
    };
    let mut sector = before[0].sector;
    for (to, &from) in order.iter().enumerate() {
        let listing = before[from];
        target[bytes_of(sector, listing.sectors)].copy_from_slice(&unit[bytes_of(listing.sector, listing.sectors)]);
        listings[to] = Listing { sector, ..listing };
        sector += u32::from(listing.sectors);
    }
    let end = before.last().map_or(0, |last| last.sector + u32::from(last.sectors));
    assert_eq!(sector, end, "records side by side take what they took");
    let ordered: Vec<u32> = order.iter().map(|&from| groups[from]).collect();
    let mut moved = Vec::new();
    for (to, &from) in order.iter().enumerate() {
        let leads = ordered[to] != 0 && (to == 0 || ordered[to - 1] != ordered[to]);
        let run = (to..order.len()).take_while(|&at| at == to || (leads && ordered[at] == ordered[to]));
        let sectors = run.map(|at| u64::from(listings[at].sectors)).sum();
        if before[from].sector != listings[to].sector || sectors > u64::from(listings[to].sectors) {
            let (from, to) = (Sector(before[from].sector.into()), Sector(listings[to].sector.into()));
            moved.push(Moved { key_hash: listing_at(&before, from), from, to, sectors });
        }
    }
    moved
}

fn listing_at(listings: &[Listing], sector: Sector) -> KeyHash {
    let found = listings.iter().find(|listing| u64::from(listing.sector) == sector.0);
    found.expect("the record was there before").key_hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    fn listing(key_hash: KeyHash, sector: u32, sectors: u16) -> Listing {
        Listing { key_hash, sector, sectors, tombstone: false, expires_at: 0 }
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
        let order = arrange(&groups, &listings).unwrap();
        assert_eq!(order, [0, 2, 1, 3]);
        // The unit begins at sector 8 with its header.
        let unit: Vec<u8> = (0..8 * 512).map(|at| (at / 512) as u8).collect();
        let mut target = unit.clone();
        let moved =
            rearrange(Arrangement { order: &order, groups: &groups }, &mut listings, 8 * 512, &unit, &mut target);
        assert_eq!(target.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>(), [0, 1, 4, 2, 3, 5, 6, 7]);
        let sectors: Vec<_> = listings.iter().map(|listing| (listing.key_hash.0, listing.sector)).collect();
        assert_eq!(sectors, [(10, 9), (12, 10), (11, 11), (13, 13)]);
        let of = |key_hash, from, to, sectors| Moved { key_hash, from: Sector(from), to: Sector(to), sectors };
        assert_eq!(moved, [of(KeyHash(10), 9, 9, 2), of(KeyHash(12), 12, 10, 1), of(KeyHash(11), 10, 11, 2)]);
    }

    #[test]
    fn a_unit_without_groups_or_with_two_records_of_a_key_is_left_alone() {
        let listings = [listing(KeyHash(10), 1, 1), listing(KeyHash(11), 2, 1), listing(KeyHash(10), 3, 1)];
        assert_eq!(arrange(&[5, 6, 0], &listings), None);
        assert_eq!(arrange(&[5, 0, 5], &listings), None, "the newer of two must stay behind the older");
    }
}
