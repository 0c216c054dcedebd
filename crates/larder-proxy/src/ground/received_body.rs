//! A body that is received: of a client's request, or of an origin's response over HTTP/2.
//!
//! Owns: the decision whether the body is complete. Invariant: the end is reported only for a complete body, and an
//! error for any other. Over HTTP/2, only END_STREAM completes a body. Over HTTP/1.1, only the last chunk or the
//! announced length does.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, StatusCode, Version, header::CONTENT_LENGTH};
use http_body::{Body, Frame, SizeHint};
use larder_http::{
    framing::{BodyMeter, CompletedBody, IncompleteBody},
    interim::expects_continue,
};
use larder_wire::WireFault;

use crate::ground::{
    http2::{pipe::OpeningPipe, reply::StreamReply},
    linked_body::LinkedBody,
};

/// A body that arrives on a connection, over either version of HTTP.
pub(crate) enum IncomingBody {
    /// A body on an HTTP/1.1 connection.
    Http1(LinkedBody),
    /// A body on an HTTP/2 stream.
    Http2(Http2Body),
    /// No body, because the request is a CONNECT over HTTP/2. The tunnel takes the pipe, which carries its bytes.
    Opaque(Option<Box<OpeningPipe>>),
}

/// A body on an HTTP/2 stream. Taking bytes permits the peer to send more.
pub(crate) struct Http2Body {
    stream: RecvStream,
    /// Number of bytes still to come. `None` if the message announced no length.
    left: Option<u64>,
    is_data_over: bool,
    /// The response side of the stream, if a client sends the body.
    reply: Option<Arc<StreamReply>>,
    /// Whether the client waits for a 100 (Continue) before it sends the body.
    awaits_continue: bool,
}

/// A body that is being received, with the meter that decides whether it is complete.
pub(crate) struct ReceivedBody {
    incoming: IncomingBody,
    meter: BodyMeter,
}

/// Why a body did not arrive completely.
#[derive(Debug)]
pub(crate) enum ReceiveFault {
    Wire(WireFault),
    /// The connection ended before the end of the body.
    Closed,
    Http2(h2::Error),
    Incomplete(IncompleteBody),
}

impl IncomingBody {
    /// Returns the response side of a client's HTTP/2 stream. `None` over HTTP/1.1 or for an origin's body.
    pub(crate) fn reply(&self) -> Option<&Arc<StreamReply>> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(body) => body.reply.as_ref(),
            Self::Opaque(pipe) => pipe.as_ref().map(|pipe| &pipe.reply),
        }
    }
}

impl Http2Body {
    /// Creates the body of a message on an HTTP/2 stream. `fields` are those of the message.
    pub(crate) fn new(stream: RecvStream, fields: &HeaderMap) -> Self {
        let left = fields.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        Self { stream, left, is_data_over: false, reply: None, awaits_continue: false }
    }

    /// Creates the body of a client's request on an HTTP/2 stream. `fields` are those of the request.
    pub(crate) fn of_client(stream: RecvStream, fields: &HeaderMap, reply: &Arc<StreamReply>) -> Self {
        let reply = Some(Arc::clone(reply));
        Self { reply, awaits_continue: expects_continue(fields), ..Self::new(stream, fields) }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            let data = self.stream.poll_data(context);
            if data.is_pending() && std::mem::take(&mut self.awaits_continue) {
                // A 100 is sent when the body is first read (RFC 9110 10.1.1).
                self.reply.iter().for_each(|reply| _ = reply.send_interim(StatusCode::CONTINUE, &HeaderMap::new()));
            }
            match ready!(data) {
                Some(Ok(bytes)) => {
                    // This fails only if more is released than was received.
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
            Self::Http2(body) => body.poll_frame(context).map_err(ReceiveFault::Http2),
            Self::Opaque(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.stream.is_end_stream(),
            Self::Opaque(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Http2(body) => body.left.map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Opaque(_) => SizeHint::with_exact(0),
        }
    }
}

impl ReceivedBody {
    /// Takes the body out of a request, and drops the head.
    pub(crate) fn of_request(request: Box<Request<IncomingBody>>) -> Self {
        let (head, body) = request.into_parts();
        Self::new(body, (head.version, &head.headers), true)
    }

    /// Creates a body to receive. The version and fields are those of its message.
    ///
    /// Without `has_content` there is no body, as in a response to HEAD, whose length describes the body of a GET.
    pub(crate) fn new(incoming: IncomingBody, (version, fields): (Version, &HeaderMap), has_content: bool) -> Self {
        let len = incoming.size_hint().exact().filter(|_| has_content);
        let len = if incoming.is_end_stream() { Some(0) } else { len };
        Self { incoming, meter: BodyMeter::of_message(version, fields, len) }
    }

    /// Waits for the next bytes or the trailers. `None` is the end of a complete body.
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

    /// Returns the proof that the body is complete, after its end was reported.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.meter.end_reported(self.incoming.is_end_stream())
    }

    /// Returns whether the end of the message was received.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Returns the number of bytes still to come. `None` if the message announced no length.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.meter.remaining()
    }
}

impl fmt::Display for ReceiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(fault) => fault.fmt(f),
            Self::Closed => f.write_str("the connection ended inside it"),
            Self::Http2(error) => error.fmt(f),
            Self::Incomplete(incomplete) => incomplete.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveFault {}
