//! Records that are read along with a requested one, and the sink that takes them.

use super::Volume;
use crate::format::record::DecodedRecord;
use bytes::Bytes;
use std::sync::Arc;

/// A record that was read along with a requested one. It is an entry that may be served.
pub(crate) struct NeighborRecord {
    pub(crate) volume: Arc<Volume>,
    pub(crate) key: Bytes,
    pub(crate) record: Bytes,
    pub(crate) decoded: DecodedRecord,
}

/// Receives the records that one read brought along.
pub(crate) type RecordSink = Box<dyn Fn(NeighborRecord) + Send + Sync>;

/// Creates a sink for the records that one read brings along.
pub(crate) type BeginNeighbors = Arc<dyn Fn() -> RecordSink + Send + Sync>;
