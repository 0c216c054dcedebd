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
use larder_http::framing::{BodyMeter, CompletedBody, IncompleteBody};
use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, ResponseHead, WireFault, parse_response};
use tokio::io::ReadBuf;

use crate::{
    arrivals::{self, ARRIVALS_BYTES},
    body_budget::Reservation,
    origin::{
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

/// A connection of HTTP/1.1.
pub(crate) struct Http1Connection {
    link: OriginLink,
    /// The time by which each piece sent extends the deadline.
    patience: Duration,
    limits: HeadLimits,
    /// Whether another request may be sent once the present exchange is over.
    is_reusable: bool,
}

/// An exchange whose response has not begun.
pub(crate) struct Http1Exchange {
    method: Method,
    unsent: OutgoingMessage,
    /// The error that ended sending. The origin may have responded before.
    send_error: Option<io::Error>,
    /// The octets of an incomplete head.
    partial: Vec<u8>,
    /// Octets of `partial` that were found incomplete.
    examined: usize,
    interim: Option<InterimTaker>,
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

/// Takes an interim response.
pub(crate) type InterimTaker = Arc<dyn Fn(StatusCode, &HeaderMap) + Send + Sync>;

/// Why an exchange failed.
#[derive(Debug)]
pub(crate) enum ExchangeFault {
    Response(WireFault),
    /// The origin closed the connection before the end.
    Closed,
    Socket(io::Error),
    /// The client's body did not arrive whole.
    RequestBody(BodyFault),
}

impl Http1Connection {
    /// Returns a connection on which nothing was sent yet.
    pub(crate) fn new(stream: OriginStream, limits: HeadLimits) -> Self {
        let patience = stream.patience();
        Self { link: OriginLink::new(stream), patience, limits, is_reusable: true }
    }

    /// Takes over the time by which each piece sent extends the deadline, because another policy may apply to the next
    /// request.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        if self.patience != patience {
            self.patience = patience;
            self.link.set_patience(patience);
        }
    }

    /// Returns the stream of a connection that no longer carries HTTP. `after` are the octets that arrived after the
    /// head of the 101. Returns `None` if the request was not sent whole.
    pub(crate) fn into_switched(self, after: Bytes) -> Option<SwitchedStream> {
        self.link.into_switched(after)
    }

    /// Lets the rest of a request's body be sent although its response has ended. `place` is kept until then.
    pub(crate) fn finish_sending(&mut self, place: impl Send + 'static) {
        self.link.finish_sending(place);
    }

    /// Begins an exchange, whose interim responses go to `interim`.
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

    /// Returns whether the connection can take a request: its last exchange is over, and nothing has arrived since.
    pub(crate) fn is_free(&mut self) -> bool {
        let mut octet = [0];
        let mut buffer = ReadBuf::new(&mut octet);
        // The end of the connection, an octet that belongs to no response, or an error.
        self.is_reusable && self.link.poll_receive(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
    }

    /// Returns whether the last exchange left the connection in a state in which it can take another.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Waits for octets of a body, at most `wanted` of them. None arrive at the end of the connection.
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
    /// Sends the request, and waits for the head of the final response.
    pub(crate) fn poll_response(
        &mut self,
        connection: &mut Http1Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<Http1Body>, ExchangeFault>> {
        // A write error does not end the exchange, because the origin may have refused the request before it closed.
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
                // What arrives with the head is the first piece of the body.
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

    /// Returns the response with this head, and with the octets that arrived after the head.
    fn finish(
        &mut self,
        head: ResponseHead,
        after: &[u8],
        connection: &mut Http1Connection,
    ) -> Result<Response<Http1Body>, ExchangeFault> {
        let decoder = BodyDecoder::of_response(&head, &self.method, connection.limits);
        let decoder = decoder.map_err(ExchangeFault::Response)?;
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

    /// Returns the body if all of it arrived with its head.
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

    /// Returns the octets that arrived after the head of a response that has no body.
    pub(crate) fn into_received(self) -> Bytes {
        self.received
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

    /// Notes the end of a body, and marks the connection unusable if octets arrived after the end.
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

/// Most interim responses to one request.
pub(super) const INTERIM_COUNT_MAX: usize = 10_000;
