//! A stream of HTTP/2 whose bytes are not HTTP: a tunnel, or another protocol (RFC 9113 8.5, RFC 8441).
//!
//! Owns: both directions. Invariant: bytes are written only as far as the peer's window takes them, and received bytes
//! are acknowledged only when they are read.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::ground::http2::{reply::StreamReply, sending::poll_room};

/// Both directions of an HTTP/2 stream that carries bytes other than HTTP.
pub(crate) struct Http2Pipe {
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    /// Received bytes that were not read yet.
    received: Bytes,
    is_shut: bool,
    /// A guard that is dropped together with the pipe, such as a connection's share of a limit.
    _place: Option<Box<dyn Send>>,
}

/// The stream of a CONNECT, which carries bytes once a successful response was sent.
pub(crate) struct OpeningPipe {
    receiving: RecvStream,
    sending: oneshot::Receiver<SendStream<Bytes>>,
    pub(crate) reply: Arc<StreamReply>,
}

impl Http2Pipe {
    pub(crate) fn new(sending: SendStream<Bytes>, receiving: RecvStream) -> Self {
        Self { sending, receiving, received: Bytes::new(), is_shut: false, _place: None }
    }

    /// Returns this pipe with a guard that it keeps until it is dropped.
    pub(crate) fn with_place(self, place: impl Send + 'static) -> Self {
        Self { _place: Some(Box::new(place)), ..self }
    }
}

impl OpeningPipe {
    /// Creates the pipe of a CONNECT. `reply` sends the responses, after which `sending` yields the stream's sending
    /// half.
    pub(crate) fn new(
        receiving: RecvStream,
        sending: oneshot::Receiver<SendStream<Bytes>>,
        reply: Arc<StreamReply>,
    ) -> Self {
        Self { receiving, sending, reply }
    }

    /// Waits until the response was sent, and returns the pipe. Returns `None` if the stream ends before that.
    pub(crate) async fn opened(self) -> Option<Http2Pipe> {
        Some(Http2Pipe::new(self.sending.await.ok()?, self.receiving))
    }
}

impl AsyncRead for Http2Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let pipe = &mut *self;
        while pipe.received.is_empty() {
            match ready!(pipe.receiving.poll_data(cx)) {
                Some(Ok(bytes)) => pipe.received = bytes,
                // By cancelling its stream, a peer closes its side of the tunnel.
                Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => {
                    return Poll::Ready(Ok(()));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = pipe.received.len().min(buf.remaining());
        buf.put_slice(&pipe.received[..count]);
        pipe.received.advance(count);
        Poll::Ready(pipe.receiving.flow_control().release_capacity(count).map_err(io::Error::other))
    }
}

impl AsyncWrite for Http2Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(reset) = self.sending.poll_reset(cx) {
            return Poll::Ready(Err(io::Error::other(reset.map_or_else(|error| error, h2::Error::from))));
        }
        let room = ready!(poll_room(&mut self.sending, buf.len(), cx)).map_err(io::Error::other)?;
        let count = room.min(buf.len());
        self.sending.send_data(Bytes::copy_from_slice(&buf[..count]), false).map_err(io::Error::other)?;
        Poll::Ready(Ok(count))
    }

    /// Does nothing, because the task of the connection writes the bytes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.is_shut, true) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.sending.send_data(Bytes::new(), true).map_err(io::Error::other))
    }
}
