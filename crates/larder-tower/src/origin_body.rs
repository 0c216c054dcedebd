//! The body of an origin's response, whatever its type, as the cache receives it.

use bytes::{Buf, Bytes};
use http::response;
use http_body::{Body, Frame, SizeHint};
use larder_cache::http::{body::error::BodyError as ReceiveError, fetcher::IncomingBody};
use larder_http::{
    fields::{BodyLength, check_response},
    framing::{BodyMeter, CompletedBody, IncompleteBody},
};
use std::{
    error,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The error with which a response's body breaks off: the origin's error, or one of the cache.
///
/// ```
/// use larder_tower::BodyError;
/// use std::io;
///
/// /// Whether the connection to the origin broke off.
/// fn is_reset(error: &BodyError) -> bool {
///     let cause = error.downcast_ref::<io::Error>();
///     cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionReset)
/// }
///
/// assert!(is_reset(&io::Error::from(io::ErrorKind::ConnectionReset).into()));
/// assert!(!is_reset(&"the body is too short".into()));
/// ```
pub type BodyError = Box<dyn error::Error + Send + Sync>;

/// The body of an origin's response, and the meter that decides whether it arrived completely.
pub(crate) struct OriginBody {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>,
    meter: BodyMeter,
    has_trailers: bool,
}

/// Converts the data and errors of any body to the types of this crate.
struct UniformBody<B>(Pin<Box<B>>);

impl OriginBody {
    /// Creates the body of an origin's response with this `head`.
    ///
    /// The expected length is that of Content-Length, or else what `body` itself reports.
    pub(crate) fn new<B>(head: &response::Parts, body: B) -> Self
    where
        B: Body<Error: Into<BodyError>> + Send + 'static,
    {
        let stated = match check_response(&head.headers, head.version) {
            Ok(BodyLength::Length(len)) => Some(len),
            _ => body.size_hint().exact(),
        };
        let meter = BodyMeter::of_message(head.version, &head.headers, stated);
        Self { body: Box::pin(UniformBody(Box::pin(body))), meter, has_trailers: false }
    }

    /// Waits for the next data or the trailers. An error is returned as the origin reported it.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(self.body.as_mut().poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.meter.take(frame.data_ref().map_or(0, |bytes| bytes.len() as u64));
            self.has_trailers |= frame.is_trailers();
        }
        Poll::Ready(frame)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl IncomingBody for OriginBody {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        let frame = ready!(self.poll_next(context));
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                tracing::debug!(error, "the body of a response broke off");
                ReceiveError::OriginBroke
            })
        }))
    }

    fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.meter.end_reported(self.has_trailers || self.body.is_end_stream())
    }

    fn may_end_quietly(&self) -> bool {
        // Some libraries end a body without reporting whether END_STREAM was received.
        self.meter.remaining().is_none()
    }

    fn remaining(&self) -> Option<u64> {
        self.meter.remaining()
    }

    fn has_arrived(&self) -> bool {
        self.body.is_end_stream()
    }

    fn take_arrived(&mut self) -> Option<(Bytes, CompletedBody)> {
        let completed = Some(&self.body).filter(|body| body.is_end_stream()).and_then(|_| self.end().ok())?;
        completed.is_empty().then(|| (Bytes::new(), completed))
    }
}

impl<B: Body<Error: Into<BodyError>>> Body for UniformBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(self.0.as_mut().poll_frame(context));
        let in_bytes = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        Poll::Ready(frame.map(|frame| frame.map(in_bytes).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
