//! The seam to an engine that reads the remainder of a body when a reader asks for it.
//!
//! A trait, so that the reader names no engine. Cost: one boxed future for each device read.

use crate::{
    Result,
    format::record::{BodyElsewhere, BodyStretch, DecodedRecord},
    hash::KeyHash,
    units::Sector,
    volume::Volume,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Reads the parts of a body that were not read with its head.
pub(crate) trait BodySource: Send + Sync {
    fn volume(&self) -> &Volume;

    /// Returns the place of the body of a record that was found at `position`.
    fn body_place(&self, position: Sector, decoded: &DecodedRecord) -> BodyElsewhere;

    /// Returns whether the record at `position` has no final place yet.
    fn may_move(&self, position: Sector) -> bool;

    /// Returns the places of the body of a record that was found at `position`, from start to end.
    fn stretches(&self, position: Sector, decoded: &DecodedRecord, record: &[u8]) -> Vec<BodyStretch>;

    /// Returns whether the segment at `position` is still in its use `sequence`. Afterwards, other bytes are there.
    fn is_in_use(&self, position: Sector, sequence: u32) -> bool;

    /// Reads `sectors` from `position`, or fewer at the end of a segment. Returns `None` if the position is in no
    /// segment.
    fn read_sectors(&self, position: Sector, sectors: u64) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// Forgets the record at `position`, which is unreadable or lost, and all older ones of its address.
    fn forget_through(&self, key_hash: KeyHash, position: Sector);
}
