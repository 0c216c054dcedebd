//! A body that is received: of a client's request, or of an origin's response over HTTP/2.
//!
//! Owns: the judgment whether the body is complete. Invariant: the end is reported only for a complete body, and an
//! error for any other. Over HTTP/2 only END_STREAM ends a body. Over HTTP/1.1 only its last chunk or the whole length
//! does.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, Version, header::CONTENT_LENGTH};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use larder_http::framing::{BodyMeter, CompletedBody, IncompleteBody};
use larder_wire::WireFault;

use crate::client::http1::Http1Body;

/// A body as it arrives on a connection.
pub(crate) enum IncomingBody {
    /// From a connection of HTTP/1.1.
    Http1(Http1Body),
    /// Read by hyper.
    Library(Incoming),
    /// From a stream of HTTP/2.
    #[expect(dead_code, reason = "HTTP/2 uses hyper until its next change")]
    Http2(Http2Body),
}

/// The body in a stream of HTTP/2. The peer may send more as soon as bytes are taken.
pub(crate) struct Http2Body {
    stream: RecvStream,
    /// The bytes still to come, if the message announced the length.
    left: Option<u64>,
    is_data_over: bool,
}

/// A body that is being received.
pub(crate) struct ReceivedBody {
    incoming: IncomingBody,
    meter: BodyMeter,
}

/// Why a body does not arrive whole.
#[derive(Debug)]
pub(crate) enum ReceiveFault {
    Wire(WireFault),
    /// The connection ended.
    Closed,
    Library(hyper::Error),
    Http2(h2::Error),
    Incomplete(IncompleteBody),
}

impl Http2Body {
    /// Creates the body of a message with these fields.
    #[expect(dead_code, reason = "HTTP/2 uses hyper until its next change")]
    pub(crate) fn new(stream: RecvStream, fields: &HeaderMap) -> Self {
        let announced = fields.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        Self { stream, left: announced, is_data_over: false }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(bytes)) => {
                    // Fails only if more is released than was received.
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_data_over = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = ReceiveFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveFault>>> {
        match &mut *self {
            Self::Http1(body) => body.poll_frame(context),
            Self::Library(incoming) => Pin::new(incoming).poll_frame(context).map_err(ReceiveFault::Library),
            Self::Http2(body) => body.poll_frame(context).map_err(ReceiveFault::Http2),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Library(incoming) => incoming.is_end_stream(),
            Self::Http2(body) => body.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Library(incoming) => incoming.size_hint(),
            Self::Http1(body) => body.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Http2(body) => body.left.map_or_else(SizeHint::new, SizeHint::with_exact),
        }
    }
}

impl ReceivedBody {
    /// Takes the body of a request.
    pub(crate) fn of_request(request: Request<IncomingBody>) -> Self {
        let (head, body) = request.into_parts();
        Self::new(body, (head.version, &head.headers), true)
    }

    /// Creates the body of a message with this version and these fields. Without `has_content`, its fields describe
    /// another body, as in a response to HEAD.
    pub(crate) fn new(incoming: IncomingBody, (version, fields): (Version, &HeaderMap), has_content: bool) -> Self {
        let len = incoming.size_hint().exact().filter(|_| has_content);
        let len = if incoming.is_end_stream() { Some(0) } else { len };
        Self { incoming, meter: BodyMeter::of_message(version, fields, len) }
    }

    /// Returns the next bytes or the trailers, or `None` at the end of a complete body.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReceiveFault>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                self.meter.take(frame.data_ref().map_or(0, Bytes::len) as u64);
                Some(Ok(frame))
            }
            Some(Err(fault)) => Some(Err(fault)),
            None => self.end().err().map(|incomplete| Err(ReceiveFault::Incomplete(incomplete))),
        })
    }

    /// Returns the proof that the body is complete, once its end was reported.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.meter.end_reported(self.incoming.is_end_stream())
    }

    /// Returns whether the message's end was received with the last bytes.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Returns the number of bytes still to come, if the message announced the length.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.meter.remaining()
    }
}

impl fmt::Display for ReceiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(fault) => fault.fmt(f),
            Self::Closed => f.write_str("the connection ended inside it"),
            Self::Library(error) => error.fmt(f),
            Self::Http2(error) => error.fmt(f),
            Self::Incomplete(incomplete) => incomplete.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveFault {}
