//! A connection to an origin as a byte stream, plain or TLS, that extends its deadline while it sends.
//!
//! Owns: the socket, and how many octets should be read at once: few while memory is short, many once a body is long.
//! Deadlines for the origin's response are armed by the code that waits for it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::ground::{
    arrivals::LONG_ARRIVALS_BYTES,
    cache::body_budget::{BodyBudget, Reservation, SHARE_BYTES_MIN},
    http2::pipe::Http2Pipe,
    watch::WatchedConnection,
};

/// The byte stream of a connection to an origin, plain or TLS.
pub(crate) struct OriginStream {
    transport: Transport,
    watched: Arc<WatchedConnection>,
    /// Time until the deadline after each piece that is sent, so that a long upload counts as progress.
    patience: Duration,
    /// Whether received bytes extend the deadline too. False for HTTP, where a head that trickles in is no progress.
    both_ways: bool,
    /// Number of bytes received since the last send.
    received: u64,
    /// The memory for bodies, which limits the size of reads. `None` for a tunnel.
    bodies: Option<Arc<BodyBudget>>,
}

/// The carrier of a stream: a plain socket, TLS, or one stream of an HTTP/2 connection.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Http2(Box<Http2Pipe>),
}

impl OriginStream {
    /// Creates a stream. Each piece that is sent moves its deadline to `patience` from that time.
    pub(crate) fn new(transport: Transport, watched: Arc<WatchedConnection>, patience: Duration) -> Self {
        Self { transport, watched, patience, both_ways: false, received: 0, bodies: None }
    }

    /// Makes this stream read less at once while the memory for bodies is short.
    pub(crate) fn within(self, bodies: &Arc<BodyBudget>) -> Self {
        Self { bodies: Some(Arc::clone(bodies)), ..self }
    }

    /// Creates the stream of a tunnel. Every byte in either direction extends its deadline.
    pub(crate) fn of_tunnel(socket: TcpStream, watched: Arc<WatchedConnection>, patience: Duration) -> Self {
        Self::new(Transport::Plain(socket), watched, patience).into_tunnel()
    }

    /// Turns this stream into that of a tunnel. Every byte in either direction then extends its deadline.
    pub(crate) fn into_tunnel(self) -> Self {
        Self { both_ways: true, ..self }
    }

    /// Returns the time until the deadline after each piece that is sent.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Sets the time until the deadline after each piece that is sent.
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Returns whether the stream uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }

    /// Returns the number of a body's octets to read at once: few while memory is short, many once the body is long.
    pub(super) fn read_len(&self) -> usize {
        match &self.bodies {
            Some(bodies) if bodies.is_scarce() => SHARE_BYTES_MIN as usize,
            _ if self.received < LONG_BYTES => SHORT_BODY_READ_BYTES,
            _ => LONG_ARRIVALS_BYTES,
        }
    }

    /// Returns the number of octets to read at once while a head is expected.
    ///
    /// They may include the start of a body, which stays in memory until it has a reader.
    pub(super) fn head_read_len(&self) -> usize {
        match &self.bodies {
            Some(bodies) if bodies.is_scarce() => SCARCE_HEAD_READ_BYTES,
            _ => self.read_len(),
        }
    }

    /// Reserves `len` octets of the memory for bodies, until the returned guard is dropped. `None` for a tunnel.
    pub(super) fn reserve(&self, len: usize) -> Option<Reservation> {
        self.bodies.as_ref().filter(|_| len > 0).map(|bodies| bodies.reserve(len as u64))
    }

    fn note_received(&mut self, len: usize) {
        self.received += len as u64;
        if self.both_ways {
            self.note_progress();
        }
    }

    fn note_sent(&mut self) {
        self.received = 0;
        self.note_progress();
    }

    fn note_progress(&self) {
        self.watched.put_off(self.patience);
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let received = ready!(match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Http2(stream) => Pin::new(stream).poll_read(cx, buf),
        });
        self.note_received(buf.filled().len() - before);
        Poll::Ready(received)
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Http2(stream) => Pin::new(stream).poll_write(cx, buf),
        });
        self.note_sent();
        Poll::Ready(sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A request without a body is a single slice, for which a plain write is cheaper.
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        let sent = ready!(match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Http2(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        });
        self.note_sent();
        Poll::Ready(sent)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.transport, Transport::Plain(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Http2(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Http2(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Minimum length of a received message that counts as long, in bytes.
const LONG_BYTES: u64 = 256 << 10;
/// Bytes read at once of a body that is not known to be long.
const SHORT_BODY_READ_BYTES: usize = 64 << 10;
/// Bytes read at once while a head is expected and memory is short.
pub(crate) const SCARCE_HEAD_READ_BYTES: usize = 4 << 10;
