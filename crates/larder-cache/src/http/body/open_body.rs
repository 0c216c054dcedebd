//! The body of a response that is shared: its bytes if it arrived with its head, otherwise an object.

use std::sync::Arc;

use bytes::Bytes;

use super::long_body::LongBody;
use crate::http::fetcher::Fetcher;

/// The body of a response that several clients may read.
pub enum OpenBody<F: Fetcher> {
    /// The whole body in memory, because it arrived together with its head.
    Whole(Bytes),
    /// A body that is still arriving, or was when its head arrived.
    Arriving(Arc<LongBody<F>>),
}

impl<F: Fetcher> Clone for OpenBody<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(bytes) => Self::Whole(bytes.clone()),
            Self::Arriving(body) => Self::Arriving(Arc::clone(body)),
        }
    }
}

impl<F: Fetcher> OpenBody<F> {
    /// Returns whether the body is complete.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Arriving(body) => body.is_complete(),
        }
    }

    /// Returns whether the body is incomplete, and nothing more of it is arriving.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Arriving(body) => body.has_failed(),
        }
    }

    /// Continues to receive and store the whole body, even without clients.
    pub fn keep(&self) {
        if let Self::Arriving(body) = self {
            body.keep();
        }
    }
}
