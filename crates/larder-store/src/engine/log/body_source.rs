//! The log as the source of bodies that were not read with their heads.

use super::{LogEngine, layout::is_of_buffers};
use crate::{
    Result,
    format::record::{BodyElsewhere, BodyStretch, DecodedRecord},
    hash::KeyHash,
    reader::BodySource,
    units::Sector,
    volume::Volume,
};
use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};

impl BodySource for LogEngine {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn body_place(&self, position: Sector, decoded: &DecodedRecord) -> BodyElsewhere {
        Self::body_place(self, position, decoded)
    }

    /// Returns whether the record waits in memory for other records of its group. It moves when the group is written.
    fn may_move(&self, position: Sector) -> bool {
        let segment = self.geometry.segment_of(position);
        segment.is_some_and(|segment| is_of_buffers(self.segments.sequence(segment)))
    }

    fn stretches(&self, position: Sector, decoded: &DecodedRecord, record: &[u8]) -> Vec<BodyStretch> {
        Self::stretches(self, position, decoded, record)
    }

    fn is_in_use(&self, position: Sector, sequence: u32) -> bool {
        let segment = self.geometry.segment_of(position);
        segment.is_some_and(|segment| self.segments.sequence(segment) == sequence)
    }

    fn read_sectors(&self, position: Sector, sectors: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Self::read_sectors(self, position, sectors).boxed()
    }

    fn forget_through(&self, key_hash: KeyHash, position: Sector) {
        Self::forget_through(self, key_hash, position);
    }
}
