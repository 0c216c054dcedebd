//! The checkpoint: images of the index's partitions, and the root that names the valid ones.
//!
//! Owns: the bytes of roots and image frames in the index area. When they are written is decided elsewhere. Invariant:
//! a root counts only with all its images. An image names the checkpoint it was written for, and is refused if the root
//! names another: a lost write has then left an older image in its place. Idea: shadow pages; an image named by a root
//! is not overwritten before the next root is durable.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
};
use crate::units::{BLOCK_BYTES, SegmentId};

const ROOT_MAGIC: [u8; 4] = *b"LDRk";
const IMAGE_MAGIC: [u8; 4] = *b"LDRh";
/// Bit that marks a probation segment (for new entries) in the number of a listed segment.
const PROBATION_BIT: u32 = 1 << 31;
const ROOT_FIXED_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 16;
const IMAGE_AT_BYTES: u64 = 12;
/// Bytes of the header in front of the image of a partition.
const FRAME_HEADER_BYTES: usize = 64;
const FRAME_USED_BYTES: usize = 48;

/// The root of a checkpoint. It says where the valid image (the saved part of the index) of each partition is, and
/// lists the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointRoot {
    /// The watermark: the sequence of a segment. The images have the entries of all segments up to it, and a start must
    /// replay all later segments. Of two valid roots, the one with the greater watermark counts.
    pub(crate) stamp: u32,
    /// Widths of a position and of an address in the images, in bits. An index with other widths cannot use the images.
    pub(crate) bits: (u32, u32),
    /// Place of the image of each partition.
    pub(crate) images: Vec<ImageAt>,
    /// All segments: first the unused ones in the order of their next use, then those in use from the oldest to the
    /// newest ([`super::SegmentUse::order`]).
    pub(crate) segments: Vec<ListedSegment>,
}

/// The place of the valid image of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageAt {
    /// Watermark of the checkpoint for which the image was written: the sequence of the last segment that it covers. 0
    /// means that the partition is empty and has no image.
    pub(crate) stamp: u32,
    /// First block of the image's frame (its header and the image), counted from the start of the first frame.
    pub(crate) block: u32,
    /// Number of buckets in the image; 0 if the partition has entries, but its image did not fit.
    pub(crate) bucket_count: u32,
}

impl ImageAt {
    /// Returns whether the partition has entries but no image, because the image did not fit.
    pub(crate) fn is_missing(&self) -> bool {
        self.stamp > 0 && self.bucket_count == 0
    }
}

/// The description of one segment in the root of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedSegment {
    pub(crate) segment: SegmentId,
    /// Sequence of the segment's present use; 0 if the segment is not in use.
    pub(crate) sequence: u32,
    pub(crate) is_probation: bool,
    /// Two Unix times in seconds, each of the last expiry of an entry in the segment: of a short-lived entry, and of
    /// any other entry.
    pub(crate) deadlines: (u32, u32),
}

/// Returns the length in bytes of a root for `segment_count` segments and `partition_count` partitions, in whole
/// blocks.
pub(crate) fn root_bytes(segment_count: u32, partition_count: u32) -> u64 {
    let lists = u64::from(segment_count) * SEGMENT_BYTES + u64::from(partition_count) * IMAGE_AT_BYTES;
    (ROOT_FIXED_BYTES + lists).next_multiple_of(BLOCK_BYTES)
}

/// Returns the length in bytes of the frame for an image of `image_bytes`: header and image, in whole blocks.
pub(crate) fn frame_bytes(image_bytes: usize) -> u64 {
    ((FRAME_HEADER_BYTES + image_bytes) as u64).next_multiple_of(BLOCK_BYTES)
}

impl CheckpointRoot {
    /// Writes the root into `target`, which has the length that [`root_bytes`] returns.
    pub(crate) fn encode(&self, volume: VolumeId, target: &mut [u8]) {
        assert_eq!(target.len() as u64, root_bytes(self.segments.len() as u32, self.images.len() as u32));
        target.fill(0);
        FieldsMut::new(target)
            .put(&ROOT_MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&volume.0)
            .put(&self.stamp.to_le_bytes())
            .put(&self.bits.0.to_le_bytes())
            .put(&self.bits.1.to_le_bytes())
            .put(&(self.images.len() as u32).to_le_bytes())
            .put(&(self.segments.len() as u32).to_le_bytes());
        let mut fields = FieldsMut::new(&mut target[ROOT_FIXED_BYTES as usize..]);
        for ListedSegment { segment, sequence, is_probation, deadlines } in &self.segments {
            assert!(segment.0 < PROBATION_BIT, "a segment's number leaves room for its generation");
            let segment = segment.0 | if *is_probation { PROBATION_BIT } else { 0 };
            for number in [segment, *sequence, deadlines.0, deadlines.1] {
                fields.put(&number.to_le_bytes());
            }
        }
        for image in &self.images {
            for number in [image.stamp, image.block, image.bucket_count] {
                fields.put(&number.to_le_bytes());
            }
        }
        let checksum = volume.checksum(&[&target[8..]]);
        target[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes the root in `bytes`. Returns `None` if it is not valid for a volume with `segment_count` segments and an
    /// index with `partition_count` partitions.
    pub(crate) fn decode(volume: VolumeId, segment_count: u32, partition_count: u32, bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(bytes);
        if bytes.len() as u64 != root_bytes(segment_count, partition_count)
            || fields.array()? != ROOT_MAGIC
            || fields.u32()? != volume.checksum(&[&bytes[8..]])
            || fields.array()? != volume.0
        {
            return None;
        }
        let stamp = fields.u32()?;
        let bits = (fields.u32()?, fields.u32()?);
        if (fields.u32()?, fields.u32()?) != (partition_count, segment_count) {
            return None;
        }
        let mut fields = FieldReader::new(&bytes[ROOT_FIXED_BYTES as usize..]);
        let mut seen = vec![false; segment_count as usize];
        let mut segments = Vec::with_capacity(seen.len());
        for _ in 0..segment_count {
            let number = fields.u32()?;
            let sequence = fields.u32()?;
            let segment = SegmentId(number & !PROBATION_BIT);
            let is_probation = number & PROBATION_BIT != 0;
            if std::mem::replace(seen.get_mut(segment.index())?, true) {
                return None;
            }
            segments.push(ListedSegment { segment, sequence, is_probation, deadlines: (fields.u32()?, fields.u32()?) });
        }
        let mut images = Vec::with_capacity(partition_count as usize);
        for _ in 0..partition_count {
            images.push(ImageAt { stamp: fields.u32()?, block: fields.u32()?, bucket_count: fields.u32()? });
        }
        Some(Self { stamp, bits, images, segments })
    }
}

/// The identity of an image: its partition, the number of buckets, and its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageOf {
    pub(crate) partition: u32,
    /// Number of buckets in the image.
    pub(crate) bucket_count: u32,
    pub(crate) stamp: u32,
}

/// Returns the part of `frame` behind the header, which holds an image of `image_bytes`.
pub(crate) fn image_of(frame: &mut [u8], image_bytes: usize) -> &mut [u8] {
    &mut frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + image_bytes]
}

impl ImageOf {
    /// Writes the header of a `frame` that already contains its image, and fills the remainder with zeros.
    pub(crate) fn seal(self, volume: VolumeId, image_bytes: usize, frame: &mut [u8]) {
        assert_eq!(frame.len() as u64, frame_bytes(image_bytes));
        let end = FRAME_HEADER_BYTES + image_bytes;
        frame[..FRAME_HEADER_BYTES].fill(0);
        frame[end..].fill(0);
        FieldsMut::new(frame)
            .put(&IMAGE_MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&volume.0)
            .put(&self.partition.to_le_bytes())
            .put(&self.bucket_count.to_le_bytes())
            .put(&self.stamp.to_le_bytes())
            .put(&(image_bytes as u32).to_le_bytes());
        let checksum = volume.checksum(&[&frame[8..FRAME_USED_BYTES], &frame[FRAME_HEADER_BYTES..end]]);
        frame[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Returns whether `frame` contains exactly this image, undamaged.
    pub(crate) fn is_in(self, volume: VolumeId, image_bytes: usize, frame: &[u8]) -> bool {
        self.compare(volume, image_bytes, frame).unwrap_or(false)
    }

    fn compare(self, volume: VolumeId, image_bytes: usize, frame: &[u8]) -> Option<bool> {
        let mut fields = FieldReader::new(frame.get(..FRAME_USED_BYTES)?);
        let image = frame.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + image_bytes)?;
        let sound = fields.array()? == IMAGE_MAGIC
            && fields.u32()? == volume.checksum(&[&frame[8..FRAME_USED_BYTES], image])
            && fields.array()? == volume.0;
        let found = Self { partition: fields.u32()?, bucket_count: fields.u32()?, stamp: fields.u32()? };
        Some(sound && found == self && fields.u32()? == image_bytes as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId([4; 16]);

    fn root() -> CheckpointRoot {
        let segment = |n: u32| ListedSegment {
            segment: SegmentId((n + 3) % 9),
            sequence: n * 5,
            is_probation: n % 4 == 1,
            deadlines: (n, n + 9),
        };
        let images = (0..7).map(|n| ImageAt { stamp: n, block: n * 7, bucket_count: n % 4 }).collect();
        let segments = (0..9).map(segment).collect();
        CheckpointRoot { stamp: 34, bits: (24, 23), images, segments }
    }

    #[test]
    fn a_root_is_read_back_and_every_flipped_bit_in_it_noticed() {
        let mut bytes = vec![9; root_bytes(9, 7) as usize];
        root().encode(VOLUME, &mut bytes);
        let read = |bytes: &[u8]| CheckpointRoot::decode(VOLUME, 9, 7, bytes);
        assert_eq!(read(&bytes), Some(root()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(CheckpointRoot::decode(VOLUME, 9, 8, &bytes), None, "an index of another shape");
        assert_eq!(CheckpointRoot::decode(VolumeId([5; 16]), 9, 7, &bytes), None);
        assert_eq!(read(&bytes[..200]), None);
    }

    #[test]
    fn a_root_that_names_a_segment_twice_is_refused() {
        let mut twice = root();
        twice.segments[1].segment = twice.segments[0].segment;
        let mut bytes = vec![0; root_bytes(9, 7) as usize];
        twice.encode(VOLUME, &mut bytes);
        assert_eq!(CheckpointRoot::decode(VOLUME, 9, 7, &bytes), None);
    }

    #[test]
    fn an_image_counts_only_whole_and_for_its_own_partition_and_checkpoint() {
        let image_bytes = 500;
        let mut frame = vec![1; frame_bytes(image_bytes) as usize];
        image_of(&mut frame, image_bytes).fill(7);
        let own = ImageOf { partition: 3, bucket_count: 8, stamp: 12 };
        own.seal(VOLUME, image_bytes, &mut frame);
        assert!(own.is_in(VOLUME, image_bytes, &frame));
        for other in [ImageOf { partition: 2, ..own }, ImageOf { bucket_count: 9, ..own }, ImageOf { stamp: 11, ..own }]
        {
            assert!(!other.is_in(VOLUME, image_bytes, &frame), "{other:?}");
        }
        assert!(!own.is_in(VOLUME, image_bytes, &frame[..400]) && !own.is_in(VOLUME, 499, &frame));
        for bit in (0..FRAME_USED_BYTES * 8).chain(FRAME_HEADER_BYTES * 8..(FRAME_HEADER_BYTES + image_bytes) * 8) {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!own.is_in(VOLUME, image_bytes, &frame), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
