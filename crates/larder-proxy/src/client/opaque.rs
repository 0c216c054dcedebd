//! A client's side of bytes that are not HTTP: in a tunnel, or after an upgrade.
//!
//! Owns: the common interface of the protocols that carry such bytes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use http::Request;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::received_body::IncomingBody;

/// The client's side, which carries bytes once the response is sent.
pub(crate) enum PendingOpaque {
    /// A connection of HTTP/1.1 that hyper reads.
    Library(OnUpgrade),
}

/// The client's side, which carries bytes.
pub(crate) enum OpaqueStream {
    /// A connection of HTTP/1.1 that hyper has read.
    Library(TokioIo<Upgraded>),
}

impl PendingOpaque {
    /// Takes the client's side of a request for a tunnel or an upgrade.
    pub(crate) fn of(request: &mut Request<IncomingBody>) -> Self {
        Self::Library(hyper::upgrade::on(request))
    }

    /// Waits until the response is sent.
    ///
    /// # Errors
    /// The client has left, or the response refuses what the request asks for.
    pub(crate) async fn opened(self) -> io::Result<OpaqueStream> {
        match self {
            Self::Library(upgrade) => {
                let upgraded = upgrade.await.map_err(io::Error::other)?;
                Ok(OpaqueStream::Library(TokioIo::new(upgraded)))
            }
        }
    }
}

impl AsyncRead for OpaqueStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OpaqueStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
