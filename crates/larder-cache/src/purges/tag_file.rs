//! The file of removed tags that [`Cache`](crate::Cache) wrote before it had a record of purges. It is read once, and
//! replaced by a record with the same removals.
//!
//! Invariant: no value of an earlier run has a greater number than the first new purge. A killed run may have stored
//! values after removals that it did not write, so the numbers go on where no run of its kind came.

use super::{
    index::{Purge, PurgeMode, PurgeScope},
    journal::{JournalState, RecordLine},
};
use crate::tags::TagHash;
use crc_fast::{CrcAlgorithm::Crc32Iscsi, checksum};
use larder_device::whole_records;

/// The first bytes of the file, by which it is recognized.
pub(super) const MAGIC: &[u8; 8] = b"LARDTAG2";

/// Parses the old file of removed tags. Returns `None` if a part of it is damaged.
pub(super) fn read(octets: &[u8]) -> Option<JournalState> {
    let (label, records) = octets.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let purges: Option<Vec<Purge>> = whole_records(records).iter().map(decode).collect();
    let purges = purges?;
    let last_number = purges.iter().map(|purge| purge.number).max().unwrap_or(0);
    let number = (last_number / NUMBERS_OF_A_RUN + 1) * NUMBERS_OF_A_RUN;
    let lines = purges.into_iter().map(RecordLine::Judged).chain([RecordLine::Number(number)]).collect();
    Some(JournalState::Lines { label: u64::from_le_bytes(*label), lines })
}

fn decode(record: &[u8; 32]) -> Option<Purge> {
    let (content, sum) = record.split_last_chunk::<4>()?;
    let (tag, rest) = content.split_first_chunk::<16>()?;
    let (number, kind) = rest.split_first_chunk::<8>()?;
    let scope = match kind {
        [1, 0, 0, 0] => PurgeScope::Tag(TagHash(u128::from_le_bytes(*tag)).name().into()),
        [2, 0, 0, 0] => PurgeScope::All,
        _ => return None,
    };
    let is_valid = checksum(Crc32Iscsi, content) as u32 == u32::from_le_bytes(*sum);
    is_valid.then(|| Purge { number: u64::from_le_bytes(*number), mode: PurgeMode::Hard, at_ms: 0, scope })
}

/// Distance between the first purge numbers of two successive runs of the program. No single run could remove this
/// number of tags.
const NUMBERS_OF_A_RUN: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cache;
    use larder_device::block_on;
    use std::fs;

    fn record(tag: Option<u128>, number: u64) -> Vec<u8> {
        let kind: u32 = if tag.is_some() { 1 } else { 2 };
        let content = [&tag.unwrap_or(0).to_le_bytes()[..], &number.to_le_bytes(), &kind.to_le_bytes()].concat();
        let sum = checksum(Crc32Iscsi, &content) as u32;
        [content, sum.to_le_bytes().to_vec()].concat()
    }

    fn file(label: u64, records: &[Vec<u8>]) -> Vec<u8> {
        [&MAGIC[..], &label.to_le_bytes(), &records.concat()].concat()
    }

    #[test]
    fn every_whole_record_is_read_and_a_damaged_one_is_noticed() {
        let whole = file(42, &[record(Some(7), 1), record(None, 3 << 32)]);
        let purge = |number, scope| Purge { number, mode: PurgeMode::Hard, at_ms: 0, scope };
        let tag = PurgeScope::Tag(TagHash(7).name().into());
        let judged = [purge(1, tag), purge(3 << 32, PurgeScope::All)].map(RecordLine::Judged);
        let lines: Vec<_> = judged.into_iter().chain([RecordLine::Number(4 << 32)]).collect();
        for tail in [&[][..], &[7; 5], &[0; 32], &record(Some(1), 1)[..31]] {
            let read = read(&[&whole[..], tail].concat());
            assert_eq!(read, Some(JournalState::Lines { label: 42, lines: lines.clone() }));
        }
        for position in 16..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            assert_eq!(read(&damaged), None, "{position}");
        }
    }

    /// Guards against removed values that come back after an upgrade to the version with one record for all removals.
    #[test]
    fn removals_of_a_cache_with_the_old_file_stay() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Cache::builder(directory.path()).disk("32MB").memory("8MB").open().unwrap();
        let path = directory.path().join("removed-tags");
        block_on(async {
            let cache = open();
            cache.entry("removed").tag("tag").insert("1").await.unwrap();
            cache.entry("kept").tag("other").insert("2").await.unwrap();
            let tag = cache.hash_of_tag("tag").0;
            // As the killed run of an old version: it has stored a value after removals that it did not write.
            cache.remove_tag("more").await.unwrap();
            cache.entry("late").tag("later").insert("3").await.unwrap();
            let label = cache.store().labels().next().unwrap();
            cache.close().await.unwrap();
            drop(cache);
            fs::write(&path, file(label, &[record(Some(tag), 1)])).unwrap();
            for _ in 0..2 {
                let cache = open();
                assert_eq!(cache.get("removed").await.unwrap(), None);
                assert_eq!(cache.get("kept").await.unwrap().unwrap(), "2");
                assert_eq!(cache.get("late").await.unwrap().unwrap(), "3");
                cache.close().await.unwrap();
            }
            let cache = open();
            cache.remove_tag("later").await.unwrap();
            assert_eq!(cache.get("late").await.unwrap(), None);
            assert!(!fs::read(&path).unwrap().starts_with(MAGIC));
        });
    }
}
