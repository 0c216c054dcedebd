//! Sends the body of a message on a stream of HTTP/2.
//!
//! Owns: the body, and the piece of it that is being sent. Invariants: nothing is taken from the body before the window
//! has room, so a stream whose window is shut holds no bytes. No capacity is kept while the body has nothing to send,
//! because other streams of the connection may need it. A body that breaks off resets its stream. Cost: a few short
//! locks of h2 for each piece.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;

use crate::http2::strip_connection_fields;

/// A body that is being sent.
pub(crate) struct Http2Sending<B> {
    stream: SendStream<Bytes>,
    body: B,
    /// The part of the last piece that the window did not take.
    piece: Bytes,
    /// Why the stream is reset if the body breaks off.
    broken: Reason,
}

impl<B: Body<Data = Bytes, Error: fmt::Display> + Unpin> Http2Sending<B> {
    pub(crate) fn new(stream: SendStream<Bytes>, body: B, broken: Reason) -> Self {
        Self { stream, body, piece: Bytes::new(), broken }
    }

    /// Sends what the window takes. Ready once h2 has all of the body, or the stream has ended without it.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Err(error) = ready!(self.poll_to_end(context)) {
            tracing::debug!(%error, "a stream ended before its body was sent");
        }
        Poll::Ready(())
    }

    fn poll_to_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            if let Poll::Ready(reset) = self.stream.poll_reset(context)? {
                return Poll::Ready(Err(reset.into()));
            }
            if self.piece.is_empty() {
                ready!(poll_room(&mut self.stream, 1, context))?;
                let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
                    self.stream.reserve_capacity(0);
                    return Poll::Pending;
                };
                match frame {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(piece) => self.piece = piece,
                        Err(frame) => {
                            let mut trailers = frame.into_trailers().unwrap_or_default();
                            strip_connection_fields(&mut trailers);
                            self.stream.reserve_capacity(0);
                            return Poll::Ready(self.stream.send_trailers(trailers));
                        }
                    },
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a body broke off");
                        self.stream.send_reset(self.broken);
                        return Poll::Ready(Ok(()));
                    }
                    None => return Poll::Ready(self.stream.send_data(Bytes::new(), true)),
                }
            }
            let room = ready!(poll_room(&mut self.stream, self.piece.len(), context))?;
            let part = self.piece.split_to(room.min(self.piece.len()));
            let is_last = self.piece.is_empty() && self.body.is_end_stream();
            if is_last || !part.is_empty() {
                self.stream.send_data(part, is_last)?;
            }
            if is_last {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Waits until the window has room for at least one of `wanted` bytes. Returns the bytes that it takes.
pub(super) fn poll_room(
    stream: &mut SendStream<Bytes>,
    wanted: usize,
    context: &mut Context<'_>,
) -> Poll<Result<usize, h2::Error>> {
    if wanted == 0 {
        return Poll::Ready(Ok(0));
    }
    stream.reserve_capacity(wanted);
    while stream.capacity() == 0 {
        if ready!(stream.poll_capacity(context)).transpose()?.is_none() {
            return Poll::Ready(Err(Reason::STREAM_CLOSED.into()));
        }
    }
    Poll::Ready(Ok(stream.capacity()))
}
