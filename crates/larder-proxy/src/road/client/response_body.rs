//! The body of a response to a client, from any source.
//!
//! Owns: the only body type that connections use, and the ticket that is settled when the body ends. The sources fetch
//! and read the data. Invariant: a body that cannot be completed ends with an error, so the connection is broken off
//! and the client notices the loss, but only after it has received the head and everything before the break. A body
//! never ends early without an error. Cost: whole bodies are passed by reference, without a copy or an allocation.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use larder_cache::http::answer::AnswerBody;
use tokio::sync::mpsc::Receiver;

use crate::{
    ground::{
        cache::{
            BodyError,
            body::{cursor::BodyCursor, parts::PartsReader},
        },
        delays::Pacer,
    },
    origins::{body::OriginBody, fetcher::OriginFetcher},
    road::{client::ticket::Ticket, encoder::Encoder},
    targets::links::LinkReplacer,
};

/// The body of a response to a client.
pub(crate) struct ResponseBody {
    source: Source,
    ticket: Option<Ticket>,
    /// The encoded status and field lines for HTTP/1.1, if the response's head has no map of fields. The lines lack
    /// Content-Length and Connection, which depend on the connection.
    lines: Vec<u8>,
}

enum Source {
    /// The body is empty, or all its data was sent.
    Empty,
    /// The remainder of the body is in memory as a whole.
    Whole(Bytes),
    /// A body from an origin, for this client only.
    Origin(OriginBody),
    /// A stored or arriving body, which other clients may read at the same time.
    Body(Box<BodyCursor>),
    /// Several ranges of a stored body, as one multipart body.
    Parts(Box<PartsReader>),
    /// Text about the progress of an operator's command.
    Told(Receiver<Bytes>),
    /// A body whose links are rewritten.
    Replaced(Box<ReplacedBody>),
    /// A body that is compressed.
    Encoded(Box<EncodedBody>),
    /// A body whose pieces wait for a rate limit.
    Paced(Box<PacedBody>),
    /// The body broke off with `error`. The client's connection gets the error once more than `flushed_before` flushes
    /// have completed.
    Breaking { error: BodyError, flushed_before: u64 },
}

/// Returns a plain text response that may not be stored.
pub(crate) fn text_response(status: StatusCode, text: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A body whose links are rewritten to lead to a mirror.
struct ReplacedBody {
    inner: Source,
    replacing: LinkReplacer,
    is_over: bool,
}

/// A body whose pieces wait for a rate limit.
struct PacedBody {
    inner: Source,
    /// The piece that waits for the rate limit.
    piece: Bytes,
    pacer: Pacer,
}

/// A body that is compressed with a content coding.
struct EncodedBody {
    inner: Source,
    /// The part of the current piece that is not compressed yet.
    piece: Bytes,
    /// The encoder. `None` once it has ended.
    encoder: Option<Encoder>,
    /// Whether the encoder may still buffer some input.
    is_holding: bool,
    /// Bytes compressed since this task last yielded.
    turn_bytes: usize,
}

impl From<AnswerBody<OriginFetcher>> for ResponseBody {
    fn from(body: AnswerBody<OriginFetcher>) -> Self {
        Self::of(match body {
            AnswerBody::Empty => Source::Empty,
            AnswerBody::Whole(bytes) => return Self::full(bytes),
            AnswerBody::Cursor(cursor) => Source::Body(cursor),
            AnswerBody::Parts(reader) => Source::Parts(reader),
            AnswerBody::Origin(body) => Source::Origin(body),
        })
    }
}

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        Self::of(Source::Empty)
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        let source = if bytes.is_empty() { Source::Empty } else { Source::Whole(bytes) };
        Self::of(source)
    }

    pub(crate) fn origin(body: OriginBody) -> Self {
        Self::of(Source::Origin(body))
    }

    /// Creates a body of the pieces that a channel receives. It ends when the sender is dropped.
    pub(crate) fn told(pieces: Receiver<Bytes>) -> Self {
        Self::of(Source::Told(pieces))
    }

    /// Returns whether the whole body is in memory.
    pub(crate) fn is_at_hand(&self) -> bool {
        matches!(self.source, Source::Empty | Source::Whole(_))
    }

    /// Returns this body with its links rewritten. The length of the result is unknown.
    pub(crate) fn replacing(self, replacing: LinkReplacer) -> Self {
        match self.source {
            Source::Empty => self,
            inner => Self::of(Source::Replaced(Box::new(ReplacedBody { inner, replacing, is_over: false }))),
        }
    }

    /// Returns this body compressed. The length of the result is known if the body is short and in memory.
    ///
    /// # Errors
    /// The body cannot be compressed. It is returned unchanged.
    #[expect(clippy::result_large_err, reason = "the body is returned unchanged, and is taken at once")]
    pub(crate) fn encoded(self, encoder: Encoder) -> Result<Self, Self> {
        if let Source::Whole(bytes) = &self.source
            && bytes.len() <= TURN_BYTES_MAX
        {
            return encoder.encode(bytes).map(Self::full).map_err(|_| self);
        }
        let encoder = Some(encoder);
        let piece = Bytes::new();
        let body = EncodedBody { inner: self.source, piece, encoder, is_holding: false, turn_bytes: 0 };
        Ok(Self::of(Source::Encoded(Box::new(body))))
    }

    /// Returns this body with the encoded lines of its response's head.
    pub(crate) fn with_lines(self, lines: Vec<u8>) -> Self {
        Self { lines, ..self }
    }

    /// Takes the encoded lines of the response's head. They are empty if the head has a map of fields.
    pub(crate) fn take_lines(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    /// Limits the rate at which this body is sent.
    pub(crate) fn pace(&mut self, pacer: Pacer) {
        if let Source::Empty | Source::Breaking { .. } = self.source {
            return;
        }
        let inner = std::mem::replace(&mut self.source, Source::Empty);
        self.source = Source::Paced(Box::new(PacedBody { inner, piece: Bytes::new(), pacer }));
    }

    /// Attaches the ticket that counts and logs the exchange when this body ends.
    pub(crate) fn attach(&mut self, mut ticket: Ticket) {
        if self.is_end_stream() {
            ticket.note_sent(0, true);
        }
        self.ticket = Some(ticket);
    }

    fn of(source: Source) -> Self {
        Self { source, ticket: None, lines: Vec::new() }
    }

    /// Reports the error once all earlier output was written, so that the client first receives the head and the data
    /// before it.
    fn poll_breaking(&mut self, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Source::Breaking { error, flushed_before } = self.source else { return Poll::Pending };
        if let Some(ticket) = &mut self.ticket {
            // A connection of HTTP/1.1 writes all output before it reports an error, so there is nothing to wait for.
            if ticket.client().is_http2() && !ticket.client().flushed.is_after(flushed_before, context) {
                return Poll::Pending;
            }
            ticket.note_broken(error);
        }
        Poll::Ready(Some(Err(error)))
    }
}

impl Source {
    /// Returns whether the body is known to have no more data.
    fn is_over(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(_) | Self::Breaking { .. } | Self::Told(_) | Self::Replaced(_) => false,
            Self::Origin(body) => body.is_finished(),
            Self::Body(cursor) => cursor.remaining() == Some(0),
            Self::Parts(reader) => reader.remaining() == 0,
            Self::Encoded(body) => body.encoder.is_none(),
            Self::Paced(body) => body.piece.is_empty() && body.inner.is_over(),
        }
    }

    /// Returns the number of bytes still to come, or `None` if it is unknown.
    fn remaining(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Breaking { .. } | Self::Told(_) | Self::Replaced(_) | Self::Encoded(_) => None,
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Origin(body) => body.remaining(),
            Self::Body(cursor) => cursor.remaining(),
            Self::Parts(reader) => Some(reader.remaining()),
            Self::Paced(body) => body.inner.remaining().map(|left| left + body.piece.len() as u64),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = match self {
            Self::Empty | Self::Breaking { .. } => None,
            Self::Whole(_) => match std::mem::replace(self, Self::Empty) {
                Self::Whole(bytes) => Some(Ok(bytes)),
                _ => None,
            },
            Self::Origin(body) => return body.poll_frame(context),
            Self::Body(cursor) => return cursor.poll_frame(context),
            Self::Parts(reader) => ready!(reader.poll_data(context)),
            Self::Told(pieces) => ready!(pieces.poll_recv(context)).map(Ok),
            Self::Replaced(body) => return body.poll(context),
            Self::Encoded(body) => return body.poll(context),
            Self::Paced(body) => return body.poll(context),
        };
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }
}

impl ReplacedBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.is_over {
            match ready!(self.inner.poll(context)) {
                Some(Ok(frame)) => {
                    // Trailers are dropped, because they describe the body with its original links.
                    let Ok(data) = frame.into_data() else { continue };
                    let data = self.replacing.push(&data);
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_over = true,
            }
        }
        let rest = self.replacing.end();
        Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))))
    }
}

impl PacedBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while self.piece.is_empty() {
            match ready!(self.inner.poll(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.piece = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let leave = ready!(self.pacer.poll_take(self.piece.len(), context));
        Poll::Ready(Some(Ok(Frame::data(self.piece.split_to(leave)))))
    }
}

impl EncodedBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            let encoded = if self.piece.is_empty() {
                match self.inner.poll(context) {
                    Poll::Ready(Some(Ok(frame))) => {
                        // Trailers are dropped, because they describe the body before it was compressed.
                        self.piece = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => self.encoder.take().map_or(Ok(Bytes::new()), Encoder::finish),
                    Poll::Pending => {
                        self.turn_bytes = 0;
                        if !std::mem::take(&mut self.is_holding) {
                            return Poll::Pending;
                        }
                        // The next data may take long to arrive, so the client receives everything up to this point.
                        encoder.flush()
                    }
                }
            } else if self.turn_bytes >= TURN_BYTES_MAX {
                // One call can consume much input if the data compresses well, so other tasks get a turn.
                self.turn_bytes = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            } else {
                let piece = self.piece.split_to(self.piece.len().min(PIECE_BYTES_MAX));
                self.is_holding = true;
                self.turn_bytes += piece.len();
                encoder.push(&piece)
            };
            match encoded {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Err(error) => return Poll::Ready(Some(Err(not_encoded(error)))),
            }
        }
    }
}

fn not_encoded(error: std::io::Error) -> BodyError {
    tracing::warn!(%error, "cannot compress a response body: the response is cut off");
    BodyError::NotEncoded
}

/// Maximum length of a piece that is compressed at once, in bytes.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Number of bytes to compress before other tasks get a turn. Takes half a millisecond with the slowest coding.
const TURN_BYTES_MAX: usize = 64 << 10;

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if matches!(self.source, Source::Breaking { .. }) {
            return self.poll_breaking(context);
        }
        let piece = ready!(self.source.poll(context));
        if let (Some(Err(error)), Some(ticket)) = (&piece, &self.ticket) {
            let breaking = Source::Breaking { error: *error, flushed_before: ticket.client().flushed.count() };
            // Over HTTP/2, the connection's task writes the data.
            ticket.client().wake();
            self.source = breaking;
            return self.poll_breaking(context);
        }
        let ended = piece.is_none() || self.is_end_stream();
        if let Some(ticket) = &mut self.ticket {
            match &piece {
                Some(Ok(frame)) => {
                    ticket.note_sent(frame.data_ref().map_or(0, Bytes::len), ended);
                }
                // With a ticket, an error is reported only after the earlier output was written.
                Some(Err(_)) => {}
                None => ticket.note_sent(0, true),
            }
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
