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

use crate::{
    http2::pipe::{Http2Pipe, OpeningPipe},
    received_body::IncomingBody,
};

/// The client's side, which carries bytes once the response is sent.
pub(crate) enum PendingOpaque {
    /// A connection of HTTP/1.1 that hyper reads.
    Library(OnUpgrade),
    /// A stream of HTTP/2.
    Http2(Box<OpeningPipe>),
}

/// The client's side, which carries bytes.
pub(crate) enum OpaqueStream {
    /// A connection of HTTP/1.1 that hyper has read.
    Library(TokioIo<Upgraded>),
    Http2(Http2Pipe),
}

impl PendingOpaque {
    /// Takes the client's side of a request for a tunnel or an upgrade.
    pub(crate) fn of(request: &mut Request<IncomingBody>) -> Self {
        if let IncomingBody::Opaque(pipe) = request.body_mut()
            && let Some(pipe) = pipe.take()
        {
            return Self::Http2(pipe);
        }
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
            Self::Http2(pipe) => {
                let left = || io::Error::from(io::ErrorKind::BrokenPipe);
                pipe.opened().await.map(OpaqueStream::Http2).ok_or_else(left)
            }
        }
    }
}

impl AsyncRead for OpaqueStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Http2(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OpaqueStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Http2(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_flush(cx),
            Self::Http2(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Library(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Http2(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
