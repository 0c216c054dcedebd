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
use http::HeaderMap;
use http_body::Body;

use crate::ground::http2::strip_connection_fields;

/// Sends a body on an HTTP/2 stream.
pub(crate) struct Http2Sending<B> {
    stream: SendStream<Bytes>,
    body: B,
    /// The part of the current piece that the peer's window has not accepted yet.
    piece: Bytes,
    /// The reason for which the stream is reset if the body breaks off.
    broken: Reason,
}

/// The part of a body that may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendAllowance {
    All,
    /// At most this many bytes, and none while other streams use up the connection's window. The caller then tries
    /// again.
    Leftover(usize),
}

/// The state of a body after an attempt to send more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The body was passed to h2 completely, or the stream has ended.
    Ended,
    /// There is nothing to send now. The task will be woken when there is more.
    Waiting,
    /// The allowed number of bytes was sent.
    AllowanceUsed,
    /// Other streams use up the connection's window. The task will not be woken when there is room again.
    NoneLeftOver,
}

impl<B: Body<Data = Bytes, Error: fmt::Display> + Unpin> Http2Sending<B> {
    pub(crate) fn new(stream: SendStream<Bytes>, body: B, broken: Reason) -> Self {
        Self { stream, body, piece: Bytes::new(), broken }
    }

    /// Sends as much as the peer's window accepts. Ready when the body was passed to h2, or the stream has ended.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.advance(SendAllowance::All, context) {
            SendProgress::Ended => Poll::Ready(()),
            SendProgress::Waiting | SendProgress::AllowanceUsed | SendProgress::NoneLeftOver => Poll::Pending,
        }
    }

    /// Sends as much as the peer's window accepts and the allowance permits.
    pub(crate) fn advance(&mut self, allowance: SendAllowance, context: &mut Context<'_>) -> SendProgress {
        match self.advance_to_end(allowance, context) {
            Ok(progress) => progress,
            Err(error) => {
                tracing::debug!(%error, "a stream ended before its body was sent");
                SendProgress::Ended
            }
        }
    }

    /// Waits until the peer has reset the stream or its connection has ended.
    pub(crate) fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(context).map(drop)
    }

    fn advance_to_end(
        &mut self,
        allowance: SendAllowance,
        context: &mut Context<'_>,
    ) -> Result<SendProgress, h2::Error> {
        let mut left = match allowance {
            SendAllowance::All => usize::MAX,
            SendAllowance::Leftover(most) => most,
        };
        loop {
            if left == 0 {
                return Ok(SendProgress::AllowanceUsed);
            }
            if let Poll::Ready(reset) = self.stream.poll_reset(context)? {
                return Err(reset.into());
            }
            let wanted = self.piece.len().min(left).max(1);
            self.stream.reserve_capacity(wanted);
            let room = match self.stream.capacity() {
                0 if allowance != SendAllowance::All => {
                    // Giving up the reserved capacity lets the other streams be served first.
                    self.stream.reserve_capacity(0);
                    return Ok(SendProgress::NoneLeftOver);
                }
                0 => match poll_room(&mut self.stream, wanted, context)? {
                    Poll::Ready(room) => room,
                    Poll::Pending => return Ok(SendProgress::Waiting),
                },
                room => room,
            };
            if self.piece.is_empty() {
                let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
                    self.stream.reserve_capacity(0);
                    return Ok(SendProgress::Waiting);
                };
                match frame {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(piece) if piece.is_empty() && self.body.is_end_stream() => {
                            self.stream.send_data(piece, true)?;
                            return Ok(SendProgress::Ended);
                        }
                        Ok(piece) => self.piece = piece,
                        Err(frame) => {
                            self.send_trailers(frame.into_trailers().unwrap_or_default())?;
                            return Ok(SendProgress::Ended);
                        }
                    },
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a body broke off");
                        self.stream.send_reset(self.broken);
                        return Ok(SendProgress::Ended);
                    }
                    None => {
                        self.stream.send_data(Bytes::new(), true)?;
                        return Ok(SendProgress::Ended);
                    }
                }
                continue;
            }
            let part = self.piece.split_to(room.min(wanted));
            left -= part.len();
            let is_last = self.piece.is_empty() && self.body.is_end_stream();
            self.stream.send_data(part, is_last)?;
            if is_last {
                return Ok(SendProgress::Ended);
            }
        }
    }

    fn send_trailers(&mut self, mut trailers: HeaderMap) -> Result<(), h2::Error> {
        strip_connection_fields(&mut trailers);
        self.stream.reserve_capacity(0);
        self.stream.send_trailers(trailers)
    }
}

/// Waits until the peer's window accepts at least one of `wanted` bytes. Returns how many it accepts.
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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        future::{Future as _, poll_fn},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };

    use http::{HeaderValue, Request, Response};
    use http_body::Frame;
    use tokio::sync::oneshot;

    use super::*;

    /// A body of pieces of 1,000 bytes and trailers, which counts the pieces that were taken.
    struct CountedBody {
        left: usize,
        taken: Arc<AtomicUsize>,
    }

    impl Body for CountedBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.taken.fetch_add(1, Relaxed);
            let trailers =
                || [(http::header::ETAG, HeaderValue::from_static("\"a\""))].into_iter().collect::<HeaderMap>();
            let Some(left) = self.left.checked_sub(1) else {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers()))));
            };
            self.left = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 1000])))))
        }
    }

    #[test]
    fn nothing_is_taken_from_a_body_before_the_window_has_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (sender, mut connection) =
                h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(near).await.unwrap();
            let (open, opened) = oneshot::channel();
            tokio::spawn(async move {
                let mut opened = Box::pin(opened);
                let mut is_open = false;
                poll_fn(move |context| {
                    if !is_open && let Poll::Ready(window) = opened.as_mut().poll(context) {
                        is_open = true;
                        connection.set_initial_window_size(window.unwrap()).unwrap();
                    }
                    Pin::new(&mut connection).poll(context)
                })
                .await
            });
            let request = Request::get("http://a.example/").body(()).unwrap();
            let (response, _) = sender.ready().await.unwrap().send_request(request, true).unwrap();
            let mut server = h2::server::handshake(far).await.unwrap();
            let (_, mut reply) = server.accept().await.unwrap().unwrap();
            tokio::spawn(async move { while server.accept().await.is_some() {} });
            let taken = Arc::<AtomicUsize>::default();
            let stream = reply.send_response(Response::new(()), false).unwrap();
            let body = CountedBody { left: 5, taken: Arc::clone(&taken) };
            let mut sending = Http2Sending::new(stream, body, Reason::INTERNAL_ERROR);
            let sent = tokio::spawn(async move { poll_fn(|context| sending.poll(context)).await });
            let mut received = response.await.unwrap().into_body();
            assert_eq!(taken.load(Relaxed), 0);
            open.send(2500).unwrap();
            let mut len = 0;
            while len < 2500 {
                len += received.data().await.unwrap().unwrap().len();
            }
            assert_eq!((len, taken.load(Relaxed)), (2500, 3), "half a piece waits");
            received.flow_control().release_capacity(2500).unwrap();
            while let Some(bytes) = received.data().await {
                let bytes = bytes.unwrap();
                len += bytes.len();
                received.flow_control().release_capacity(bytes.len()).unwrap();
            }
            let trailers = received.trailers().await.unwrap().unwrap();
            assert_eq!((len, trailers.len()), (5000, 1));
            sent.await.unwrap();
        });
    }
}
