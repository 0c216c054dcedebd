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
    figures::metrics::CountGuard,
    ground::{
        arrivals::{self, ARRIVALS_BYTES},
        received_body::IncomingBody,
    },
    road::client::{answer::ClientAnswer, interim::InterimQueue},
};

mod exchange;
mod response;

use self::exchange::{Exchange, ExchangeOutcome};

/// Connects an HTTP/1.1 connection with its owner, which answers the requests and sets the deadlines.
pub(crate) trait Http1Door {
    type Socket: AsyncRead + AsyncWrite + Unpin;

    fn limits(&self) -> HeadLimits;

    /// Returns the queue of interim responses (1xx) to the current request.
    fn interim(&self) -> &InterimQueue;

    /// Answers a request. If the parser refused its head, `fault` is the reason, and the answer reports it.
    fn answer(&self, request: Request<IncomingBody>, fault: Option<WireFault>) -> ClientAnswer;

    /// Hands the socket over after the current response, because another protocol follows. `first` are bytes read
    /// already.
    fn switch(&self, socket: Self::Socket, first: Bytes);

    /// Records that a part of a request's head has arrived.
    fn note_head(&self) {}

    /// Records that bytes were received or sent while a request is answered.
    fn note_progress(&self) {}

    /// Records that the client has closed its sending side, and later each time that bytes are sent to it.
    ///
    /// Such a client may still read the response, or may be gone. Only sending bytes to it shows which.
    fn note_half_close(&self) {}

    /// Records that a part of a response was sent.
    fn note_sending(&self) {}

    /// Records that the current exchange has ended.
    fn note_end(&self) {}

    /// Records a fault in the framing of the current request's body, after which the connection must close.
    fn note_fatal(&self, _fault: WireFault) {}

    /// Returns whether the next request must be left to the process that replaces this one.
    fn is_for_successor(&self) -> bool {
        false
    }

    /// Counts the connection as idle, while it waits for a request.
    fn count_idle(&self) -> Option<CountGuard> {
        None
    }

    /// Counts the connection as waiting, while its request has no response.
    fn count_waiting(&self) -> Option<CountGuard> {
        None
    }
}

/// A connection with one HTTP/1.1 client. Its owner `D` answers the requests.
pub(crate) struct DoorConnection<D: Http1Door> {
    link: SocketLink<D>,
    /// The octets of a request's head that is still incomplete.
    partial: Vec<u8>,
    /// Number of octets at the start of `partial` in which [`parse_request`] has found no complete head.
    examined: usize,
    /// Whether the connection has not received any request yet.
    is_first: bool,
    /// The current exchange, if it has to wait. Exchanges that end at once are not stored here and need no allocation.
    exchange: Option<Box<Exchange>>,
    is_closing: bool,
    /// Counts the connection as idle while it waits for a request.
    idle: Option<CountGuard>,
}

/// The socket of a connection, and the other parts that its exchanges use.
struct SocketLink<D: Http1Door> {
    door: D,
    /// The socket. `None` once it was handed over.
    socket: Option<D::Socket>,
    /// Octets that were read along with the current request's head and follow it.
    received: Bytes,
    /// Whether the connection closes after the current response.
    is_last: bool,
    /// Whether the client has closed its sending side.
    has_ended: bool,
}

impl<D: Http1Door> DoorConnection<D> {
    /// Creates a connection. `first` are bytes that were already read from the socket.
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

    /// Makes the connection close after the current response, or at once if there is none.
    pub(crate) fn close_after_response(&mut self) {
        self.link.is_last = true;
    }

    /// Returns whether the connection closes after the current response.
    pub(crate) fn closes_after_response(&self) -> bool {
        self.link.is_last
    }

    /// Returns whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.exchange.is_some()
    }

    /// Returns whether the client has sent anything after the current request (pipelining).
    pub(crate) fn has_pipelined(&self) -> bool {
        !self.link.received.is_empty()
    }

    /// Answers requests until the connection ends.
    ///
    /// Returns the socket if the next request must be left to the process that replaces this one, otherwise `None`.
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
            // Only a connection from which nothing of the next request was read can be handed over.
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

    /// Records the end of an exchange. Returns whether the socket was handed over to another owner.
    fn has_switched(&mut self, outcome: ExchangeOutcome) -> bool {
        self.link.door.note_end();
        self.is_closing |= outcome == ExchangeOutcome::Close;
        outcome == ExchangeOutcome::Switched
    }

    /// Waits for the head of a request and stores it in `arrived`, which stays `None` if the client has left.
    ///
    /// Returns the reason if the head is refused. The head is not part of the result, because each function that
    /// returns it would copy it.
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

    /// Adds received octets to the head. When it is complete, stores it in `arrived` and keeps the octets that follow
    /// it.
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

    /// Waits for octets from the client and returns at most `wanted` of them, or none if the client has closed its
    /// side.
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

    /// Waits until the connection breaks, while a request is answered.
    ///
    /// If the client sends its next request meanwhile, the octets read are kept and the connection is no longer
    /// watched. A client that closes only its sending side still receives the response.
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

    /// Writes the queued interim responses.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Pin::new(self.socket.as_mut().expect("a connection has its socket until it ends"));
        self.door.interim().poll_write(socket, context)
    }

    /// Writes a part of `out`. When its frame is written, returns the frame's buffer for reuse.
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
        self.door.note_sending();
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

    /// Closes the connection.
    ///
    /// Reads what has arrived first: closing a socket with unread bytes can make the client lose the response.
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

/// Maximum octets read at once while a head is expected. Octets that follow the head have to be copied, so larger reads
/// would cost more.
const HEAD_READ_BYTES: usize = 16 << 10;
/// Maximum number of reads that discard the client's octets before its connection closes.
const CLOSING_READ_COUNT_MAX: usize = 8;
