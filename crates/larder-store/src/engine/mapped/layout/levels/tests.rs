//! Checks that the bitmap agrees with the paper, and that no block is ever used twice.

use super::*;
use proptest::prelude::*;

const START: Sector = Sector(128);
const SITE: Site = Site(0);
const BLOCK_SECTORS: u64 = 8;

fn levels(block_count: u64, level_count: u32, threshold_blocks: u64) -> BlockLevels {
    let shape = LevelsShape { block_bytes: 4096, level_count, threshold_bytes: threshold_blocks * 4096 };
    BlockLevels::new(START, block_count * BLOCK_SECTORS, shape)
}

fn place(block: u64) -> MapPlace {
    MapPlace(START.0 + block * BLOCK_SECTORS)
}

/// Returns the free nodes of a level.
fn free_nodes(levels: &BlockLevels, level: usize) -> Vec<u64> {
    (0..levels.levels[level].len).filter(|&node| levels.levels[level].get(node)).collect()
}

/// The example in the paper (ICS 2002), with 3 levels and 16 blocks.
#[test]
fn the_worked_example_of_the_paper_comes_out_bit_by_bit() {
    let mut levels = levels(16, 3, 0);
    assert_eq!([0, 1, 2].map(|level| free_nodes(&levels, level)), [vec![], vec![], vec![0, 1, 2, 3]]);
    // 9 KB take three blocks.
    assert_eq!(levels.take(18, SITE), Some(place(0)));
    assert_eq!((levels.next, levels.remain), (3, 13));
    assert_eq!([0, 1, 2].map(|level| free_nodes(&levels, level)), [vec![3], vec![], vec![1, 2, 3]]);
    assert_eq!(levels.take(16, SITE), Some(place(3)));
    assert_eq!((levels.next, levels.remain), (5, 11));
    assert_eq!([0, 1, 2].map(|level| free_nodes(&levels, level)), [vec![5], vec![3], vec![2, 3]]);
    levels.free(place(3), 16);
    assert_eq!([0, 1, 2].map(|level| free_nodes(&levels, level)), [vec![3], vec![], vec![1, 2, 3]]);
    levels.free(place(0), 18);
    assert_eq!([0, 1, 2].map(|level| free_nodes(&levels, level)), [vec![], vec![], vec![0, 1, 2, 3]]);
}

#[test]
fn only_the_top_level_is_searched_from_the_pointer_once_round() {
    let mut levels = levels(32, 3, 4);
    let blocks = |count: u64| count * BLOCK_SECTORS;
    for n in 0..8 {
        assert_eq!(levels.take(blocks(4), SITE), Some(place(n * 4)));
    }
    assert_eq!((levels.take(blocks(1), SITE), levels.last_run().unwrap().len_blocks), (None, 0));
    levels.free(place(4), blocks(4));
    assert_eq!(levels.take(blocks(1), SITE), Some(place(4)), "the longest there is, if none is over the threshold");
    levels.remain = 0;
    assert_eq!(levels.take(blocks(1), SITE), None);
    levels.free(place(12), blocks(4));
    levels.free(place(16), blocks(4));
    levels.free(place(24), blocks(4));
    levels.next = 20;
    assert_eq!(levels.take(blocks(2), SITE), Some(place(12)), "over the threshold, though further than the one at 24");
    assert_eq!(levels.last_run(), Some(FreeRun { len_blocks: 8, threshold_blocks: 4 }));
    assert_eq!(levels.take(blocks(6), SITE), Some(place(14)), "the run goes on over the border of its nodes");
    assert_eq!(levels.take(blocks(5), SITE), None, "an entry that fits nowhere is not stored");
}

#[test]
fn a_search_passes_over_less_than_the_paper_says() {
    let level_count = 4;
    let missed_max = 2 * (1 + 2 + 4 + 8);
    let mut levels = levels(128, level_count, 0);
    while levels.take(BLOCK_SECTORS, SITE).is_some() {}
    for begin in 0..16 {
        (32 + begin..80).for_each(|block| levels.free(place(block), BLOCK_SECTORS));
        levels.remain = 0;
        levels.next = 0;
        let len = 48 - begin;
        assert!(levels.find_run(1).is_some());
        assert!(len - levels.remain <= missed_max, "{len} free, {} found", levels.remain);
        (32 + begin..80).for_each(|block| assert!(levels.take_at(place(block), BLOCK_SECTORS)));
    }
}

#[test]
fn what_an_image_says_is_checked() {
    let mut levels = levels(16, 3, 0);
    assert!(levels.take_at(place(5), 16));
    assert!(!levels.take_at(place(6), 8) && !levels.take_at(place(15), 16) && !levels.take_at(place(16), 8));
    assert!(!levels.take_at(MapPlace(START.0 + 1), 8) && !levels.take_at(MapPlace(u64::MAX), 8));
    assert!(!levels.take_at(place(0), 0), "nothing has no place");
    levels.point_at(u64::MAX);
    assert_eq!(levels.pointer(), place(0).0);
    assert_eq!(levels.take(8, SITE), Some(place(0)), "the first run of whole top nodes");
}

proptest! {
    #[test]
    fn free_blocks_have_one_node_and_used_ones_none(
        steps in prop::collection::vec((any::<bool>(), 1_u64..12, any::<prop::sample::Index>()), 1..200)
    ) {
        let mut levels = levels(128, 4, 10);
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut used = [false; 128];
        for (free, len, which) in steps {
            if free && !held.is_empty() {
                let (first, len) = held.swap_remove(which.index(held.len()));
                levels.free(place(first), len * BLOCK_SECTORS);
                used[first as usize..(first + len) as usize].fill(false);
            } else if let Some(taken) = levels.take(len * BLOCK_SECTORS - 3, SITE) {
                let first = (taken.0 - START.0) / BLOCK_SECTORS;
                let range = first as usize..(first + len) as usize;
                prop_assert!(used[range.clone()].iter().all(|used| !used), "given out twice");
                used[range].fill(true);
                held.push((first, len));
            }
            for (block, used) in used.iter().enumerate() {
                let nodes = (0..4).filter(|level| levels.levels[*level].get(block as u64 >> level)).count();
                prop_assert_eq!(nodes, usize::from(!used), "block {}", block);
            }
            let joined = (0..3).all(|level| (0..64 >> level).all(|pair: u64| {
                !(levels.levels[level].get(pair * 2) && levels.levels[level].get(pair * 2 + 1))
            }));
            prop_assert!(joined, "two free halves are one node");
        }
    }
}
