//! Bodies of requests on their way to an origin: none, or the client's, passed on as it arrives.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// The body of a request to an origin.
#[derive(Default)]
pub(crate) struct RequestBody(Option<Incoming>);

impl RequestBody {
    /// The client's body, streamed.
    pub(crate) fn of_client(body: Incoming) -> Self {
        Self(if body.is_end_stream() { None } else { Some(body) })
    }

    /// No body.
    pub(crate) fn none() -> Self {
        Self(None)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
