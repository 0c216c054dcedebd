//! A response that is being stored while its body passes through.
//!
//! Invariant: the response becomes visible only if its body arrived complete. Needs memory for [`BATCH_BYTES`] and one
//! chunk of the cache below, whatever the length.

use crate::entries::{EntryWrite, INLINE_BYTES_MAX, StoredLongBody};
use bytes::Bytes;
use larder_cache::{Result, ValueWriter};
use larder_http::framing::CompletedBody;

/// A response that is being stored.
pub(crate) struct FillWriter {
    entry: EntryWrite,
    /// The bytes that are not written yet.
    pieces: Vec<Bytes>,
    pieces_bytes: u64,
    /// The writer of a long body, and the body's number.
    long: Option<(ValueWriter, u64)>,
    len_bytes: u64,
}

/// The outcome of storing a response.
#[derive(Default)]
pub(crate) struct FinishedFill {
    /// Whether the response is visible.
    pub(crate) is_stored: bool,
    /// The body, if it is long. It may be stored without its head.
    pub(crate) long: Option<StoredLongBody>,
}

/// Bytes that are written at once.
const BATCH_BYTES: u64 = 256 << 10;

impl FillWriter {
    pub(crate) fn new(entry: EntryWrite) -> Self {
        Self { entry, pieces: Vec::new(), pieces_bytes: 0, long: None, len_bytes: 0 }
    }

    /// Adds bytes. Returns whether [`FillWriter::flush`] is due.
    pub(crate) fn push(&mut self, bytes: Bytes) -> bool {
        self.len_bytes += bytes.len() as u64;
        self.pieces_bytes += bytes.len() as u64;
        self.pieces.push(bytes);
        self.pieces_bytes >= BATCH_BYTES
    }

    /// Writes the bytes so far. Returns `None` if that failed: the response is then not stored.
    pub(crate) async fn flush(mut self: Box<Self>) -> Option<Box<Self>> {
        match self.write_pieces().await {
            Ok(()) => Some(self),
            Err(error) => {
                tracing::debug!(%error, "a response could not be stored");
                None
            }
        }
    }

    /// Makes the response visible, now that its body is complete.
    pub(crate) async fn finish(self, completed: CompletedBody) -> FinishedFill {
        assert_eq!(completed.len(), self.len_bytes, "all bytes that passed are stored");
        self.try_finish().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "a response could not be stored");
            FinishedFill::default()
        })
    }

    async fn try_finish(mut self) -> Result<FinishedFill> {
        if self.long.is_none() && self.len_bytes <= INLINE_BYTES_MAX {
            let is_stored = self.entry.finish_inline(self.pieces.concat().into()).await?;
            return Ok(FinishedFill { is_stored, long: None });
        }
        self.write_pieces().await?;
        let (writer, representation) = self.long.take().expect("write_pieces creates the writer");
        writer.finish().await?;
        let long = self.entry.long_body(representation);
        let is_stored = self.entry.finish_separate(self.len_bytes, representation).await?;
        Ok(FinishedFill { is_stored, long: Some(long) })
    }

    async fn write_pieces(&mut self) -> Result<()> {
        if self.long.is_none() {
            self.long = Some(self.entry.body_writer()?);
        }
        let (writer, _) = self.long.as_mut().expect("set above");
        for piece in self.pieces.drain(..) {
            writer.write(piece).await?;
        }
        self.pieces_bytes = 0;
        Ok(())
    }
}
