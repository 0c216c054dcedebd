//! A client's connection as a byte stream: plain, TLS, or TLS inside a tunnel.
//!
//! Owns: the common interface of these. `opening` and `road::intercept` open them; `stream` records progress.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::{
    ground::{target::Origin, tls_provider::ALPN_PROTOCOLS},
    road::client::{opaque::OpaqueStream, session::SessionState},
};

/// A client's socket, plain or TLS.
pub(crate) enum ClientSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// TLS inside an intercepted tunnel, with a certificate that Larder created for the origin.
    Intercepted(Box<TlsStream<TunnelStream>>),
}

/// The bytes inside a tunnel, including those that were already read.
pub(crate) type TunnelStream = RewoundStream<OpaqueStream>;

/// A connection inside an intercepted tunnel, ready to be served.
pub(crate) struct TunneledConnection {
    pub(crate) stream: Box<TlsStream<TunnelStream>>,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The listener that accepted the tunnel's connection.
    pub(crate) listener: SocketAddr,
    /// The origin that the client opened the tunnel to.
    pub(crate) origin: Origin,
    pub(crate) session: Option<Arc<SessionState>>,
    /// A guard that is dropped when the connection ends, for example a counter.
    pub(crate) kept: Box<dyn Send>,
}

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    Http1,
    Http2,
}

impl ClientProtocol {
    /// Returns the protocol that was agreed in a TLS handshake (ALPN). Without agreement, it is HTTP/1.1.
    pub(crate) fn agreed(alpn: Option<&[u8]>) -> Self {
        if alpn == Some(ALPN_PROTOCOLS[0]) { Self::Http2 } else { Self::Http1 }
    }
}

impl ClientSocket {
    /// Returns the host that a TLS client requested (SNI). `None` without TLS, and in intercepted tunnels.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self {
            Self::Plain(_) | Self::Intercepted(_) => None,
            Self::Tls(stream) => stream.get_ref().1.server_name(),
        }
    }

    /// Returns the TCP socket if the connection is plain, otherwise `None`.
    pub(crate) fn into_plain(self) -> Option<TcpStream> {
        if let Self::Plain(socket) = self { Some(socket) } else { None }
    }

    /// Returns whether the connection uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }
}

/// A stream that first returns bytes that were read from it earlier.
pub(crate) struct RewoundStream<S> {
    first: Bytes,
    inner: S,
}

impl<S> RewoundStream<S> {
    pub(crate) fn new(first: Bytes, inner: S) -> Self {
        Self { first, inner }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RewoundStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let count = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RewoundStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Intercepted(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Intercepted(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Intercepted(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Intercepted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Intercepted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
