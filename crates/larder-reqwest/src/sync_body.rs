//! A wrapper that makes a body `Sync`, as reqwest requires of bodies.
//!
//! A body is only read through a unique reference, so the lock is never contended.

use http_body::{Body, Frame, SizeHint};
use larder_cache::IgnorePoison;
use std::{
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
};

/// A body behind a lock, so that it can be shared between threads.
pub(crate) struct SyncBody<B> {
    body: Mutex<B>,
}

impl<B> SyncBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body: Mutex::new(body) }
    }
}

impl<B: Body + Unpin> Body for SyncBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(self.body.get_mut().ignore_poison()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().ignore_poison().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().ignore_poison().size_hint()
    }
}
