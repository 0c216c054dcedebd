//! The file of removals: a label, then records of fixed length, each with a checksum.

use super::{Generation, RemovedTags, TagHash};
use larder_device::{Journal, replace_file, whole_records};
use std::{fs, io, path::Path};

/// The file as it was read, or a new one.
pub(crate) struct TagFile {
    /// A number that the store also has, if the file belongs to it.
    pub(crate) label: u64,
    pub(crate) removed: RemovedTags,
    /// The length of the file's valid part in bytes.
    pub(crate) len_bytes: u64,
}

/// One removal: of a tag, or of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagRecord {
    pub(super) tag: Option<TagHash>,
    pub(super) generation: Generation,
}

/// Files that begin with `LARDTAG1` have hashes without a key. They are not trusted, as if they were lost.
const MAGIC: &[u8; 8] = b"LARDTAG2";
const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 32;
const OF_A_TAG: u32 = 1;
const OF_EVERYTHING: u32 = 2;
/// More than one run can have removals.
const GENERATIONS_OF_A_RUN: u64 = 1 << 32;

impl TagRecord {
    pub(super) fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..16].copy_from_slice(&self.tag.map_or(0, |tag| tag.0).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.0.to_le_bytes());
        let kind = if self.tag.is_some() { OF_A_TAG } else { OF_EVERYTHING };
        bytes[24..28].copy_from_slice(&kind.to_le_bytes());
        let checksum = checksum(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (content, sum) = bytes.split_last_chunk::<4>()?;
        let (tag, rest) = content.split_first_chunk::<16>()?;
        let (generation, kind) = rest.split_first_chunk::<8>()?;
        let kind = u32::from_le_bytes(kind.try_into().ok()?);
        let is_valid = checksum(content) == u32::from_le_bytes(*sum) && [OF_A_TAG, OF_EVERYTHING].contains(&kind);
        is_valid.then(|| Self {
            tag: (kind == OF_A_TAG).then(|| TagHash(u128::from_le_bytes(*tag))),
            generation: Generation(u64::from_le_bytes(*generation)),
        })
    }
}

/// Reads the file. Returns `None` if it does not exist or cannot be trusted.
///
/// A whole record with a wrong checksum means that removals are lost.
pub(crate) fn read_file(path: &Path) -> Option<TagFile> {
    let bytes = fs::read(path).ok()?;
    let (header, records) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let label = u64::from_le_bytes(header[8..].try_into().ok()?);
    if &header[..8] != MAGIC {
        return None;
    }
    let records = whole_records(records);
    let mut removed = RemovedTags::default();
    for record in records {
        removed.apply(TagRecord::decode(record)?);
    }
    Some(TagFile { label, removed, len_bytes: (HEADER_BYTES + records.len() * RECORD_BYTES) as u64 })
}

/// Returns the content of a file with these records.
pub(super) fn encode_file(label: u64, records: &[TagRecord]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &label.to_le_bytes()].concat();
    records.iter().for_each(|record| bytes.extend_from_slice(&record.encode()));
    bytes
}

impl TagFile {
    /// Creates a file without removals, for a store that has just been emptied.
    pub(crate) fn create(path: &Path, label: u64) -> io::Result<Self> {
        let content = encode_file(label, &[]);
        replace_file(path, &content)?;
        Ok(Self { label, removed: RemovedTags::default(), len_bytes: content.len() as u64 })
    }

    /// Begins a generation that no earlier run has used, and writes it to the disk. A killed run may have stored values
    /// in the generation of a removal that was not written yet. If a later removal had the same one, it would not cover
    /// these values.
    pub(crate) fn begin_run(mut self, path: &Path) -> io::Result<Self> {
        let run = self.removed.generation.0 / GENERATIONS_OF_A_RUN + 1;
        let record = TagRecord { tag: Some(TagHash(0)), generation: Generation(run * GENERATIONS_OF_A_RUN) };
        let mut journal = Journal::new(path.to_owned(), self.len_bytes);
        journal.append(&record.encode())?;
        journal.sync()?;
        self.removed.apply(record);
        self.len_bytes += RECORD_BYTES as u64;
        Ok(self)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> TagRecord {
        TagRecord { tag: Some(TagHash(number.into())), generation: Generation(number) }
    }

    #[test]
    fn file_is_read_as_it_was_written_and_an_unfinished_record_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tags");
        let whole = encode_file(42, &[record(1), record(2)]);
        let len = whole.len() as u64;
        for tail in [&[][..], &[7; 5], &[0; RECORD_BYTES], &record(3).encode()[..31]] {
            fs::write(&path, [&whole[..], tail].concat()).unwrap();
            let file = read_file(&path).unwrap();
            assert_eq!((file.label, file.len_bytes, file.removed.generation), (42, len, Generation(2)));
        }
    }

    #[test]
    fn damaged_file_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tags");
        let whole = encode_file(42, &[record(1), record(2)]);
        for position in (0..8).chain(HEADER_BYTES..whole.len()) {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(read_file(&path).is_none(), "{position}");
        }
    }
}
