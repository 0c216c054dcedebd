//! Entries in parts: the front of a body fills what is left of a segment, or several segments, in records of its own;
//! the entry's record has the rest, and says where the parts are.
//!
//! Owns: the parts of a body that were appended. Does not: decide where it is divided (`layout::parts`). Invariants:
//! parts are appended before the entry that names them, and only that entry leads to them; if the segment of a part was
//! used again, the entry is a miss. Cost: one more read a hit for each part, a second pass of checksums over the body.

use super::{LogEngine, append::AppendAttempt};
use crate::{
    Error, ErrorKind, Result,
    engine::kit::room::NO_ROOM,
    format::record::{
        BodyElsewhere, BodyPart, PARTS_MAX, RecordKind, RecordMeta, RecordParts, body_checksums, checksum_count,
    },
};
use bytes::Bytes;

/// A body of which parts were appended.
pub(super) struct BodyInParts {
    parts: Vec<BodyPart>,
    /// Of the parts.
    checksums: Vec<u32>,
    rest: Vec<Bytes>,
}

/// A part that is to be appended.
pub(super) struct NextPart {
    bytes: Vec<Bytes>,
    checksums: Vec<u32>,
    len_bytes: u64,
}

impl NextPart {
    /// Returns the part's record, for the body of `whole`.
    pub(super) fn record(&self, whole: &RecordParts<'_>) -> RecordParts<'_> {
        let meta = RecordMeta { kind: RecordKind::Part, body_bytes: self.len_bytes, ..whole.meta.clone() };
        RecordParts { meta, key: &[], head: &[], parts: &[], checksums: &self.checksums, body: &self.bytes }
    }
}

impl BodyInParts {
    /// Creates the body of a record of which nothing was appended.
    pub(super) fn of(record: &RecordParts<'_>) -> Self {
        Self { parts: Vec::new(), checksums: Vec::new(), rest: record.body.to_vec() }
    }

    /// Takes so many bytes off the front of the rest, to be appended as a part.
    ///
    /// # Errors
    /// `Full`: there are too many parts already.
    pub(super) fn next_part(&mut self, len_bytes: u64) -> Result<NextPart> {
        if self.parts.len() == PARTS_MAX {
            return Err(Error::new(ErrorKind::Full, NO_ROOM));
        }
        let (mut bytes, mut wanted) = (Vec::new(), len_bytes as usize);
        while wanted > 0 {
            let first = self.rest.first_mut().expect("a part is of what is left of the body");
            let front = first.split_to(wanted.min(first.len()));
            wanted -= front.len();
            bytes.push(front);
            if first.is_empty() {
                self.rest.remove(0);
            }
        }
        let checksums = body_checksums(&bytes);
        assert!(!checksums.is_empty(), "a part has bytes of the body");
        Ok(NextPart { bytes, checksums, len_bytes })
    }

    /// Notes that a part was appended, whose body stands at `place`.
    pub(super) fn note_appended(&mut self, part: NextPart, place: BodyElsewhere) {
        assert!(place.offset_bytes > 0 && part.len_bytes <= u64::from(u32::MAX), "a part has a place and a length");
        self.parts.push(BodyPart { place, len_bytes: part.len_bytes as u32 });
        self.checksums.extend(part.checksums);
        assert!(self.parts.len() <= PARTS_MAX, "parts have a bound");
    }

    /// Returns the checksums of all of the body, as its entry has them.
    pub(super) fn all_checksums(&self, body_bytes: u64) -> Vec<u32> {
        let mut all = self.checksums.clone();
        all.extend(body_checksums(&self.rest));
        let count = checksum_count(body_bytes, self.parts.len());
        assert!(all.len() <= count, "each part ends with one block that is not full");
        all.resize(count, 0);
        all
    }

    /// Returns the record of the entry `whole` with the rest of its body.
    pub(super) fn entry<'a>(&'a self, whole: &RecordParts<'a>, checksums: &'a [u32]) -> RecordParts<'a> {
        let kind = RecordKind::InParts(self.parts.len() as u8);
        let (meta, key, head) = (RecordMeta { kind, ..whole.meta.clone() }, whole.key, whole.head);
        RecordParts { meta, key, head, parts: &self.parts, checksums, body: &self.rest }
    }
}

impl LogEngine {
    /// Returns where the body of a part stands that was appended.
    pub(super) fn place_of_part(&self, part: &RecordParts<'_>, attempt: AppendAttempt) -> BodyElsewhere {
        let AppendAttempt::Appended(appended) = attempt else { unreachable!("a part is appended without a condition") };
        let segment = self.geometry.segment_of(appended.position).expect("a record was appended within a segment");
        let start_bytes =
            self.geometry.segment_start_bytes(segment) + u64::from(part.meta.place) * self.geometry.step_bytes;
        let offset_bytes = start_bytes + part.before_body_bytes() as u64;
        BodyElsewhere { offset_bytes, sequence: part.meta.sequence }
    }
}
