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
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::{client::http1::SwitchedSocket, received_body::IncomingBody};

/// The client's side, which carries bytes once the response is sent.
pub(crate) enum PendingOpaque {
    /// A connection of HTTP/1.1. An error says that the request asks for neither.
    Http1(io::Result<oneshot::Receiver<SwitchedSocket>>),
    /// A stream of HTTP/2 that hyper reads.
    Library(OnUpgrade),
}

/// The client's side, which carries bytes.
pub(crate) enum OpaqueStream {
    Http1(Box<SwitchedSocket>),
    /// A stream of HTTP/2 that hyper has read.
    Library(TokioIo<Upgraded>),
}

impl PendingOpaque {
    /// Takes the client's side of a request for a tunnel or an upgrade.
    pub(crate) fn of(request: &mut Request<IncomingBody>) -> Self {
        if let IncomingBody::Http1(body) = request.body() {
            return Self::Http1(body.expect_switch());
        }
        Self::Library(hyper::upgrade::on(request))
    }

    /// Waits until the response is sent.
    ///
    /// # Errors
    /// The client has left, or the response refuses what the request asks for.
    pub(crate) async fn opened(self) -> io::Result<OpaqueStream> {
        match self {
            Self::Http1(socket) => {
                let socket = socket?.await.map_err(|_| io::ErrorKind::BrokenPipe)?;
                Ok(OpaqueStream::Http1(Box::new(socket)))
            }
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
            Self::Http1(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Library(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OpaqueStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Library(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_flush(cx),
            Self::Library(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Http1(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Library(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
