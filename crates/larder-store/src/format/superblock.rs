//! The superblock, which describes a volume. There is a copy at each end of the volume; the newer one counts.
//!
//! Owns: identity, hash key, geometry and the invalidation rules. Invariant: both copies are written at creation. Later
//! changes write the first copy, then the second, so one of them is always whole.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    written::{WRITTEN_BYTES, WrittenSequences},
};
use crate::units::{BLOCK_BYTES, DATA_START_BYTES, SUPERBLOCK_BYTES, SegmentGeometry, last_superblock_bytes};
use std::ops::Range;

/// The first eight bytes of every Larder volume.
const MAGIC: [u8; 8] = *b"LARDERv\n";
/// The format of packed volumes, in which several records can share a sector. It is the newest that this code reads and
/// writes.
pub(crate) const FORMAT_VERSION: u32 = 4;
/// The format of volumes with probation (segments for new entries) in which each record begins at the start of a
/// sector.
pub(crate) const FORMAT_VERSION_PROBATION: u32 = 3;
/// The format of volumes with a journal.
const FORMAT_VERSION_JOURNAL: u32 = 2;
/// The format of volumes that have neither a journal nor probation (segments for new entries). Programs from before
/// both features can read it.
const FORMAT_VERSION_PLAIN: u32 = 1;
/// Maximum number of sites whose invalidation an older program could write into a superblock.
const SITE_RULE_COUNT_MAX: usize = 256;
const CHECKSUM_AT: usize = 12;
/// Number of layout parameters that a policy can keep in the superblock.
pub(crate) const PARAMETER_COUNT: usize = 6;
/// Index of the layout parameter that limits the bytes of all files together, in policies that keep entries in files.
const FILES_BYTES_AT: usize = 0;
/// Position of the fields about starts and rejoined volumes, behind the longest list of sites that an older program
/// wrote.
const STATE_AT: usize = 3160;
/// Position of the fields about the layout: the size of the index area and the policy's parameters.
const SHAPE_AT: usize = 3584;
const _: () = assert!(88 + 12 * SITE_RULE_COUNT_MAX == STATE_AT && STATE_AT + 28 <= SHAPE_AT, "the lists fit");
const _: () = assert!(SHAPE_AT + 100 + WRITTEN_BYTES <= SUPERBLOCK_BYTES as usize, "written sequences fit the end");

/// The description of a volume. Every volume has two copies of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: VolumeId,
    pub(crate) hash_key: [u8; 16],
    pub(crate) shape: VolumeShape,
    /// Number that grows with every write of the superblock.
    pub(crate) generation: u64,
    pub(crate) epochs: RuleEpochs,
    pub(crate) membership: VolumeMembership,
    /// The membership (which volumes the store has) of the run that is about to begin. It takes effect once the
    /// superblocks of all volumes contain it. All zeros in superblocks of older programs.
    pub(crate) prepared: VolumeMembership,
    /// Whether the device may have lost acknowledged changes. If so, the next start empties the volume.
    pub(crate) is_doubtful: bool,
    /// Lower bound of the sequence numbers that new segments get. It keeps new numbers above all earlier ones, even if
    /// nothing else on the volume records those.
    pub(crate) sequence_floor: u32,
    /// A number that the caller can keep in the store ([`crate::Store::set_label`]); 0 if none was set.
    pub(crate) label: u64,
    /// In policies on the log: which segments must be found at start, and the oldest segment whose entries count.
    pub(crate) written: WrittenSequences,
}

/// The last run in which this volume took part, and which volumes the store had then. All zeros if the store never had
/// another volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeMembership {
    /// Number that grows with each start, and whenever the set of volumes changes.
    pub(crate) generation: u64,
    /// A random number. If two copies of a volume both continue the same run, their new runs differ in this number.
    pub(crate) nonce: u64,
    /// Hash of the identities of the store's volumes.
    pub(crate) set: u64,
}

/// The properties of a volume that are fixed at creation: the policy, and where each area is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeShape {
    /// Number of the policy in the policy table ([`crate::Policy`]).
    pub(crate) row: u32,
    pub(crate) size_bytes: u64,
    /// Size of a segment in bytes; 0 in policies without segments.
    pub(crate) segment_bytes: u64,
    /// Size of the index area in bytes, a multiple of the block size. The area is behind the first superblock.
    pub(crate) index_bytes: u64,
    /// Further parameters of the layout, whose meaning depends on the policy.
    pub(crate) parameters: [u64; PARAMETER_COUNT],
    /// Length of the journal in pages, at the end of the index area. 0 if there is no journal.
    pub(crate) journal_pages: u64,
    pub(crate) form: LogForm,
}

/// The form of a log's segments and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// One generation of segments. Each record begins at the start of a sector. Policies without a log have this value
    /// too.
    #[default]
    Plain,
    /// Two generations of segments: probation, for new entries, and main. Each record begins at the start of a sector.
    Probation,
    /// Two generations of segments: probation, for new entries, and main. Several records can share a sector.
    Packed,
}

impl VolumeShape {
    /// Returns where the segments are; `None` if the volume has none.
    pub(crate) fn geometry(&self) -> Option<SegmentGeometry> {
        let geometry = SegmentGeometry::new(self.size_bytes, self.index_bytes, self.segment_bytes)?;
        Some(if self.form == LogForm::Packed { geometry.packed() } else { geometry })
    }

    /// Returns whether a log has two generations of segments: probation, for new entries, and main.
    pub(crate) fn has_probation(&self) -> bool {
        self.form != LogForm::Plain
    }

    /// Returns the limit on the bytes in files, for policies that keep entries in files.
    pub(crate) fn files_bytes(&self) -> u64 {
        self.parameters[FILES_BYTES_AT]
    }

    pub(crate) fn set_files_bytes(&mut self, files_bytes: u64) {
        self.parameters[FILES_BYTES_AT] = files_bytes;
    }

    /// Returns the range of the volume, in bytes, for checkpoints, snapshots and the journal.
    pub(crate) fn index_area(&self) -> Range<u64> {
        DATA_START_BYTES..DATA_START_BYTES + self.index_bytes
    }

    /// Returns the range of the volume, in bytes, for entries.
    pub(crate) fn data_area(&self) -> Range<u64> {
        self.index_area().end..last_superblock_bytes(self.size_bytes)
    }

    /// Returns the volume's format version: the oldest one with all features that the volume uses.
    pub(crate) fn format_version(&self) -> u32 {
        match (self.form, self.journal_pages) {
            (LogForm::Packed, _) => FORMAT_VERSION,
            (LogForm::Probation, _) => FORMAT_VERSION_PROBATION,
            (LogForm::Plain, 1..) => FORMAT_VERSION_JOURNAL,
            (LogForm::Plain, 0) => FORMAT_VERSION_PLAIN,
        }
    }

    fn is_sound(&self) -> bool {
        let index_end = DATA_START_BYTES.checked_add(self.index_bytes);
        self.index_bytes.is_multiple_of(BLOCK_BYTES)
            && self.journal_pages <= self.index_bytes / BLOCK_BYTES
            && index_end.is_some_and(|end| end <= last_superblock_bytes(self.size_bytes))
            && (self.segment_bytes == 0 || self.geometry().is_some())
    }
}

/// The epochs of a volume. Each entry has the epoch in which it was written; beginning a new epoch invalidates all
/// earlier entries at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleEpochs {
    /// The current epoch, which new entries get.
    pub(crate) current: u32,
    /// The first epoch whose entries are valid. Entries of earlier epochs were invalidated.
    pub(crate) all_before: u32,
}

impl RuleEpochs {
    /// Returns whether an entry that was written in `epoch` is still valid.
    pub(crate) fn admits(self, epoch: u32) -> bool {
        epoch >= self.all_before
    }

    /// Invalidates all entries written so far, by beginning a new epoch.
    pub(crate) fn invalidate_all(&mut self) {
        self.current = self.current.saturating_add(1);
        self.all_before = self.current;
    }
}

/// Why bytes cannot be used as a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockRefusal {
    /// The bytes are not from a Larder volume.
    Foreign,
    /// The bytes are from a Larder volume with this format version, which this code cannot read.
    Version(u32),
    /// The bytes are from a Larder volume, but the checksum is wrong or a value is invalid.
    Damaged,
}

impl Superblock {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len() as u64, SUPERBLOCK_BYTES);
        block.fill(0);
        let mut fields = FieldsMut::new(block);
        fields
            .put(&MAGIC)
            .put(&self.shape.format_version().to_le_bytes())
            .put(&0_u32.to_le_bytes())
            .put(&self.id.0)
            .put(&self.hash_key)
            .put(&self.shape.size_bytes.to_le_bytes())
            .put(&self.shape.segment_bytes.to_le_bytes())
            .put(&self.generation.to_le_bytes())
            .put(&self.shape.row.to_le_bytes())
            .put(&self.epochs.current.to_le_bytes())
            .put(&self.epochs.all_before.to_le_bytes());
        let mut fields = FieldsMut::new(&mut block[STATE_AT..]);
        self.prepared.put(&mut fields);
        fields.put(&u32::from(self.is_doubtful).to_le_bytes());
        let mut fields = FieldsMut::new(&mut block[SHAPE_AT..]);
        fields.put(&self.shape.index_bytes.to_le_bytes());
        for parameter in self.shape.parameters {
            fields.put(&parameter.to_le_bytes());
        }
        self.membership.put(&mut fields);
        fields.put(&self.sequence_floor.to_le_bytes());
        fields.put(&self.shape.journal_pages.to_le_bytes());
        fields.put(&self.label.to_le_bytes());
        self.written.put(&mut fields);
        let checksum = checksum(block);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, SuperblockRefusal> {
        if block.len() as u64 != SUPERBLOCK_BYTES || block[..MAGIC.len()] != MAGIC {
            return Err(SuperblockRefusal::Foreign);
        }
        let mut fields = FieldReader::new(&block[MAGIC.len()..]);
        let version = fields.u32().ok_or(SuperblockRefusal::Damaged)?;
        if fields.u32() != Some(checksum(block)) {
            return Err(if is_known(version) {
                SuperblockRefusal::Damaged
            } else {
                SuperblockRefusal::Version(version)
            });
        }
        if !is_known(version) {
            return Err(SuperblockRefusal::Version(version));
        }
        let form = match version {
            FORMAT_VERSION => LogForm::Packed,
            FORMAT_VERSION_PROBATION => LogForm::Probation,
            _ => LogForm::Plain,
        };
        let found = Self::decode_fields(&mut fields, &mut FieldReader::new(&block[SHAPE_AT..]), form);
        let mut state = FieldReader::new(&block[STATE_AT..]);
        let with_state = found.and_then(|found| {
            let prepared = VolumeMembership::take(&mut state)?;
            let is_doubtful = match state.u32()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            Some(Self { prepared, is_doubtful, ..found })
        });
        with_state.ok_or(SuperblockRefusal::Damaged)
    }

    fn decode_fields(fields: &mut FieldReader<'_>, shape_fields: &mut FieldReader<'_>, form: LogForm) -> Option<Self> {
        let id = VolumeId(fields.array()?);
        let hash_key = fields.array()?;
        let size_bytes = fields.u64()?;
        let segment_bytes = fields.u64()?;
        let generation = fields.u64()?;
        let row = fields.u32()?;
        let index_bytes = shape_fields.u64()?;
        let mut parameters = [0; PARAMETER_COUNT];
        for parameter in &mut parameters {
            *parameter = shape_fields.u64()?;
        }
        let membership = VolumeMembership::take(shape_fields)?;
        let sequence_floor = shape_fields.u32()?;
        let journal_pages = shape_fields.u64()?;
        let shape = VolumeShape { row, size_bytes, segment_bytes, index_bytes, parameters, journal_pages, form };
        let label = shape_fields.u64()?;
        let written = WrittenSequences::take(shape_fields)?;
        if !shape.is_sound() {
            return None;
        }
        let current = fields.u32()?;
        let mut all_before = fields.u32()?;
        // Older programs could invalidate single sites. A cache may forget: these invalidations become one of
        // everything, and the next write of the superblock drops them.
        let site_count = fields.u32()? as usize;
        if site_count > SITE_RULE_COUNT_MAX {
            return None;
        }
        for _ in 0..site_count {
            fields.u64()?;
            all_before = all_before.max(fields.u32()?);
        }
        let epochs = RuleEpochs { current, all_before };
        let prepared = VolumeMembership::default();
        let is_doubtful = false;
        let found = Self {
            id,
            hash_key,
            shape,
            generation,
            epochs,
            membership,
            prepared,
            is_doubtful,
            sequence_floor,
            label,
            written,
        };
        Some(found)
    }
}

impl VolumeMembership {
    fn put(self, fields: &mut FieldsMut<'_>) {
        fields.put(&self.generation.to_le_bytes()).put(&self.nonce.to_le_bytes()).put(&self.set.to_le_bytes());
    }

    fn take(fields: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self { generation: fields.u64()?, nonce: fields.u64()?, set: fields.u64()? })
    }
}

fn is_known(version: u32) -> bool {
    (FORMAT_VERSION_PLAIN..=FORMAT_VERSION).contains(&version)
}

/// Returns the checksum of a superblock. Unlike other checksums it does not include the volume's identity, because that
/// is only known from the superblock.
fn checksum(block: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CHECKSUM_AT]);
    digest.update(&block[CHECKSUM_AT + 4..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let mut epochs = RuleEpochs::default();
        epochs.invalidate_all();
        Superblock {
            id: VolumeId([3; 16]),
            hash_key: [4; 16],
            shape: VolumeShape {
                row: 7,
                size_bytes: 1 << 30,
                segment_bytes: 16 << 20,
                index_bytes: 8192,
                parameters: [1, 2, 3, 4, 5, 6],
                journal_pages: 2,
                form: LogForm::Plain,
            },
            generation: 9,
            epochs,
            membership: VolumeMembership { generation: 1, nonce: 2, set: 3 },
            prepared: VolumeMembership { generation: 2, nonce: 4, set: 3 },
            is_doubtful: true,
            sequence_floor: 12,
            label: 5,
            written: {
                let mut written = WrittenSequences::default();
                written.begin_run(&[2, 5], 9);
                written
            },
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut block = vec![1; SUPERBLOCK_BYTES as usize];
        sample().encode(&mut block);
        assert_eq!(Superblock::decode(&block), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        sample().encode(&mut block);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn foreign_and_future_volumes_are_told_apart() {
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        assert_eq!(Superblock::decode(&block), Err(SuperblockRefusal::Foreign));
        sample().encode(&mut block);
        block[8] = 5;
        assert_eq!(Superblock::decode(&block), Err(SuperblockRefusal::Version(5)));
    }

    /// Protects data on a volume with a journal or probation, if a program from before these features could open it.
    #[test]
    fn only_volumes_that_have_something_newer_are_of_a_newer_format() {
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        let mut plain = sample();
        plain.shape.journal_pages = 0;
        let mut of_two_generations = plain.clone();
        of_two_generations.shape.form = LogForm::Probation;
        let mut packed = plain.clone();
        packed.shape.form = LogForm::Packed;
        for (superblock, version) in [(sample(), 2), (plain, 1), (of_two_generations, 3), (packed, 4)] {
            superblock.encode(&mut block);
            assert_eq!((block[8], Superblock::decode(&block)), (version, Ok(superblock)));
        }
    }

    #[test]
    fn epochs_admit_only_what_came_after_the_invalidation() {
        let mut epochs = RuleEpochs::default();
        let before = epochs.current;
        assert!(epochs.admits(before));
        epochs.invalidate_all();
        assert!(!epochs.admits(before) && epochs.admits(epochs.current));
    }

    /// Checks that entries that an older program has purged stay purged.
    #[test]
    fn invalidated_sites_of_an_older_program_become_one_invalidation_of_everything() {
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        let mut old = sample();
        old.epochs = RuleEpochs { current: 5, all_before: 1 };
        old.encode(&mut block);
        let count_at = 84;
        block[count_at..count_at + 4].copy_from_slice(&2_u32.to_le_bytes());
        for (number, before) in [5_u32, 3].into_iter().enumerate() {
            let at = count_at + 4 + 12 * number + 8;
            block[at..at + 4].copy_from_slice(&before.to_le_bytes());
        }
        let sum = checksum(&block);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        let read = Superblock::decode(&block).unwrap();
        assert_eq!(read.epochs, RuleEpochs { current: 5, all_before: 5 });
        read.encode(&mut block);
        assert_eq!(Superblock::decode(&block), Ok(read), "they are gone with the next write");
        assert!(block[count_at..STATE_AT].iter().all(|byte| *byte == 0));
    }
}
