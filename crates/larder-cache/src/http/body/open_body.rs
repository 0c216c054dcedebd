//! The body of a response that is shared: its bytes if it arrived with its head, otherwise an object.

use std::sync::Arc;

use bytes::Bytes;

use super::long_body::LongBody;
use crate::http::fetcher::Fetcher;

/// The body of a response that is shared.
pub enum OpenBody<F: Fetcher> {
    /// A whole body, which arrived with its head.
    Whole(Bytes),
    /// A body that arrives after its head.
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
    /// Returns whether the whole body has arrived.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Arriving(body) => body.is_complete(),
        }
    }

    /// Returns whether the body broke off, and nothing of it is still to come.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Arriving(body) => body.has_failed(),
        }
    }

    /// Receives and stores the whole body, even without clients.
    pub fn keep(&self) {
        if let Self::Arriving(body) = self {
            body.keep();
        }
    }
}
