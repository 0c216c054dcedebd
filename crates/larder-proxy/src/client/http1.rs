//! A connection of HTTP/1.1 with a client: one exchange after the other.
//!
//! Owns: the socket, the octets that were read and are not used yet, and the end of the connection. `larder_wire` reads
//! and writes HTTP, and `exchange` takes a request to the end of its response. The [`Http1Door`] answers.
//!
//! Invariants: a connection moves to another process only between two requests and without an octet of the next one.
//! Octets after a faulty head are never read as a request. Memory: while nothing moves, a connection has no buffer.
//! Octets are read into one buffer per thread, and copied at their exact length. Cost: no timer and no allocation of
//! its own per request.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Request;
use larder_wire::{HeadLimits, OutgoingOctets, RefusedHead, RequestHead, WireFault, empty_lines_len, parse_request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    arrivals::{self, ARRIVALS_BYTES},
    client::{answer::ClientAnswer, interim::InterimQueue},
    metrics::CountGuard,
    received_body::IncomingBody,
};

mod body;
mod exchange;
mod response;

pub(crate) use self::body::LinkedBody;
use self::exchange::{Exchange, ExchangeOutcome};

/// The owner of a connection of HTTP/1.1, which answers its requests and sets its deadlines.
pub(crate) trait Http1Door {
    type Socket: AsyncRead + AsyncWrite + Unpin;

    fn limits(&self) -> HeadLimits;

    /// Returns the interim responses to the present request.
    fn interim(&self) -> &InterimQueue;

    /// Answers a request. `fault` says why its head is refused.
    fn answer(&self, request: Request<IncomingBody>, fault: Option<WireFault>) -> ClientAnswer;

    /// Hands the socket over after the present response, with bytes that were already read, because the bytes after it
    /// are not HTTP.
    fn switch(&self, socket: Self::Socket, first: Bytes);

    /// Notes that octets of a head have arrived.
    fn note_head(&self) {}

    /// Notes that octets have moved while a request is answered.
    fn note_progress(&self) {}

    /// Notes that the client has ended its side while a request is answered, or that octets have moved since. Only
    /// sending tells whether it still reads.
    fn note_half_close(&self) {}

    /// Notes that the present exchange has ended.
    fn note_end(&self) {}

    /// Notes a fault in the body of the present request.
    fn note_fatal(&self, _fault: WireFault) {}

    /// Returns whether the next request must be left to another process.
    fn is_for_successor(&self) -> bool {
        false
    }

    /// Counts the connection while it waits for a request.
    fn count_idle(&self) -> Option<CountGuard> {
        None
    }

    /// Counts a request while it waits for its response.
    fn count_waiting(&self) -> Option<CountGuard> {
        None
    }
}

/// A connection of HTTP/1.1.
pub(crate) struct DoorConnection<D: Http1Door> {
    link: SocketLink<D>,
    /// The octets of an incomplete head.
    partial: Vec<u8>,
    /// Octets of `partial` that were found incomplete.
    examined: usize,
    /// Whether no request has arrived yet.
    is_first: bool,
    /// The exchange that waits for something. Those that end at once need no allocation.
    exchange: Option<Box<Exchange>>,
    is_closing: bool,
    /// Counts the connection while it waits for a request.
    idle: Option<CountGuard>,
}

/// The socket of a connection, and what its exchanges share.
struct SocketLink<D: Http1Door> {
    door: D,
    /// `None` once another owner has it.
    socket: Option<D::Socket>,
    /// Octets after the present head that were read with it, and not used yet.
    received: Bytes,
    /// Whether the present response is the last.
    is_last: bool,
    /// Whether the client has ended its side.
    has_ended: bool,
}

impl<D: Http1Door> DoorConnection<D> {
    /// Creates a connection. `first` are bytes that were already read.
    pub(crate) fn new(door: D, socket: D::Socket, first: Bytes) -> Self {
        Self {
            link: SocketLink { door, socket: Some(socket), received: first, is_last: false, has_ended: false },
            partial: Vec::new(),
            examined: 0,
            is_first: true,
            exchange: None,
            is_closing: false,
            idle: None,
        }
    }

    /// Makes the present response the last one. A connection without one closes.
    pub(crate) fn close_after_response(&mut self) {
        self.link.is_last = true;
    }

    /// Returns whether the present response is the last one.
    pub(crate) fn closes_after_response(&self) -> bool {
        self.link.is_last
    }

    /// Returns whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.exchange.is_some()
    }

    /// Returns whether octets after the present request were read.
    pub(crate) fn has_pipelined(&self) -> bool {
        !self.link.received.is_empty()
    }

    /// Answers requests until the connection ends. Returns the socket if the next request must be left to another
    /// process.
    ///
    /// # Errors
    /// The connection is broken, or a response cannot be completed.
    pub(crate) fn poll_requests(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<D::Socket>>> {
        if let Some(exchange) = &mut self.exchange {
            let outcome = ready!(exchange.poll(&mut self.link, context))?;
            self.exchange = None;
            if self.has_switched(outcome) {
                return Poll::Ready(Ok(None));
            }
        }
        loop {
            if self.is_closing || self.link.is_last {
                self.is_closing = true;
                return self.link.poll_close(context).map_ok(|()| None);
            }
            // Not an octet of the next request was read.
            let is_at_start = self.partial.is_empty() && self.link.received.is_empty();
            if is_at_start && self.link.door.is_for_successor() {
                return Poll::Ready(Ok(self.link.socket.take()));
            }
            let mut arrived = None;
            let fault = ready!(self.poll_head(&mut arrived, context))?;
            let Some(head) = arrived else { return Poll::Ready(Ok(None)) };
            let mut exchange = Exchange::begin(&mut self.link, head, fault, context);
            let Poll::Ready(outcome) = exchange.poll(&mut self.link, context)? else {
                self.exchange = Some(Box::new(exchange));
                return Poll::Pending;
            };
            if self.has_switched(outcome) {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Notes the end of an exchange. Returns whether another owner has the socket.
    fn has_switched(&mut self, outcome: ExchangeOutcome) -> bool {
        self.link.door.note_end();
        self.is_closing |= outcome == ExchangeOutcome::Close;
        outcome == ExchangeOutcome::Switched
    }

    /// Waits for the head of a request. Sets `arrived` to it, unless the client has left, and returns why it is
    /// refused, if it is. A head that were returned would be copied by each result that it passes through.
    fn poll_head(
        &mut self,
        arrived: &mut Option<RequestHead>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<WireFault>>> {
        let pipelined = std::mem::take(&mut self.link.received);
        let mut taken = if pipelined.is_empty() { Ok(()) } else { self.take(&pipelined, arrived) };
        drop(pipelined);
        loop {
            match taken {
                Ok(()) if arrived.is_none() => {}
                Ok(()) => return Poll::Ready(Ok(None)),
                Err(RefusedHead { fault: fault @ WireFault::NoRequest, .. }) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
                }
                Err(RefusedHead { fault, head }) => {
                    self.link.is_last = true;
                    *arrived = Some(*head);
                    return Poll::Ready(Ok(Some(fault)));
                }
            }
            let read = arrivals::with(|buffer| {
                let mut buffer = ReadBuf::new(&mut buffer[..HEAD_READ_BYTES]);
                ready!(self.link.socket().poll_read(context, &mut buffer))?;
                let octets = buffer.filled();
                Poll::Ready(Ok::<_, io::Error>((!octets.is_empty()).then(|| self.take(octets, arrived))))
            });
            taken = match read {
                Poll::Ready(Ok(Some(taken))) => taken,
                Poll::Ready(Ok(None)) if self.partial.is_empty() => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(None)) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if self.partial.is_empty() && self.idle.is_none() {
                        self.idle = self.link.door.count_idle();
                    }
                    return Poll::Pending;
                }
            };
        }
    }

    /// Takes received octets. Sets `arrived` to the head once it is complete. What follows it is kept.
    fn take(&mut self, octets: &[u8], arrived: &mut Option<RequestHead>) -> Result<(), RefusedHead> {
        self.idle = None;
        self.link.door.note_head();
        let mut partial = std::mem::take(&mut self.partial);
        let octets = if partial.is_empty() {
            octets
        } else {
            partial.extend_from_slice(octets);
            &partial
        };
        let skipped = empty_lines_len(octets);
        let octets = &octets[skipped..];
        if octets.is_empty() {
            self.examined = 0;
            return Ok(());
        }
        let parsed = parse_request(octets, self.examined, self.is_first, self.link.door.limits());
        self.examined = 0;
        match parsed? {
            Some((head, len)) => {
                if len < octets.len() {
                    self.link.received = Bytes::copy_from_slice(&octets[len..]);
                }
                self.is_first = false;
                *arrived = Some(head);
            }
            None => {
                self.examined = octets.len();
                self.partial = if partial.is_empty() || skipped > 0 { octets.to_vec() } else { partial };
            }
        }
        Ok(())
    }
}

impl<D: Http1Door> SocketLink<D> {
    fn socket(&mut self) -> Pin<&mut D::Socket> {
        Pin::new(self.socket.as_mut().expect("a connection has its socket until it ends"))
    }

    /// Waits for octets, at most `wanted` of them. None arrive at the end of the connection.
    fn poll_octets(&mut self, context: &mut Context<'_>, wanted: u64) -> Poll<io::Result<Bytes>> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(ARRIVALS_BYTES);
        let octets = ready!(arrivals::with(|buffer| {
            let mut buffer = ReadBuf::new(&mut buffer[..wanted]);
            ready!(self.socket().poll_read(context, &mut buffer))?;
            Poll::Ready(Ok::<_, io::Error>(Bytes::copy_from_slice(buffer.filled())))
        }))?;
        self.door.note_progress();
        Poll::Ready(Ok(octets))
    }

    /// Waits until the connection breaks. If the client sends another request meanwhile, its first octets are kept, and
    /// the client is not watched any more. A client that ends its side still gets the present response.
    fn poll_break(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.has_ended || !self.received.is_empty() || self.door.is_for_successor() {
            return Poll::Pending;
        }
        match ready!(self.poll_octets(context, HEAD_READ_BYTES as u64)) {
            Ok(octets) if octets.is_empty() => {
                self.has_ended = true;
                self.is_last = true;
                self.door.note_half_close();
                Poll::Pending
            }
            Ok(octets) => {
                self.received = octets;
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }

    /// Writes the interim responses that wait.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Pin::new(self.socket.as_mut().expect("a connection has its socket until it ends"));
        self.door.interim().poll_write(socket, context)
    }

    /// Writes some of the octets on their way out. Returns an emptied frame, to be used again.
    fn poll_write(&mut self, out: &mut OutgoingOctets, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let slices = out.slices();
        let socket = self.socket();
        let sent = ready!(match (slices[0].is_empty(), slices[1].is_empty()) {
            (_, true) => socket.poll_write(context, &slices[0]),
            (true, false) => socket.poll_write(context, &slices[1]),
            (false, false) => socket.poll_write_vectored(context, &slices),
        })?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        if self.has_ended {
            self.door.note_half_close();
        } else {
            self.door.note_progress();
        }
        Poll::Ready(Ok(out.advance(sent)))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_flush(context)
    }

    /// Closes the connection. What has arrived is read, because closing with unread bytes could discard the response.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.socket().poll_shutdown(context))?;
        for _ in 0..CLOSING_READ_COUNT_MAX {
            match self.poll_octets(context, ARRIVALS_BYTES as u64) {
                Poll::Ready(Ok(octets)) if !octets.is_empty() => {}
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Most octets that are read at once while a head is expected. What follows the head is copied.
const HEAD_READ_BYTES: usize = 16 << 10;
/// Most reads that discard what a client has sent before its connection closes.
const CLOSING_READ_COUNT_MAX: usize = 8;
