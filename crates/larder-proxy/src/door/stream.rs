//! The socket of a client of HTTP/2, plain or TLS, that records progress for the connection's deadlines.
//!
//! Owns: the socket, and the output that was not written to it yet. h2 flushes after each body that fits into one
//! frame. [`ClientStream`] gathers this output, and [`ClientStream::poll_write_gathered`] writes it when the connection
//! has no more for now, so the responses to several requests leave in one write and one record of TLS. `connection`
//! decides when to close. Invariant: a connection with gathered output is woken when its socket can take more. Memory:
//! at most [`GATHER_BYTES_MAX`] for each connection whose socket is full. Otherwise all connections of a thread use one
//! buffer. Cost: an uncontended lock, and a few plain loads and stores, per read or write.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use larder_device::IgnorePoison as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::road::client::{
    encoded::{give_back, scratch},
    peer::Client,
    socket::ClientSocket,
};

/// The socket of an HTTP/2 client, plain or TLS. Its clones are the same socket.
#[derive(Clone)]
pub(crate) struct ClientStream(Arc<Mutex<SocketState>>);

struct SocketState {
    socket: ClientSocket,
    /// Bytes that were read earlier and are returned first.
    first: Bytes,
    client: Arc<Client>,
    /// The output that is written when the connection has no more, or when more than [`GATHER_BYTES_MAX`] are waiting.
    gathered: Vec<u8>,
    /// Number of bytes at the start of `gathered` that are written.
    written_len: usize,
    /// Whether the socket may keep octets of TLS that it could not send.
    is_unflushed: bool,
}

impl ClientStream {
    pub(crate) fn new(socket: ClientSocket, first: Bytes, client: Arc<Client>) -> Self {
        let gathered = Vec::new();
        Self(Arc::new(Mutex::new(SocketState { socket, first, client, gathered, written_len: 0, is_unflushed: false })))
    }

    /// Writes the gathered output. If the socket does not take all of it now, the caller's task is woken when the
    /// socket can take more.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn poll_write_gathered(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().poll_write_gathered(context)
    }

    fn lock(&self) -> MutexGuard<'_, SocketState> {
        self.0.lock().ignore_poison()
    }
}

impl SocketState {
    fn poll_write_gathered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written_len < self.gathered.len() {
            let rest = &self.gathered[self.written_len..];
            let sent = ready!(Pin::new(&mut self.socket).poll_write(context, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.note_sent(sent);
            self.written_len += sent;
        }
        give_back(std::mem::take(&mut self.gathered));
        self.written_len = 0;
        if self.is_unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(context))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn gather(&mut self, bufs: &[io::IoSlice<'_>]) {
        if self.gathered.capacity() == 0 {
            self.gathered = scratch();
            self.gathered.reserve_exact(GATHER_BYTES_MAX);
        }
        bufs.iter().for_each(|buf| self.gathered.extend_from_slice(buf));
        debug_assert!(self.gathered.len() <= GATHER_BYTES_MAX, "the buffer never grows");
    }

    fn note_sent(&mut self, bytes: usize) {
        self.client.note_sent(bytes);
        self.is_unflushed = true;
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let refused = |fault| Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
        let mut state = self.lock();
        if let Some(fault) = state.client.fatal_fault() {
            return refused(fault);
        }
        let before = buf.filled().len();
        if state.first.is_empty() {
            ready!(Pin::new(&mut state.socket).poll_read(cx, buf))?;
        } else {
            let count = state.first.len().min(buf.remaining());
            buf.put_slice(&state.first[..count]);
            state.first.advance(count);
        }
        let accepted = state.client.note_received(&buf.filled()[before..]);
        if let Some(fault) = state.client.fatal_fault() {
            return refused(fault);
        }
        buf.set_filled(before + accepted);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if state.gathered.len() + total > GATHER_BYTES_MAX {
            ready!(state.poll_write_gathered(cx))?;
        }
        if total <= GATHER_BYTES_MAX {
            state.gather(bufs);
            return Poll::Ready(Ok(total));
        }
        let sent = ready!(Pin::new(&mut state.socket).poll_write_vectored(cx, bufs))?;
        state.note_sent(sent);
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Records the flush. What is gathered is written after h2 has written all that it has now.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().client.flushed.note();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        ready!(state.poll_write_gathered(cx))?;
        Pin::new(&mut state.socket).poll_shutdown(cx)
    }
}

/// Maximum length of gathered output, in bytes. A record of TLS has no more.
const GATHER_BYTES_MAX: usize = 16 << 10;
