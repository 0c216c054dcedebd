//! A connection of HTTP/1.1 to an origin: one exchange after the other, driven by the task that waits for it.
//!
//! Owns: the octets of a request on their way out, and those of a response on their way in. Heads and framing are
//! parsed in `head` and `framing`. Deadlines, retries and the choice of a connection are decided elsewhere. Invariants:
//! a response with a faulty head or framing is an error, never a shorter response. A connection is reused only if its
//! request was sent whole, its response ended as announced, and nothing came after it.
//!
//! Memory: while nothing moves, a connection has no buffer. Octets are received into one buffer per thread, and copied
//! at their exact length. Only long bodies are received in place. Cost: a connection has neither a task nor a channel.
//! The HTTP library has both, and two buffers per connection. It still carries bodies that clients are sending,
//! upgrades and HTTP/2.
//!
//! Rejected: an I/O object that lends the library its buffers. The library allocates its read buffer before it knows
//! whether there is anything to read.

use std::{
    cell::RefCell,
    fmt, io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use larder_http::framing::{BodyMeter, CompletedBody, IncompleteBody};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, ReadBuf};

use crate::{body_budget::Reservation, origin::stream::OriginStream};

pub(crate) mod framing;
pub(crate) mod head;
mod request;
#[cfg(test)]
mod tests;

use self::{
    framing::{BodyDecoder, DecodedPart},
    head::{HeadLimits, ResponseFault, ResponseHead},
    request::{EncodedRequest, encode},
};

/// A connection of HTTP/1.1.
pub(crate) struct Http1Connection {
    stream: OriginStream,
    limits: HeadLimits,
    /// Room for further octets of a long body.
    spare: BytesMut,
    /// Whether another request may be sent once the present exchange is over.
    is_reusable: bool,
}

/// An exchange whose response has not begun.
pub(crate) struct Http1Exchange {
    method: Method,
    unsent: EncodedRequest,
    /// Octets of `unsent.head` that have left.
    sent_len: usize,
    /// The error that ended sending. The origin may have responded before.
    send_error: Option<io::Error>,
    /// The octets of an incomplete head.
    partial: Vec<u8>,
    /// Octets of `partial` that were found incomplete.
    examined: usize,
    interim: Option<InterimListener>,
    interim_count: usize,
    /// Set once a byte of a response has arrived.
    pub(crate) answered: bool,
}

/// The body of a response as it arrives.
#[derive(Debug)]
pub(crate) struct Http1Body {
    decoder: BodyDecoder,
    received: Bytes,
    /// Counts what arrived with the head until it is returned, because the response may wait until then.
    arrived_with_head: Option<Reservation>,
    /// Whether `received` is the whole body, which arrived with the head, rather than octets to be decoded.
    is_decoded: bool,
    /// The count of the octets that were returned.
    meter: BodyMeter,
}

/// The recipient of the interim responses to a request, in the request's extensions.
#[derive(Clone)]
pub(crate) struct InterimListener(pub(crate) InterimTaker);

/// Takes an interim response.
pub(crate) type InterimTaker = Arc<dyn Fn(StatusCode, &HeaderMap) + Send + Sync>;

/// Why an exchange failed.
#[derive(Debug)]
pub(crate) enum ExchangeFault {
    Response(ResponseFault),
    /// The origin closed the connection before the end.
    Closed,
    Socket(io::Error),
}

impl Http1Connection {
    /// Returns a connection on which nothing was sent yet.
    pub(crate) fn new(stream: OriginStream, limits: HeadLimits) -> Self {
        Self { stream, limits, spare: BytesMut::new(), is_reusable: true }
    }

    /// Returns the stream of a connection between two exchanges.
    pub(crate) fn into_stream(self) -> OriginStream {
        self.stream
    }

    /// Begins an exchange.
    pub(crate) fn begin(&mut self, mut request: Request<Bytes>) -> Http1Exchange {
        debug_assert!(self.is_reusable, "an exchange begins on a connection that is free");
        self.is_reusable = false;
        Http1Exchange {
            method: request.method().clone(),
            interim: request.extensions_mut().remove(),
            unsent: encode(request),
            sent_len: 0,
            send_error: None,
            partial: Vec::new(),
            examined: 0,
            interim_count: 0,
            answered: false,
        }
    }

    /// Returns whether the connection can take a request: its last exchange is over, and nothing has arrived since.
    pub(crate) fn is_free(&mut self) -> bool {
        let mut octet = [0];
        let mut buffer = ReadBuf::new(&mut octet);
        // The end of the connection, an octet that belongs to no response, or an error.
        self.is_reusable && self.stream.poll_receive(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
    }

    /// Returns whether the last exchange left the connection in a state in which it can take another.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Waits for octets of a body, at most `wanted` of them. None arrive at the end of the connection.
    fn poll_octets(&mut self, context: &mut Context<'_>, wanted: u64) -> Poll<Result<Bytes, ExchangeFault>> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let read_len = self.stream.read_len();
        if read_len <= ARRIVALS_BYTES {
            self.spare = BytesMut::new();
            return ARRIVALS.with_borrow_mut(|arrivals| {
                let mut buffer = ReadBuf::new(&mut arrivals[..wanted.min(read_len)]);
                ready!(self.stream.poll_receive(context, &mut buffer)).map_err(ExchangeFault::Socket)?;
                Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
            });
        }
        if self.spare.capacity() < wanted.min(ARRIVALS_BYTES) {
            self.spare = BytesMut::with_capacity(wanted.min(read_len));
        }
        let room = self.spare.capacity();
        let mut target = (&mut self.spare).limit(wanted.min(room));
        let receiving = pin!(self.stream.read_buf(&mut target));
        ready!(receiving.poll(context)).map_err(ExchangeFault::Socket)?;
        Poll::Ready(Ok(self.spare.split().freeze()))
    }
}

impl Http1Exchange {
    /// Sends the request, and waits for the head of the final response.
    pub(crate) fn poll_response(
        &mut self,
        connection: &mut Http1Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<Http1Body>, ExchangeFault>> {
        // A write error does not end the exchange, because the origin may have refused the request before it closed.
        if self.send_error.is_none()
            && let Poll::Ready(Err(error)) = self.poll_send(connection, context)
        {
            self.send_error = Some(error);
        }
        loop {
            let received = ready!(ARRIVALS.with_borrow_mut(|arrivals| {
                // What arrives with the head is the first piece of the body.
                let read_len = connection.stream.head_read_len().min(ARRIVALS_BYTES);
                let mut buffer = ReadBuf::new(&mut arrivals[..read_len]);
                ready!(connection.stream.poll_receive(context, &mut buffer)).map_err(ExchangeFault::Socket)?;
                Poll::Ready(self.take(buffer.filled(), connection))
            }));
            match received {
                Ok(None) => {}
                Ok(Some(response)) => return Poll::Ready(Ok(response)),
                Err(fault @ ExchangeFault::Response(_)) => return Poll::Ready(Err(fault)),
                Err(fault) => return Poll::Ready(Err(self.send_error.take().map_or(fault, ExchangeFault::Socket))),
            }
        }
    }

    fn poll_send(&mut self, connection: &mut Http1Connection, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let EncodedRequest { head, body } = &mut self.unsent;
        let mut stream = Pin::new(&mut connection.stream);
        while !head.is_empty() {
            let slices = [io::IoSlice::new(&head[self.sent_len..]), io::IoSlice::new(body)];
            let slices = if body.is_empty() { &slices[..1] } else { &slices[..] };
            let sent = ready!(stream.as_mut().poll_write_vectored(context, slices))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = sent.min(head.len() - self.sent_len);
            self.sent_len += of_head;
            body.advance(sent - of_head);
            if self.sent_len == head.len() {
                *head = Vec::new();
            }
        }
        while !body.is_empty() {
            match ready!(stream.as_mut().poll_write(context, body))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => body.advance(sent),
            }
        }
        *body = Bytes::new();
        stream.poll_flush(context)
    }

    /// Takes received octets. Returns the response once its head is complete.
    fn take(
        &mut self,
        received: &[u8],
        connection: &mut Http1Connection,
    ) -> Result<Option<Response<Http1Body>>, ExchangeFault> {
        if received.is_empty() {
            return Err(ExchangeFault::Closed);
        }
        self.answered = true;
        let joined = if self.partial.is_empty() {
            None
        } else {
            self.partial.extend_from_slice(received);
            Some(std::mem::take(&mut self.partial))
        };
        let mut octets = joined.as_deref().unwrap_or(received);
        loop {
            let parsed = head::parse(octets, std::mem::take(&mut self.examined), connection.limits);
            let Some((head, len)) = parsed.map_err(ExchangeFault::Response)? else {
                self.examined = octets.len();
                self.partial = octets.to_vec();
                return Ok(None);
            };
            octets = &octets[len..];
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return self.finish(head, octets, connection).map(Some);
            }
            self.interim_count += 1;
            if self.interim_count > INTERIM_COUNT_MAX {
                return Err(ExchangeFault::Response(ResponseFault::Malformed("it sends interim responses only")));
            }
            if let Some(InterimListener(listener)) = &self.interim {
                listener(head.status, &head.fields);
            }
            if octets.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Returns the response with this head, and with the octets that arrived after the head.
    fn finish(
        &mut self,
        head: ResponseHead,
        after: &[u8],
        connection: &mut Http1Connection,
    ) -> Result<Response<Http1Body>, ExchangeFault> {
        let decoder = BodyDecoder::of_response(&head, &self.method, connection.limits);
        let decoder = decoder.map_err(ExchangeFault::Response)?;
        let is_sent = self.unsent.head.is_empty() && self.unsent.body.is_empty() && self.send_error.is_none();
        connection.is_reusable = is_sent
            && head.persists()
            && head.status != StatusCode::SWITCHING_PROTOCOLS
            && !matches!(decoder, BodyDecoder::UntilClose);
        let meter = decoder.meter();
        let received = Bytes::copy_from_slice(after);
        let arrived_with_head = connection.stream.reserve(received.len());
        let mut body = Http1Body { decoder, received, arrived_with_head, is_decoded: false, meter };
        body.note_end(connection);
        body.decode_whole(connection);
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.fields;
        Ok(response)
    }
}

impl Http1Body {
    /// Returns the next part of the body, or `None` at the end. `connection` may be missing only after
    /// [`Self::is_off_the_wire`].
    pub(crate) fn poll_frame(
        &mut self,
        connection: Option<&mut Http1Connection>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeFault>>> {
        self.arrived_with_head = None;
        if self.is_decoded {
            self.is_decoded = false;
            let data = std::mem::take(&mut self.received);
            return Poll::Ready(Some(Ok(self.counted(data))));
        }
        let Some(connection) = connection else {
            debug_assert!(self.decoder.has_ended(), "the connection stays until the body has ended");
            return Poll::Ready(None);
        };
        loop {
            let part = self.decoder.next(&mut self.received);
            self.note_end(connection);
            match part {
                Ok(DecodedPart::Data(data)) => return Poll::Ready(Some(Ok(self.counted(data)))),
                Ok(DecodedPart::Trailers(fields)) => return Poll::Ready(Some(Ok(Frame::trailers(fields)))),
                Ok(DecodedPart::End) => return Poll::Ready(None),
                Err(fault) => return Poll::Ready(Some(Err(ExchangeFault::Response(fault)))),
                Ok(DecodedPart::More) => {}
            }
            let wanted = self.decoder.remaining().unwrap_or(u64::MAX);
            let received = ready!(connection.poll_octets(context, wanted));
            match received {
                Ok(octets) if !octets.is_empty() => self.received = octets,
                Ok(_) if matches!(self.decoder, BodyDecoder::UntilClose) => {
                    self.decoder = BodyDecoder::Closed;
                    return Poll::Ready(None);
                }
                Ok(_) => return Poll::Ready(Some(Err(ExchangeFault::Closed))),
                Err(fault) => return Poll::Ready(Some(Err(fault))),
            }
        }
    }

    /// Returns the proof that the body is complete, once all of it was returned.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.decoder.end_mark().map_or_else(|| Err(self.meter.break_off()), |mark| self.meter.end(mark))
    }

    fn counted(&mut self, data: Bytes) -> Frame<Bytes> {
        self.meter.take(data.len() as u64);
        Frame::data(data)
    }

    /// Returns whether the rest of the body no longer needs the connection.
    pub(crate) fn is_off_the_wire(&self) -> bool {
        self.decoder.has_ended()
    }

    /// Returns whether nothing more of the body will be returned.
    pub(crate) fn is_finished(&self) -> bool {
        self.decoder.has_ended() && !self.is_decoded
    }

    /// Returns the number of bytes that are still to be returned, if the origin announced the length.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let decoded = if self.is_decoded { self.received.len() as u64 } else { 0 };
        self.decoder.remaining().map(|left| left + decoded)
    }

    /// Decodes a body that has arrived in full with its head, so that its connection is free at once.
    fn decode_whole(&mut self, connection: &mut Http1Connection) {
        let has_arrived = self.decoder.remaining().is_some_and(|left| left <= self.received.len() as u64);
        if has_arrived && let Ok(DecodedPart::Data(data)) = self.decoder.next(&mut self.received) {
            self.note_end(connection);
            (self.received, self.is_decoded) = (data, true);
        }
    }

    /// Notes the end of a body: frees the connection's buffer, and marks the connection unusable if octets arrived
    /// after the end.
    fn note_end(&self, connection: &mut Http1Connection) {
        if self.decoder.has_ended() {
            connection.spare = BytesMut::new();
            connection.is_reusable &= self.received.is_empty();
        }
    }
}

impl fmt::Display for ExchangeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(ResponseFault::TooLarge) => f.write_str("its response has a head that is too large"),
            Self::Response(ResponseFault::Malformed(why)) => write!(f, "its response is malformed: {why}"),
            Self::Response(ResponseFault::Framing(error)) => error.fmt(f),
            Self::Closed => f.write_str("it closes the connection before its response ends"),
            Self::Socket(error) => error.fmt(f),
        }
    }
}

/// Most octets that are received at once into the thread's buffer.
pub(crate) const ARRIVALS_BYTES: usize = 64 << 10;
/// Most interim responses to one request.
const INTERIM_COUNT_MAX: usize = 10_000;

thread_local! {
    static ARRIVALS: RefCell<Box<[u8]>> = RefCell::new(vec![0; ARRIVALS_BYTES].into_boxed_slice());
}
