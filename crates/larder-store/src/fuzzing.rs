//! Every decoder of bytes from a volume, as functions that accept any input.
//!
//! Owns: one [`FuzzTarget`] per structure: the decoder, the laws for all accepted input, and valid samples. The fuzz
//! targets in `fuzz/` use it, and so does the test that runs the same functions on the corpus and on mutated samples
//! with the stable toolchain. Compiled only for tests and fuzzing. Each target tries the bytes unchanged, and again
//! with the checksum corrected: a fuzzer does not guess a checksum, but the code behind the check must be correct too.

mod rows;

use crate::{
    Hints, SplitMix64,
    format::{
        SegmentUse, VolumeId,
        checkpoint::{CheckpointRoot, ImageAt, ImageOf, ListedSegment, frame_bytes, image_of, root_bytes},
        record::{
            BODY_BLOCK_BYTES, BodyElsewhere, BodyPart, DecodedRecord, RecordKind, RecordMeta, RecordParts,
            RecordRefusal, body_checksums, checksum_count,
        },
        steps,
        superblock::{LogForm, PARAMETER_COUNT, RuleEpochs, Superblock, VolumeMembership, VolumeShape},
        trailer::{self, ListWriter, ListedKind, TrailerFooter, TrailerRecord, trailer_bytes},
        unit::{UnitGenerations, UnitHeader},
        written::WrittenSequences,
    },
    hash::{FullHash, KeyHash},
    units::{SUPERBLOCK_BYTES, SegmentGeometry, SegmentId},
};
use bytes::Bytes;

/// A structure that is read from a volume, with what is needed to fuzz its decoder.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name of the fuzz target and of its corpus.
    pub name: &'static str,
    /// Decodes any bytes, and returns whether they are valid. Panics if valid bytes violate an invariant of the
    /// structure.
    pub run: fn(&[u8]) -> bool,
    samples: fn() -> Vec<Vec<u8>>,
}

/// Returns the targets of all structures.
pub fn targets() -> Vec<FuzzTarget> {
    SHARED.into_iter().chain(rows::TARGETS).collect()
}

/// The fuzz targets for structures of all policies, and of policies with segments.
const SHARED: [FuzzTarget; 6] = [
    FuzzTarget { name: "superblock", run: superblock, samples: superblock_samples },
    FuzzTarget { name: "unit", run: unit, samples: unit_samples },
    FuzzTarget { name: "trailer", run: trailer, samples: trailer_samples },
    FuzzTarget { name: "record", run: record, samples: record_samples },
    FuzzTarget { name: "checkpoint", run: checkpoint, samples: checkpoint_samples },
    FuzzTarget { name: "image", run: image, samples: image_samples },
];

/// Decodes `bytes` by the target with this name.
///
/// # Panics
/// If there is no such target, if invalid bytes were accepted, or if the decoder read them too often.
pub fn run(name: &str, bytes: &[u8]) {
    let all = targets();
    let target = all.iter().find(|target| target.name == name).expect("the fuzz targets are named as these are");
    target.run_bounded(bytes);
}

impl FuzzTarget {
    /// Decodes `bytes` and returns whether they are valid. Bounds how often the decoder reads them ([`steps`]).
    fn run_bounded(&self, bytes: &[u8]) -> bool {
        steps::bounded(bytes.len(), || (self.run)(bytes))
    }
}

const VOLUME: VolumeId = VolumeId([7; 16]);
const SEGMENT: SegmentId = SegmentId(3);
const SEGMENT_COUNT: u32 = 9;
const PARTITION_COUNT: u32 = 7;
const IMAGE_BYTES: usize = 500;

fn geometry() -> SegmentGeometry {
    SegmentGeometry::new(16 << 20, 0, 1 << 20).expect("sixteen segments are enough")
}

/// Returns the bytes as they are. If they are long enough, also returns them with a correct magic, volume and checksum.
fn both(bytes: &[u8], magic: &[u8; 4], covered_end: Option<usize>) -> Vec<Vec<u8>> {
    let mut tries = vec![bytes.to_vec()];
    if let Some(end) = covered_end.filter(|&end| end >= 24 && end <= bytes.len()) {
        let mut right = bytes.to_vec();
        right[..4].copy_from_slice(magic);
        right[8..24].copy_from_slice(&VOLUME.0);
        let checksum = VOLUME.checksum(&[&right[8..end]]);
        right[4..8].copy_from_slice(&checksum.to_le_bytes());
        tries.push(right);
    }
    tries
}

/// Returns `bytes` with this magic and a correct checksum of `from..to`, if they are long enough.
fn sealed(bytes: &[u8], magic: &[u8; 4], from: usize, to: usize) -> Vec<u8> {
    let mut right = bytes.to_vec();
    if from <= to && to <= right.len() {
        right[..4].copy_from_slice(magic);
        let checksum = VOLUME.checksum(&[&right[from..to]]);
        right[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
    right
}

fn superblock(bytes: &[u8]) -> bool {
    let mut block = bytes.to_vec();
    let raw = Superblock::decode(&block).is_ok();
    block.resize(SUPERBLOCK_BYTES as usize, 0);
    block[..12].copy_from_slice(b"LARDERv\n\x01\0\0\0");
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..12]);
    digest.update(&block[16..]);
    block[12..16].copy_from_slice(&(digest.finalize() as u32).to_le_bytes());
    if let Ok(found) = Superblock::decode(&block) {
        let mut again = vec![0; SUPERBLOCK_BYTES as usize];
        found.encode(&mut again);
        assert_eq!(Superblock::decode(&again), Ok(found), "an accepted text is written again unchanged");
    }
    raw
}

fn superblock_samples() -> Vec<Vec<u8>> {
    let mut epochs = RuleEpochs::default();
    let shape = |segment_bytes, index_bytes| VolumeShape {
        row: 1,
        size_bytes: 1 << 30,
        segment_bytes,
        index_bytes,
        parameters: [3; PARAMETER_COUNT],
        journal_pages: 0,
        form: LogForm::Plain,
    };
    let sample = |shape, epochs: RuleEpochs| {
        let id = VOLUME;
        let hash_key = [4; 16];
        let superblock = Superblock {
            id,
            hash_key,
            shape,
            generation: 9,
            epochs,
            sequence_floor: 77,
            label: 0,
            written: WrittenSequences::default(),
            membership: VolumeMembership::default(),
            prepared: VolumeMembership::default(),
            is_doubtful: false,
        };
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        superblock.encode(&mut block);
        block
    };
    let first = sample(shape(16 << 20, 0), epochs);
    epochs.invalidate_all();
    epochs.invalidate_all();
    vec![first, sample(shape(0, 64 << 10), epochs)]
}

fn unit(bytes: &[u8]) -> bool {
    let geometry = geometry();
    let tries = both(bytes, b"LDRu", Some(52));
    for header in tries.iter().filter_map(|bytes| UnitHeader::decode(VOLUME, &geometry, bytes)) {
        assert!(header.used_bytes <= header.len_bytes && u64::from(header.len_bytes) <= geometry.segment_bytes);
        let mut again = vec![0; 512];
        header.encode(VOLUME, &geometry, &mut again);
        assert_eq!(UnitHeader::decode(VOLUME, &geometry, &again), Some(header));
    }
    UnitHeader::decode(VOLUME, &geometry, bytes).is_some()
}

fn unit_samples() -> Vec<Vec<u8>> {
    let sample = |generations| {
        let header = UnitHeader {
            segment: SEGMENT,
            sequence: 77,
            number: 2,
            len_bytes: 8192,
            used_bytes: 5632,
            oldest_sequence: 70,
            generations,
        };
        let mut sector = vec![0; 512];
        header.encode(VOLUME, &geometry(), &mut sector);
        sector
    };
    vec![sample(None), sample(Some(UnitGenerations { oldest_probation: 72, anchor: 75 }))]
}

fn trailer(bytes: &[u8]) -> bool {
    // For volumes whose records begin at sectors, and for those whose records share sectors.
    [geometry(), geometry().packed()].iter().fold(false, |is_one, geometry| trailer_of(geometry, bytes) | is_one)
}

fn trailer_of(geometry: &SegmentGeometry, bytes: &[u8]) -> bool {
    let read = |bytes: &[u8]| {
        let footer = TrailerFooter::decode(VOLUME, geometry, SEGMENT, bytes)?;
        let start = bytes.len().checked_sub(footer.trailer_bytes() as usize)?;
        let listings = footer.listings(VOLUME, geometry, &bytes[start..])?;
        assert!(listings.iter().all(|entry| u64::from(entry.end_bytes()) <= geometry.segment_bytes));
        assert_eq!(listings.len(), footer.listing_count as usize);
        Some(())
    };
    if let Some(footer_at) = bytes.len().checked_sub(64) {
        let (list, footer) = bytes.split_at(footer_at);
        for mut footer in both(footer, b"LDRt", Some(64)) {
            footer[24..28].copy_from_slice(&SEGMENT.0.to_le_bytes());
            let number = |at: usize| u32::from_le_bytes([footer[at], footer[at + 1], footer[at + 2], footer[at + 3]]);
            let list_bytes = if geometry.is_packed() { number(44) } else { number(32).saturating_mul(20) };
            let list_bytes = list_bytes.min(20 << 20) as usize;
            let start = bytes.len().saturating_sub(trailer_bytes(list_bytes as u64) as usize);
            let covered = list.get(start..start + list_bytes).unwrap_or_default();
            footer[36..40].copy_from_slice(&VOLUME.checksum(&[covered]).to_le_bytes());
            for footer in both(&footer, b"LDRt", Some(64)) {
                read(&[list, &footer].concat());
            }
        }
    }
    read(bytes).is_some()
}

fn trailer_samples() -> Vec<Vec<u8>> {
    let listing = |n: u32| TrailerRecord {
        key_hash: KeyHash(u64::from(n) << 40),
        start_bytes: n * 1536,
        len_bytes: 1536,
        kind: if n % 2 == 1 { ListedKind::Tombstone } else { ListedKind::Entry },
        run_blocks: 0,
        follows: false,
        expires_at: n,
    };
    let sample = |count: u32, geometry: SegmentGeometry| {
        let listings: Vec<_> = (0..count).map(listing).collect();
        let mut writer = ListWriter::behind(&geometry, 0);
        listings.iter().for_each(|listing| writer.add(listing));
        let mut bytes = vec![0; trailer_bytes(writer.into_list().len() as u64) as usize];
        let of = SegmentUse { sequence: 5, anchor: 0 };
        trailer::encode(VOLUME, &geometry, (SEGMENT, of), &listings, &mut bytes);
        bytes
    };
    let of = |geometry| [0, 20, 250].map(|count| sample(count, geometry));
    [of(geometry()), of(geometry().packed())].concat()
}

fn record(bytes: &[u8]) -> bool {
    let front = || {
        let number = |at: usize, len: usize| {
            bytes.get(at..at + len).map(|field| field.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
        };
        let head = number(48, 4)?;
        let body = number(52, 4)?;
        let key = number(56, 2)?;
        let kind = number(58, 1)?;
        let parts = if kind == 4 { number(59, 1)? } else { 0 };
        let elsewhere = if kind == 3 { 16 } else { parts * 16 };
        Some(64 + key + elsewhere + checksum_count(body as u64, parts) * 4 + head)
    };
    let mut tries = vec![bytes.to_vec()];
    if let Some(end) = front().filter(|&end| end <= bytes.len()) {
        let mut right = bytes.to_vec();
        right[..4].copy_from_slice(b"LDRr");
        let checksum = VOLUME.checksum(&[&right[8..end]]);
        right[4..8].copy_from_slice(&checksum.to_le_bytes());
        tries.push(right);
    }
    for bytes in &tries {
        match DecodedRecord::decode(VOLUME, bytes) {
            Ok(decoded) => {
                assert!(decoded.key.end <= bytes.len() && decoded.head.end <= bytes.len());
                assert_eq!(decoded.head.end, decoded.body_start);
                let checksums = decoded.checksums(bytes);
                let body_bytes = decoded.meta.body_bytes;
                let parts = decoded.parts(bytes);
                assert_eq!(checksums.len(), checksum_count(body_bytes, parts.len()));
                let stretches = decoded.stretches(bytes, 1 << 20);
                assert!(stretches.windows(2).all(|pair| pair[0].range.end == pair[1].range.start), "they follow");
                let of_whole_body = stretches.last().is_some_and(|last| last.range.end == body_bytes);
                assert!(of_whole_body || decoded.meta.kind == RecordKind::Tombstone, "they are of the whole body");
                decoded.verifies_here(bytes);
                let body = bytes.get(decoded.body_start..).unwrap_or_default();
                for (index, block) in body.chunks(BODY_BLOCK_BYTES as usize).enumerate() {
                    decoded.verifies(bytes, index as u64, block);
                }
            }
            Err(RecordRefusal::Short(needed)) => assert!(needed > bytes.len(), "it asks for more than there is"),
            Err(RecordRefusal::Damaged) => {}
        }
    }
    DecodedRecord::decode(VOLUME, bytes).is_ok()
}

fn record_samples() -> Vec<Vec<u8>> {
    let elsewhere = RecordKind::HeadUpdate(BodyElsewhere { offset_bytes: 123_456, sequence: 8 });
    let sample = |kind, len: usize| {
        let body = [Bytes::from(vec![7; len])];
        let checksums = body_checksums(&body);
        let meta = RecordMeta::new(kind, FullHash(77), Hints { site: 2, group: 5, expires_at: 6 }, 1, len as u64);
        let body = if matches!(kind, RecordKind::Entry | RecordKind::Part) { &body[..] } else { &[] };
        let record = RecordParts { meta, key: b"key", head: b"head", parts: &[], checksums: &checksums, body };
        let mut bytes = vec![0; record.len_sectors() as usize * 512];
        record.encode(VOLUME, &mut bytes);
        bytes
    };
    let in_parts = || {
        let meta = RecordMeta::new(RecordKind::InParts(2), FullHash(77), Hints::default(), 1, 70_005);
        let part = |n: u64, len_bytes| BodyPart {
            place: BodyElsewhere { offset_bytes: n << 20, sequence: n as u32 },
            len_bytes,
        };
        let parts = [part(1, 66_000), part(2, 4_000)];
        let rest = [Bytes::from(vec![7; 5])];
        let mut checksums = vec![1, 2, 3];
        checksums.extend(body_checksums(&rest));
        checksums.resize(checksum_count(70_005, 2), 0);
        let record =
            RecordParts { meta, key: b"key", head: b"head", parts: &parts, checksums: &checksums, body: &rest };
        let mut bytes = vec![0; record.len_bytes() as usize];
        record.encode(VOLUME, &mut bytes);
        bytes
    };
    let whole = [
        sample(RecordKind::Entry, 0),
        sample(RecordKind::Entry, 1500),
        sample(elsewhere, 70_000),
        sample(RecordKind::Tombstone, 0),
    ];
    whole.into_iter().chain([in_parts(), sample(RecordKind::Part, 1500)]).collect()
}

fn checkpoint(bytes: &[u8]) -> bool {
    let mut right = bytes.to_vec();
    right.resize(root_bytes(SEGMENT_COUNT, PARTITION_COUNT) as usize, 0);
    for bytes in both(&right, b"LDRk", Some(right.len())) {
        if let Some(root) = CheckpointRoot::decode(VOLUME, SEGMENT_COUNT, PARTITION_COUNT, &bytes) {
            let mut named: Vec<_> = root.segments.iter().map(|state| state.segment.0).collect();
            named.sort_unstable();
            assert!(named.into_iter().eq(0..SEGMENT_COUNT), "every segment once");
        }
    }
    CheckpointRoot::decode(VOLUME, SEGMENT_COUNT, PARTITION_COUNT, bytes).is_some()
}

fn checkpoint_samples() -> Vec<Vec<u8>> {
    let sample = |has_probation: bool| {
        let segment = |n: u32| ListedSegment {
            segment: SegmentId((n + 3) % SEGMENT_COUNT),
            sequence: n * 5,
            is_probation: has_probation && n % 3 == 1,
            deadlines: (n, n + 9),
        };
        let root = CheckpointRoot {
            stamp: 34,
            bits: (24, 23),
            images: (0..PARTITION_COUNT).map(|n| ImageAt { stamp: n, block: n * 7, bucket_count: n % 3 }).collect(),
            segments: (0..SEGMENT_COUNT).map(segment).collect(),
        };
        let mut bytes = vec![0; root_bytes(SEGMENT_COUNT, PARTITION_COUNT) as usize];
        root.encode(VOLUME, &mut bytes);
        bytes
    };
    vec![sample(false), sample(true)]
}

const IMAGE: ImageOf = ImageOf { partition: 3, bucket_count: 9, stamp: 12 };

fn image(bytes: &[u8]) -> bool {
    IMAGE.is_in(VOLUME, IMAGE_BYTES, bytes)
}

fn image_samples() -> Vec<Vec<u8>> {
    let mut frame = vec![0; frame_bytes(IMAGE_BYTES) as usize];
    image_of(&mut frame, IMAGE_BYTES).fill(7);
    IMAGE.seal(VOLUME, IMAGE_BYTES, &mut frame);
    vec![frame]
}

/// Changes `bytes` at random positions.
pub(crate) fn mutate(random: &mut SplitMix64, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        // Prefers the start, where the lengths are.
        let at = if random.below(2) == 0 { at } else { at % 96.min(bytes.len()) };
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u64() as u8,
            2 => {
                let extreme =
                    [0, 1, u64::MAX, 1 << 31, u64::from(u16::MAX), 4096][random.below(6) as usize].to_le_bytes();
                let len = (bytes.len() - at).min([2, 4, 8][random.below(3) as usize]);
                bytes[at..at + len].copy_from_slice(&extreme[..len]);
            }
            3 => bytes.truncate(at),
            4 => {
                let more = bytes[at..(at + 64).min(bytes.len())].to_vec();
                bytes.extend(more);
            }
            _ => {
                let from = random.below(bytes.len() as u64) as usize;
                let len = (bytes.len() - at.max(from)).min(16);
                bytes.copy_within(from..from + len, at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
