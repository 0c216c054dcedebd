//! The body of a response that is about to be stored, with the proof of what arrived.
//!
//! Invariant: a head is stored as that of a complete response only with a [`CompletedBody`] of the same length.

use bytes::Bytes;
use larder_http::{
    BodyPlace, StoredHead,
    framing::{BodyMeter, CompletedBody, EndMark},
};

/// The body of a response that is to be stored, or the proof that its chunks are stored.
/// [`commit`](crate::http::storing::commit) requires it, so no response is stored as complete without a proof.
///
/// ```
/// use larder_cache::http::committed_body::CommittedBody;
/// use larder_http::framing::{BodyMeter, EndMark};
///
/// let mut meter = BodyMeter::of_len(5);
/// meter.take(5);
/// let proof = meter.end(EndMark::Length).expect("all 5 bytes");
/// assert_eq!(CommittedBody::Whole(proof, vec!["hello".into()]).stored_len(), 5);
/// assert_eq!(CommittedBody::Part.stored_len(), 0);
/// ```
pub enum CommittedBody {
    /// The whole body in memory, and the proof that it is complete. It is stored in the same entry as its head.
    Whole(CompletedBody, Vec<Bytes>),
    /// The proof that the body is complete. All its chunks are already stored.
    Chunks(CompletedBody),
    /// Neither bytes nor a proof. Some chunks of the body are already stored, and the remainder can be requested (RFC
    /// 9111 3.3).
    Part,
}

impl CommittedBody {
    /// Creates the body for `head`, which replaces the head of a stored response. The body stays the same.
    pub(super) fn of_stored(head: &StoredHead, body: Bytes) -> Self {
        let mut meter = BodyMeter::of_len(head.body().len());
        meter.take(body.len() as u64);
        let completed = meter.end(EndMark::Length).expect("an entry is found only with all of its body");
        Self::Whole(completed, vec![body])
    }

    /// Returns the length of the body in bytes, or 0 if only a part is stored.
    pub fn stored_len(&self) -> u64 {
        match self {
            Self::Whole(completed, _) | Self::Chunks(completed) => completed.len(),
            Self::Part => 0,
        }
    }

    /// Returns the bytes to store in the same entry as `head`. There are none if the body is in chunks.
    ///
    /// # Panics
    /// The head and the proof disagree about the length of the body.
    pub(super) fn into_bytes(self, head: &StoredHead) -> Vec<Bytes> {
        let is_whole = matches!(head.body(), BodyPlace::Whole { .. });
        match self {
            Self::Whole(completed, bytes) => {
                assert!(is_whole && completed.len() == head.body().len(), "the body is what its head says");
                bytes
            }
            Self::Chunks(completed) => {
                assert!(!is_whole && completed.len() == head.body().len(), "the chunks are what their head says");
                Vec::new()
            }
            Self::Part => {
                assert!(!is_whole, "a part is stored in chunks");
                Vec::new()
            }
        }
    }
}
