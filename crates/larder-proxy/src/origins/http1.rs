//! A connection of HTTP/1.1 to an origin: one exchange after the other, driven by the task that waits for it.
//!
//! Owns: the octets of a request on their way out, and those of a response on their way in. Heads and framing are
//! parsed by `larder_wire`. Deadlines, retries and the choice of a connection are decided elsewhere. Invariants:
//! a response with a faulty head or framing is an error, never a shorter response. A connection is reused only if its
//! request was sent whole, its response ended as announced, and nothing came after it.
//!
//! An origin may respond before the client has sent all of the request's body. Each side then moves by itself, because
//! a client may read nothing before it has sent everything: a task sends the rest of the body. Such a connection is not
//! reused.
//!
//! Memory: while nothing moves, a connection has no buffer. Octets are received into one buffer per thread, and copied
//! at their exact length. Only long bodies are received in place. Cost: a connection has neither a channel nor, but for
//! early responses, a task.

use std::{
    fmt, io,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use larder_http::{
    fields::{BodyLength, settle_response},
    framing::{BodyMeter, CompletedBody, IncompleteBody},
};
use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, ResponseHead, WireFault, parse_response};
use tokio::io::ReadBuf;

use crate::{
    ground::{
        arrivals::{self, ARRIVALS_BYTES},
        cache::body_budget::Reservation,
    },
    origins::{
        request_body::{BodyFault, RequestBody},
        stream::OriginStream,
    },
};

mod link;
mod request;
#[cfg(test)]
mod tests;

use self::{
    link::OriginLink,
    request::{OutgoingMessage, SendFault, encode},
};

pub(crate) use self::link::{SwitchedStream, switched_stream};

/// An HTTP/1.1 connection to an origin.
pub(crate) struct Http1Connection {
    link: OriginLink,
    /// Time until the deadline after each piece of a request that is sent. The origin must accept the next piece before
    /// the deadline.
    patience: Duration,
    limits: HeadLimits,
    /// Whether the connection can take another request after the current exchange.
    is_reusable: bool,
}

/// A request on its way to the origin, until the head of its response has arrived.
pub(crate) struct Http1Exchange {
    method: Method,
    unsent: OutgoingMessage,
    /// The error that ended the sending of the request. The origin may nevertheless have sent a response.
    send_error: Option<io::Error>,
    /// The octets received so far of an incomplete response head.
    partial: Vec<u8>,
    /// Number of octets of `partial` that [`parse_response`] has found incomplete already.
    examined: usize,
    interim: Option<InterimTaker>,
    interim_count: usize,
    /// Whether any byte of a response has arrived.
    pub(crate) answered: bool,
}

/// The body of a response while it arrives.
#[derive(Debug)]
pub(crate) struct Http1Body {
    decoder: BodyDecoder,
    received: Bytes,
    /// Reservation for the octets that arrived with the head, released when they are read.
    arrived_with_head: Option<Reservation>,
    /// Whether `received` is the whole body, decoded already. Otherwise it contains octets that are still to be
    /// decoded.
    is_decoded: bool,
    /// Counts the decoded octets, to prove that the body is complete.
    meter: BodyMeter,
}

/// A function that receives the interim responses (1xx) to a request.
pub(crate) type InterimTaker = Arc<dyn Fn(StatusCode, &HeaderMap) + Send + Sync>;

/// Why an exchange with an origin failed.
#[derive(Debug)]
pub(crate) enum ExchangeFault {
    Response(WireFault),
    /// The origin closed the connection before the response was complete.
    Closed,
    Socket(io::Error),
    /// The body of the client's request did not arrive completely.
    RequestBody(BodyFault),
}

impl Http1Connection {
    /// Creates a connection on which nothing was sent yet.
    pub(crate) fn new(stream: OriginStream, limits: HeadLimits) -> Self {
        let patience = stream.patience();
        Self { link: OriginLink::new(stream), patience, limits, is_reusable: true }
    }

    /// Sets the time until the deadline after each piece that is sent, because the next request may have another
    /// policy.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        if self.patience != patience {
            self.patience = patience;
            self.link.set_patience(patience);
        }
    }

    /// Turns the connection into a byte stream, after a 101. `after` are the octets that arrived behind the head of the
    /// 101.
    ///
    /// Returns `None` if the request was not sent completely.
    pub(crate) fn into_switched(self, after: Bytes) -> Option<SwitchedStream> {
        self.link.into_switched(after)
    }

    /// Sends the remainder of a request's body although its response has ended. `place` is dropped when that is done.
    pub(crate) fn finish_sending(&mut self, place: impl Send + 'static) {
        self.link.finish_sending(place);
    }

    /// Begins an exchange. `interim` receives its interim responses.
    pub(crate) fn begin(&mut self, request: Request<RequestBody>, interim: Option<InterimTaker>) -> Http1Exchange {
        debug_assert!(self.is_reusable, "an exchange begins on a connection that is free");
        self.is_reusable = false;
        Http1Exchange {
            method: request.method().clone(),
            interim,
            unsent: encode(request),
            send_error: None,
            partial: Vec::new(),
            examined: 0,
            interim_count: 0,
            answered: false,
        }
    }

    /// Returns whether the connection can take a request: its last exchange is complete, and nothing has arrived since.
    pub(crate) fn is_free(&mut self) -> bool {
        let mut octet = [0];
        let mut buffer = ReadBuf::new(&mut octet);
        // If reading is ready, the origin has closed the connection, sent an unexpected octet, or the connection broke.
        self.is_reusable && self.link.poll_receive(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
    }

    /// Returns whether the last exchange ended in a way that permits another exchange on the connection.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Waits for octets of a body and returns at most `wanted` of them, or none if the origin has closed the
    /// connection.
    fn poll_octets(&mut self, context: &mut Context<'_>, wanted: u64) -> Poll<Result<Bytes, ExchangeFault>> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let read_len = self.link.read_len();
        if read_len <= ARRIVALS_BYTES {
            return arrivals::with(|arrivals| {
                let mut buffer = ReadBuf::new(&mut arrivals[..wanted.min(read_len)]);
                ready!(self.link.poll_receive(context, &mut buffer)).map_err(ExchangeFault::Socket)?;
                Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
            });
        }
        let (polled, octets) = arrivals::take_long(|buffer| self.link.poll_receive_into(context, buffer, wanted));
        ready!(polled).map_err(ExchangeFault::Socket)?;
        Poll::Ready(Ok(octets))
    }
}

impl Http1Exchange {
    /// Sends the request, and waits for the head of its final response.
    pub(crate) fn poll_response(
        &mut self,
        connection: &mut Http1Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<Http1Body>, ExchangeFault>> {
        // A write error does not end the exchange: the origin may have sent a refusal before it closed the connection.
        if self.send_error.is_none()
            && let Poll::Ready(Err(fault)) = connection.link.poll_send(&mut self.unsent, context)
        {
            match fault {
                SendFault::Socket(error) => self.send_error = Some(error),
                SendFault::Body(fault) => return Poll::Ready(Err(ExchangeFault::RequestBody(fault))),
            }
        }
        loop {
            let received = ready!(arrivals::with(|arrivals| {
                // Octets that arrive together with the head are the first piece of the body.
                let read_len = connection.link.head_read_len().min(ARRIVALS_BYTES);
                let mut buffer = ReadBuf::new(&mut arrivals[..read_len]);
                ready!(connection.link.poll_receive(context, &mut buffer)).map_err(ExchangeFault::Socket)?;
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

    /// Adds received octets to the head. Returns the response when its head is complete.
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
            let parsed = parse_response(octets, std::mem::take(&mut self.examined), connection.limits);
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
                return Err(ExchangeFault::Response(WireFault::Malformed("it sends interim responses only")));
            }
            if let Some(listener) = &self.interim {
                listener(head.status, &head.fields);
            }
            if octets.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Creates the response from its head and the octets that arrived behind the head.
    fn finish(
        &mut self,
        mut head: ResponseHead,
        after: &[u8],
        connection: &mut Http1Connection,
    ) -> Result<Response<Http1Body>, ExchangeFault> {
        let length = match head.status {
            // Whether the request asked for another protocol is checked by whoever sent it.
            StatusCode::SWITCHING_PROTOCOLS => Ok(BodyLength::Unstated),
            status => settle_response(status, &mut head.fields, head.version),
        };
        let length = length.map_err(|error| ExchangeFault::Response(WireFault::Framing(error)))?;
        let decoder = BodyDecoder::of_length(length, head.status, &self.method, connection.limits);
        let is_sent = match (&self.send_error, self.unsent.is_sent()) {
            (None, true) => true,
            (None, false) => {
                connection.link.send_in_task(std::mem::take(&mut self.unsent));
                false
            }
            (Some(_), _) => false,
        };
        connection.is_reusable = is_sent
            && head.persists()
            && head.status != StatusCode::SWITCHING_PROTOCOLS
            && !matches!(decoder, BodyDecoder::UntilClose);
        let meter = decoder.meter();
        let received = Bytes::copy_from_slice(after);
        let arrived_with_head = connection.link.reserve(received.len());
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
    /// Waits for the next part of the body. `None` is its end.
    ///
    /// `connection` may be `None` only if [`Self::is_off_the_wire`] returns `true`.
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

    /// Returns the proof that the body is complete, after all of it was returned.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.decoder.end_mark().map_or_else(|| Err(self.meter.break_off()), |mark| self.meter.end(mark))
    }

    /// Takes the body if all of it arrived together with its head, otherwise returns `None`.
    pub(crate) fn take_decoded(&mut self) -> Option<Bytes> {
        let is_empty = self.decoder.has_ended() && self.remaining() == Some(0);
        if !std::mem::take(&mut self.is_decoded) && !is_empty {
            return None;
        }
        self.arrived_with_head = None;
        let data = std::mem::take(&mut self.received);
        self.meter.take(data.len() as u64);
        Some(data)
    }

    fn counted(&mut self, data: Bytes) -> Frame<Bytes> {
        self.meter.take(data.len() as u64);
        Frame::data(data)
    }

    /// Returns the octets that arrived behind the head of a response without a body.
    pub(crate) fn into_received(self) -> Bytes {
        self.received
    }

    /// Returns whether the whole body was received, so that the connection is free.
    pub(crate) fn is_off_the_wire(&self) -> bool {
        self.decoder.has_ended()
    }

    /// Returns whether the whole body was returned to the reader.
    pub(crate) fn is_finished(&self) -> bool {
        self.decoder.has_ended() && !self.is_decoded
    }

    /// Returns the number of bytes still to be returned, or `None` if the origin did not announce the length.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let decoded = if self.is_decoded { self.received.len() as u64 } else { 0 };
        self.decoder.remaining().map(|left| left + decoded)
    }

    /// Decodes the body at once if all of it has arrived with its head, so that its connection is free.
    fn decode_whole(&mut self, connection: &mut Http1Connection) {
        let has_arrived = self.decoder.remaining().is_some_and(|left| left <= self.received.len() as u64);
        if has_arrived && let Ok(DecodedPart::Data(data)) = self.decoder.next(&mut self.received) {
            self.note_end(connection);
            (self.received, self.is_decoded) = (data, true);
        }
    }

    /// Prevents reuse of the connection if more octets have arrived than belong to the body.
    fn note_end(&self, connection: &mut Http1Connection) {
        if self.decoder.has_ended() {
            connection.is_reusable &= self.received.is_empty();
        }
    }
}

impl fmt::Display for ExchangeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(WireFault::TooLarge) => f.write_str("its response has a head that is too large"),
            Self::Response(WireFault::Framing(error)) => error.fmt(f),
            Self::Response(fault) => write!(f, "its response is malformed: {fault}"),
            Self::Closed => f.write_str("it closes the connection before its response ends"),
            Self::Socket(error) => error.fmt(f),
            Self::RequestBody(fault) => fault.fmt(f),
        }
    }
}

/// Maximum number of interim responses to one request. More are a fault of the origin.
pub(super) const INTERIM_COUNT_MAX: usize = 10_000;
