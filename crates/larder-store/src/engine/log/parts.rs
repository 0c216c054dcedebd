//! Entries in parts: the front of a long body fills the remainder of one or more segments, as records of its own. The
//! entry's record has the rest of the body and the places of the parts.
//!
//! Owns: the parts of a body that were appended. `layout::parts` decides where a body is divided. Invariants: parts are
//! appended before the entry that names them, and only that entry leads to them. If a part's segment was reused, the
//! entry is a miss. Cost: one more read a hit for each part, a second pass of checksums over the body.

use super::{
    LogEngine,
    append::{AppendAttempt, AppendCondition},
    layout::AppendRole,
};
use crate::{
    Error, ErrorKind, Result,
    engine::kit::room::NO_ROOM,
    format::record::{
        BodyElsewhere, BodyPart, PARTS_MAX, RecordKind, RecordMeta, RecordParts, body_checksums, checksum_count,
    },
    units::Sector,
};
use bytes::Bytes;
use std::sync::Arc;

/// The body of a record that is appended in parts.
pub(super) struct BodyInParts {
    parts: Vec<BodyPart>,
    /// Checksums of the parts that were appended.
    checksums: Vec<u32>,
    rest: Vec<Bytes>,
}

/// The part of a body to append next.
pub(super) struct NextPart {
    bytes: Vec<Bytes>,
    checksums: Vec<u32>,
    len_bytes: u64,
}

impl NextPart {
    /// Returns the record of this part. `whole` is the record of the entry, with the whole body.
    pub(super) fn record(&self, whole: &RecordParts<'_>) -> RecordParts<'_> {
        let meta = RecordMeta { kind: RecordKind::Part, body_bytes: self.len_bytes, ..whole.meta.clone() };
        RecordParts { meta, key: &[], head: &[], parts: &[], checksums: &self.checksums, body: &self.bytes }
    }
}

impl BodyInParts {
    /// Creates the body of `record`, of which no part is appended yet.
    pub(super) fn of(record: &RecordParts<'_>) -> Self {
        Self { parts: Vec::new(), checksums: Vec::new(), rest: record.body.to_vec() }
    }

    /// Takes the first `len_bytes` of the remaining body, so that they can be appended as a part.
    ///
    /// # Errors
    /// `Full`: the body already has the maximum number of parts.
    pub(super) fn next_part(&mut self, len_bytes: u64) -> Result<NextPart> {
        if self.parts.len() == PARTS_MAX {
            return Err(Error::new(ErrorKind::Full, NO_ROOM));
        }
        let mut bytes = Vec::new();
        let mut wanted = len_bytes as usize;
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

    /// Notes that `part` was appended, and that `place` is where its bytes are.
    pub(super) fn note_appended(&mut self, part: NextPart, place: BodyElsewhere) {
        assert!(place.offset_bytes > 0 && part.len_bytes <= u64::from(u32::MAX), "a part has a place and a length");
        self.parts.push(BodyPart { place, len_bytes: part.len_bytes as u32 });
        self.checksums.extend(part.checksums);
        assert!(self.parts.len() <= PARTS_MAX, "parts have a bound");
    }

    /// Returns all checksums of the body, in the form in which the record of its entry has them.
    pub(super) fn all_checksums(&self, body_bytes: u64) -> Vec<u32> {
        let mut all = self.checksums.clone();
        all.extend(body_checksums(&self.rest));
        let count = checksum_count(body_bytes, self.parts.len());
        assert!(all.len() <= count, "each part ends with one block that is not full");
        all.resize(count, 0);
        all
    }

    /// Returns the record of the entry: `whole`, with only the remainder of its body and with the places of the parts.
    pub(super) fn entry<'a>(&'a self, whole: &RecordParts<'a>, checksums: &'a [u32]) -> RecordParts<'a> {
        let kind = RecordKind::InParts(self.parts.len() as u8);
        let meta = RecordMeta { kind, ..whole.meta.clone() };
        let key = whole.key;
        let head = whole.head;
        RecordParts { meta, key, head, parts: &self.parts, checksums, body: &self.rest }
    }
}

/// A way to append the record of an entry and the parts of its body: for a commit, or for reclaim.
pub(super) trait EntryAppender: Sync {
    fn append_entry_record(&self, record: &mut RecordParts<'_>) -> impl Future<Output = Result<AppendAttempt>> + Send;

    fn append_part(&self, part: &mut RecordParts<'_>) -> impl Future<Output = Result<AppendAttempt>> + Send;
}

/// Appends for a commit, which waits for space.
pub(super) struct ClientAppender<'a> {
    pub(super) engine: &'a Arc<LogEngine>,
    pub(super) still_at: Option<Sector>,
}

impl EntryAppender for ClientAppender<'_> {
    async fn append_entry_record(&self, record: &mut RecordParts<'_>) -> Result<AppendAttempt> {
        self.engine.append_undivided(record, self.still_at).await
    }

    async fn append_part(&self, part: &mut RecordParts<'_>) -> Result<AppendAttempt> {
        self.engine.append_if(part, AppendCondition::Part).await
    }
}

/// Appends for the reclaim of the segment with the record at `from`. Rewrites the entry only if it is still at `from`.
/// Never waits.
pub(super) struct ReclaimAppender<'a> {
    pub(super) engine: &'a Arc<LogEngine>,
    pub(super) from: Sector,
    pub(super) hits: u8,
}

impl ReclaimAppender<'_> {
    fn append_now(&self, record: &mut RecordParts<'_>, condition: AppendCondition<'_>) -> Result<AppendAttempt> {
        let attempt = self.engine.try_append(record, AppendRole::Reclaim, condition, None);
        attempt.map_err(|_| Error::new(ErrorKind::Full, NO_ROOM))
    }
}

impl EntryAppender for ReclaimAppender<'_> {
    async fn append_entry_record(&self, record: &mut RecordParts<'_>) -> Result<AppendAttempt> {
        self.append_now(record, AppendCondition::Reinserted { from: self.from, hits: self.hits })
    }

    async fn append_part(&self, part: &mut RecordParts<'_>) -> Result<AppendAttempt> {
        self.append_now(part, AppendCondition::Part)
    }
}

impl LogEngine {
    /// Appends the record of an entry, and before it the parts of its body if the body must be divided.
    ///
    /// # Errors
    /// `Unavailable` or `Closed` if nothing can be appended. `Full`: there is no space, or the body would have too many
    /// parts.
    pub(super) async fn append_divided(
        &self,
        record: &mut RecordParts<'_>,
        appender: impl EntryAppender,
    ) -> Result<AppendAttempt> {
        let mut attempt = appender.append_entry_record(record).await?;
        if !matches!(attempt, AppendAttempt::InParts(_)) {
            return Ok(attempt);
        }
        let mut body = BodyInParts::of(record);
        while let AppendAttempt::InParts(part_bytes) = attempt {
            assert!(part_bytes > 0, "a part has bytes, so that the loop ends");
            let next = body.next_part(part_bytes)?;
            let mut part = next.record(record);
            let appended = appender.append_part(&mut part).await?;
            let place = self.place_of_part(&part, appended);
            body.note_appended(next, place);
            let checksums = body.all_checksums(record.meta.body_bytes);
            attempt = appender.append_entry_record(&mut body.entry(record, &checksums)).await?;
        }
        Ok(attempt)
    }

    /// Returns where the body of an appended part is.
    fn place_of_part(&self, part: &RecordParts<'_>, attempt: AppendAttempt) -> BodyElsewhere {
        let AppendAttempt::Appended(appended) = attempt else { unreachable!("a part is appended without a condition") };
        let segment = self.geometry.segment_of(appended.position).expect("a record was appended within a segment");
        let start_bytes =
            self.geometry.segment_start_bytes(segment) + u64::from(part.meta.place) * self.geometry.step_bytes;
        let offset_bytes = start_bytes + part.before_body_bytes() as u64;
        BodyElsewhere { offset_bytes, sequence: part.meta.sequence }
    }
}
