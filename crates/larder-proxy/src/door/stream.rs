//! The socket of a client of HTTP/2, plain or TLS, that records progress for the connection's deadlines.
//!
//! Owns: the socket. `connection` decides when to close. Cost: a few plain loads and stores per read or write. A head
//! and a small body are copied together and sent in one plain write, which costs less than gathering in the kernel.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::road::client::{peer::Client, socket::ClientSocket};

/// The socket of an HTTP/2 client, plain or TLS.
pub(crate) struct ClientStream {
    socket: ClientSocket,
    /// Bytes that were read earlier and are returned first.
    first: Bytes,
    client: Arc<Client>,
}

impl ClientStream {
    pub(crate) fn new(socket: ClientSocket, first: Bytes, client: Arc<Client>) -> Self {
        Self { socket, first, client }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let refused = |fault| Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
        if let Some(fault) = self.client.fatal_fault() {
            return refused(fault);
        }
        let before = buf.filled().len();
        if self.first.is_empty() {
            ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        } else {
            let count = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first[..count]);
            self.first.advance(count);
        }
        let accepted = self.client.note_received(&buf.filled()[before..]);
        if let Some(fault) = self.client.fatal_fault() {
            return refused(fault);
        }
        buf.set_filled(before + accepted);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.socket).poll_write(cx, buf));
        self.client.note_sent(*result.as_ref().unwrap_or(&0));
        Poll::Ready(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        let socket = Pin::new(&mut self.socket);
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let result = ready!(if total <= GATHER_BYTES_MAX {
            GATHERED.with_borrow_mut(|gathered| {
                let mut len = 0;
                for buf in bufs {
                    gathered.0[len..len + buf.len()].copy_from_slice(buf);
                    len += buf.len();
                }
                socket.poll_write(cx, &gathered.0[..len])
            })
        } else {
            socket.poll_write_vectored(cx, bufs)
        });
        self.client.note_sent(*result.as_ref().unwrap_or(&0));
        Poll::Ready(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.client.flushed.note();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// A page-aligned buffer in which a response's small parts are joined.
#[repr(align(4096))]
struct GatherBuffer([u8; GATHER_BYTES_MAX]);

thread_local! {
    static GATHERED: RefCell<Box<GatherBuffer>> = RefCell::new(Box::new(GatherBuffer([0; GATHER_BYTES_MAX])));
}

/// Maximum length, in bytes, of a response whose parts are joined before they are written.
const GATHER_BYTES_MAX: usize = 16 << 10;
