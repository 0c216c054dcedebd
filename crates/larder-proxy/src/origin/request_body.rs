//! Bodies of requests on their way to an origin: none, or the client's, passed on as it arrives.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::watch::Watched;

/// The body of a request to an origin.
#[derive(Default)]
pub(crate) struct RequestBody {
    incoming: Option<Incoming>,
    /// A deadline that every piece puts off.
    progress: Option<(Arc<Watched>, Duration)>,
}

impl RequestBody {
    /// The client's body, streamed.
    pub(crate) fn of_client(body: Incoming) -> Self {
        Self { incoming: if body.is_end_stream() { None } else { Some(body) }, progress: None }
    }

    /// No body.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// This body, each piece of which puts off a deadline that is set.
    pub(crate) fn with_progress(self, watched: Arc<Watched>, patience: Duration) -> Self {
        Self { progress: Some((watched, patience)), ..self }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.incoming else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if let Some((watched, patience)) = self.progress.as_ref().filter(|(watched, _)| watched.is_armed()) {
            watched.arm(*patience);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
