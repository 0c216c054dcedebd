//! Clusters fill, are evicted whole in the order of use, and make room for long entries.

use super::*;
use crate::{
    format::pack::{self, PackedKind},
    hash::KeyHash,
};

const AREA: ClusterArea = ClusterArea { start_bytes: 1 << 20, cluster_bytes: 128 << 10, count: 24 };
const VOLUME: VolumeId = VolumeId([2; 16]);

fn clusters() -> ClusterTable<u32> {
    let mut numbers = RunNumbers::new(100, 1 << 16);
    numbers.reserve_until(numbers.next_end());
    ClusterTable::new(AREA, VOLUME, 2, numbers)
}

/// Appends an entry, evicting clusters if necessary. Adds evicted clusters to `gone`.
fn append(clusters: &mut ClusterTable<u32>, group: usize, len_bytes: u64, gone: &mut Vec<u32>) -> ClusterPlace {
    let parcel = PackRecord { key_hash: KeyHash(len_bytes), len_bytes, expires_at: 0, kind: PackedKind::Entry };
    let mut sealed = Vec::new();
    while let Err(NoRun(span)) = clusters.prepare(group, len_bytes, &mut sealed) {
        write_all(clusters, &mut sealed);
        for victim in clusters.victims(span).expect("nothing is on its way") {
            clusters.release(victim);
            gone.push(victim);
        }
    }
    let place = clusters.append(group, parcel, &mut sealed, |bytes, sequence| bytes.fill(sequence as u8));
    write_all(clusters, &mut sealed);
    place
}

fn write_all(clusters: &mut ClusterTable<u32>, sealed: &mut Vec<SealedPack>) {
    for pack in sealed.drain(..) {
        clusters.written(pack.sequence);
    }
}

#[test]
fn entries_of_one_group_share_a_cluster_that_is_written_once() {
    let mut clusters = clusters();
    let mut gone = Vec::new();
    let places: Vec<_> = (0..24).map(|number| append(&mut clusters, number % 2, 5400, &mut gone)).collect();
    assert!(places.iter().enumerate().all(|(number, place)| place.cluster == number as u32 % 2));
    let pack = clusters.seal(0).unwrap();
    assert_eq!(pack.len_bytes(), AREA.cluster_bytes);
    let (header, listings) = pack::decode(VOLUME, AREA.offset_bytes(0), pack.buffer.as_slice()).unwrap();
    assert_eq!((header.sequence, listings.len()), (100, 12));
    let place = places[2];
    assert_eq!(clusters.dirty_copy(place).map(|copy| copy[..5400].to_vec()), Some(vec![100; 5400]));
    clusters.written(100);
    assert_eq!(clusters.dirty_copy(place), None);
}

#[test]
fn the_least_recently_used_cluster_goes_first_and_whole() {
    let mut clusters = clusters();
    let mut gone = Vec::new();
    for _ in 0..24 * 2 {
        append(&mut clusters, 0, 60_000, &mut gone);
    }
    clusters.touch(0);
    for _ in 0..6 {
        append(&mut clusters, 0, 60_000, &mut gone);
    }
    assert_eq!(gone[..2], [1, 2], "0 was used");
}

#[test]
fn a_long_entry_has_clusters_of_its_own_and_evicts_what_is_in_their_way() {
    let mut clusters = clusters();
    let mut gone = Vec::new();
    let place = append(&mut clusters, 0, 1 << 20, &mut gone);
    assert_eq!((clusters.len_bytes(place.cluster), place.offset_sectors), (9 * AREA.cluster_bytes, 8));
    for number in 0..200 {
        let len = if number % 3 == 0 { 400_000 + number * 3000 } else { 20_000 };
        append(&mut clusters, number as usize % 2, len, &mut gone);
    }
    assert!(gone.contains(&place.cluster));
    let mut seen = vec![false; AREA.count as usize];
    for cluster in clusters.lru() {
        let span = (clusters.len_bytes(cluster) / AREA.cluster_bytes) as usize;
        seen[cluster as usize..cluster as usize + span].iter_mut().for_each(|one| {
            assert!(!*one, "no two entries share a cluster unless they are in one pack");
            *one = true;
        });
    }
}

#[test]
fn a_cluster_of_which_all_is_gone_is_free_at_once() {
    let mut clusters = clusters();
    let mut gone = Vec::new();
    let places: Vec<_> = (0..3).map(|_| append(&mut clusters, 0, 40_000, &mut gone)).collect();
    clusters.seal(0);
    clusters.written(100);
    let free = clusters.free_count;
    places.iter().for_each(|place| clusters.forget(place.cluster, place.sectors));
    assert_eq!(clusters.free_count, free + 1);
    assert_eq!(clusters.lru().count(), 0);
}

#[test]
fn a_cluster_is_resumed_once_and_only_where_it_fits() {
    let mut clusters = clusters();
    assert!(clusters.resume(3, 55, 4) && !clusters.resume(5, 56, 1) && !clusters.resume(22, 57, 3));
    assert!(clusters.resume(22, 57, 2));
    assert_eq!((clusters.sequence(3), clusters.lru().collect::<Vec<_>>()), (55, vec![3, 22]));
}
