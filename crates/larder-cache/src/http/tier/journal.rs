//! The file next to the store that says where the second tier's entries are. It is read at start, so that a start does
//! not wait for the tier.
//!
//! Owns: the form of the file. Invariants: a line that was written survives a kill of the process. A file that belongs
//! to another generation of the store, or that is damaged before its last line, is not used: a removal could be missing
//! in it. Then the tier begins empty. Cost: 28 bytes for each entry that is added or forgotten.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use larder_device::{Journal, whole_records};

use super::index::{PackName, PackPlace};

/// A line of the journal: a change of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalLine {
    Pack { name: PackName, bytes: u64 },
    Entry { hash: u64, place: PackPlace },
    Forgotten { hash: u64 },
    PackRemoved { pack: u32 },
}

/// The beginning of a journal: says to which tier and to which store the journal belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalTitle {
    /// The name of the tier, a random number. No other tier has it.
    pub(super) tier: u64,
    /// The store's generation: a number that changes when the store is emptied or invalidated.
    pub(super) generation: u64,
    /// A number that identifies the key with which the records are signed. 0 if they are not signed.
    pub(super) key_mark: u64,
}

/// The tier's journal, a file that is open for appending.
pub(super) struct TierJournal(Journal);

impl TierJournal {
    /// Reads a journal. Returns `None` if the file does not exist or is damaged.
    pub(super) fn read(path: &Path) -> Option<(JournalTitle, Vec<JournalLine>)> {
        let bytes = fs::read(path).ok()?;
        let is_unsigned = bytes.starts_with(MAGIC_UNSIGNED);
        let title_bytes = if is_unsigned { TITLE_BYTES_UNSIGNED } else { TITLE_BYTES };
        let (title, lines) = bytes.split_at_checked(title_bytes)?;
        let long = |at: usize| u64::from_le_bytes(title[at..at + 8].try_into().expect("eight bytes"));
        let sum_at = title_bytes - 8;
        if !(is_unsigned || title.starts_with(MAGIC)) || long(sum_at) != checksum(&title[..sum_at]) {
            return None;
        }
        let key_mark = if is_unsigned { 0 } else { long(24) };
        let title = JournalTitle { tier: long(8), generation: long(16), key_mark };
        let lines: Option<Vec<JournalLine>> = whole_records(lines).iter().map(JournalLine::decode).collect();
        Some((title, lines?))
    }

    /// Replaces the journal with a new one that has these lines. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn create(path: &Path, title: JournalTitle, lines: &[JournalLine]) -> io::Result<Self> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&title.tier.to_le_bytes());
        bytes.extend_from_slice(&title.generation.to_le_bytes());
        bytes.extend_from_slice(&title.key_mark.to_le_bytes());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        lines.iter().for_each(|line| bytes.extend_from_slice(&line.encode()));
        let mut journal = Journal::new(path.to_owned(), 0);
        // Otherwise the former file could be back after a power loss, without the removals appended to this one.
        journal.replace(&mut |file| file.write_all(&bytes))?;
        Ok(Self(journal))
    }

    /// Appends lines. Blocks until the operating system has them or, if a line forgets an entry, until they are on the
    /// disk: an entry that was replaced or removed must not come back after a power loss.
    ///
    /// # Errors
    /// The lines cannot be written.
    pub(super) fn append(&mut self, lines: &[JournalLine]) -> io::Result<()> {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line.encode()).collect();
        self.0.append(&bytes)?;
        let forgets = lines.iter().any(|line| matches!(line, JournalLine::Forgotten { .. }));
        if forgets { self.0.sync() } else { Ok(()) }
    }

    /// Returns whether so much of the file is outdated that it should be rewritten. `entry_count` is the number of
    /// entries in the index.
    pub(super) fn is_wasteful(&self, entry_count: usize) -> bool {
        self.0.len_bytes() > ((2 * entry_count + LINES_KEPT) * LINE_BYTES) as u64
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl JournalLine {
    fn encode(self) -> [u8; LINE_BYTES] {
        let (kind, numbers, long): (u32, [u32; 3], u64) = match self {
            Self::Pack { name: PackName { number, salt }, bytes } => {
                (1, [number, bytes as u32, (bytes >> u32::BITS) as u32], salt)
            }
            Self::Entry { hash, place: PackPlace { pack, offset, len } } => (2, [pack, offset, len], hash),
            Self::Forgotten { hash } => (3, [0; 3], hash),
            Self::PackRemoved { pack } => (4, [pack, 0, 0], 0),
        };
        let mut bytes = [0; LINE_BYTES];
        let words = [kind].into_iter().chain(numbers);
        words.enumerate().for_each(|(at, word)| bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes()));
        bytes[16..24].copy_from_slice(&long.to_le_bytes());
        let sum = checksum(&bytes[..24]) as u32;
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; LINE_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(bytes[at * 4..at * 4 + 4].try_into().expect("four bytes"));
        let long = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        if word(6) != checksum(&bytes[..24]) as u32 {
            return None;
        }
        let pack = word(1);
        let second = word(2);
        let third = word(3);
        match word(0) {
            1 => {
                let name = PackName { number: pack, salt: long };
                Some(Self::Pack { name, bytes: u64::from(second) | u64::from(third) << u32::BITS })
            }
            2 => Some(Self::Entry { hash: long, place: PackPlace { pack, offset: second, len: third } }),
            3 => Some(Self::Forgotten { hash: long }),
            4 => Some(Self::PackRemoved { pack }),
            _ => None,
        }
    }
}

/// Returns a checksum (FNV-1a) that detects damage. It need not detect forgery, because only the owner of the store can
/// write the file.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

const MAGIC: &[u8] = b"LTJ00002";
const TITLE_BYTES: usize = 40;
/// The first bytes of a journal of an earlier version, which did not sign records. Its title does not identify a key.
const MAGIC_UNSIGNED: &[u8] = b"LTJ00001";
const TITLE_BYTES_UNSIGNED: usize = 32;
const LINE_BYTES: usize = 28;
/// Number of lines up to which a journal is never rewritten.
const LINES_KEPT: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<JournalLine> {
        let place = PackPlace { pack: 3, offset: 4, len: 5 };
        vec![
            JournalLine::Pack { name: PackName { number: 3, salt: u64::MAX }, bytes: 5 << 33 },
            JournalLine::Entry { hash: 77, place },
            JournalLine::Forgotten { hash: 77 },
            JournalLine::PackRemoved { pack: 3 },
        ]
    }

    #[test]
    fn lines_come_back_and_a_cut_line_costs_itself_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        let title = JournalTitle { tier: 1, generation: 2, key_mark: 3 };
        assert!(TierJournal::read(&path).is_none());
        let mut journal = TierJournal::create(&path, title, &lines()[..1]).unwrap();
        journal.append(&lines()[1..]).unwrap();
        assert_eq!(TierJournal::read(&path), Some((title, lines())));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(TierJournal::read(&path), Some((title, lines()[..3].to_vec())));
    }

    #[test]
    fn file_from_before_records_were_signed_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        TierJournal::create(&path, JournalTitle { tier: 1, generation: 2, key_mark: 3 }, &lines()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut title = [MAGIC_UNSIGNED, &bytes[8..24]].concat();
        title.extend_from_slice(&checksum(&title).to_le_bytes());
        std::fs::write(&path, [&title, &bytes[TITLE_BYTES..]].concat()).unwrap();
        let title = JournalTitle { tier: 1, generation: 2, key_mark: 0 };
        assert_eq!(TierJournal::read(&path), Some((title, lines())));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        TierJournal::create(&path, JournalTitle { tier: 1, generation: 2, key_mark: 3 }, &lines()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            assert!(TierJournal::read(&path).is_none(), "bit {bit}");
        }
    }
}
