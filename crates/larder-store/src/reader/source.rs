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

/// Reads the parts of a body that were not read together with its head.
pub(crate) trait BodySource: Send + Sync {
    fn volume(&self) -> &Volume;

    /// Returns the place of the body of a record that was found at `position`.
    fn body_place(&self, position: Sector, decoded: &DecodedRecord) -> BodyElsewhere;

    /// Returns whether the record at `position` may still be moved before it is written.
    fn may_move(&self, position: Sector) -> bool;

    /// Returns the pieces of the body of a record that was found at `position`, in order, each with its place.
    fn stretches(&self, position: Sector, decoded: &DecodedRecord, record: &[u8]) -> Vec<BodyStretch>;

    /// Returns whether the segment at `position` still has the use number `sequence`. A segment gets a new number when
    /// it is reused for other data.
    fn is_in_use(&self, position: Sector, sequence: u32) -> bool;

    /// Reads `sectors` from `position`, or fewer at the end of a segment. Returns `None` if `position` is outside of
    /// all segments.
    fn read_sectors(&self, position: Sector, sectors: u64) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// Removes the record at `position`, which is unreadable or lost, and all older records with the same hash from the
    /// index.
    fn forget_through(&self, key_hash: KeyHash, position: Sector);
}
