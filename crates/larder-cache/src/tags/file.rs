//! The file of removals: a label, then records of fixed length, each with a checksum.

use super::{Generation, RemovedTags, TagHash};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

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
/// The permissions of the file: those of the store.
const OWN_MODE: u32 = 0o600;
const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 32;
const OF_A_TAG: u32 = 1;
const OF_EVERYTHING: u32 = 2;

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
/// If the last record is incomplete or all zeros, the machine stopped while it was being written, so it was not
/// acknowledged. Any other record with a wrong checksum means that removals are lost.
pub(crate) fn read_file(path: &Path) -> Option<TagFile> {
    let bytes = fs::read(path).ok()?;
    let (header, records) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let label = u64::from_le_bytes(header[8..].try_into().ok()?);
    if &header[..8] != MAGIC {
        return None;
    }
    let (records, _) = records.as_chunks::<RECORD_BYTES>();
    let valid = match records {
        [valid @ .., last] if last.iter().all(|byte| *byte == 0) => valid,
        all => all,
    };
    let mut removed = RemovedTags::default();
    for record in valid {
        removed.apply(TagRecord::decode(record)?);
    }
    Some(TagFile { label, removed, len_bytes: (HEADER_BYTES + valid.len() * RECORD_BYTES) as u64 })
}

/// Replaces the file with one that has these records. After a crash, either the new file is complete on the disk or the
/// old one is unchanged.
pub(super) fn replace_file(path: &Path, label: u64, records: &[TagRecord]) -> io::Result<u64> {
    let new_path = path.with_extension("new");
    let mut bytes = [&MAGIC[..], &label.to_le_bytes()].concat();
    records.iter().for_each(|record| bytes.extend_from_slice(&record.encode()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWN_MODE).open(&new_path)?;
    // A file that an earlier attempt left keeps its permissions otherwise.
    file.set_permissions(Permissions::from_mode(OWN_MODE))?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new_path, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(bytes.len() as u64)
}

impl TagFile {
    /// Creates a file without removals, for a store that has just been emptied.
    pub(crate) fn create(path: &Path, label: u64) -> io::Result<Self> {
        let len_bytes = replace_file(path, label, &[])?;
        Ok(Self { label, removed: RemovedTags::default(), len_bytes })
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
        let len = replace_file(&path, 42, &[record(1), record(2)]).unwrap();
        let whole = fs::read(&path).unwrap();
        for tail in [&[][..], &[7; 5], &[0; RECORD_BYTES], &record(3).encode()[..31]] {
            fs::write(&path, [&whole[..], tail].concat()).unwrap();
            let file = read_file(&path).unwrap();
            assert_eq!((file.label, file.len_bytes, file.removed.generation), (42, len, Generation(2)));
        }
    }

    #[test]
    fn file_is_for_its_owner_only_whatever_was_left_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tags");
        for _ in 0..2 {
            fs::write(path.with_extension("new"), "left").unwrap();
            fs::set_permissions(path.with_extension("new"), Permissions::from_mode(0o644)).unwrap();
            replace_file(&path, 42, &[record(1)]).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn damaged_file_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tags");
        replace_file(&path, 42, &[record(1), record(2)]).unwrap();
        let whole = fs::read(&path).unwrap();
        for position in (0..8).chain(HEADER_BYTES..whole.len()) {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(read_file(&path).is_none(), "{position}");
        }
    }
}
