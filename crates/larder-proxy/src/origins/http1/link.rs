//! The byte stream of a connection to an origin, and the task that sends the rest of a request while its response
//! arrives.
//!
//! Owns: the stream, and that task. Invariant: the task ends with the exchange, unless the response was read to its
//! end: then the origin may still want the rest of the body. Cost: a lock that is mostly free for each read and write.

use std::{
    future::{Future as _, poll_fn},
    io::{self, Cursor},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use larder_device::IgnorePoison;
use tokio::{
    io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, Chain, Join, ReadBuf, ReadHalf, WriteHalf},
    task::JoinSet,
};

use super::request::{OutgoingMessage, SendFault};
use crate::{ground::cache::body_budget::Reservation, origins::stream::OriginStream};

/// The byte stream of a connection, and the task that sends the remainder of a request.
pub(super) struct OriginLink {
    stream: Arc<Mutex<OriginStream>>,
    /// The task that sends the remainder of a request. It is aborted when this field is dropped.
    sending: Option<JoinSet<()>>,
}

/// A connection that carries another protocol. It first returns the octets that arrived with the head of the 101.
pub(crate) type SwitchedStream = Join<Chain<Cursor<Bytes>, ReadHalf<OriginStream>>, WriteHalf<OriginStream>>;

impl OriginLink {
    pub(super) fn new(stream: OriginStream) -> Self {
        Self { stream: Arc::new(Mutex::new(stream)), sending: None }
    }

    /// Sets the time until the deadline after each piece that is sent.
    pub(super) fn set_patience(&self, patience: Duration) {
        self.lock().set_patience(patience);
    }

    /// Sends as much of `message` as the socket accepts now. Ready when all of it was sent.
    pub(super) fn poll_send(
        &self,
        message: &mut OutgoingMessage,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        message.poll_send(Pin::new(&mut *self.lock()), context)
    }

    /// Starts a task that sends the remainder of a message.
    pub(super) fn send_in_task(&mut self, mut message: OutgoingMessage) {
        assert!(self.sending.is_none(), "one request is sent at a time");
        let stream = Arc::clone(&self.stream);
        let mut sending = JoinSet::new();
        sending.spawn(async move {
            let lock = || stream.lock().ignore_poison();
            if poll_fn(|context| message.poll_send(Pin::new(&mut *lock()), context)).await.is_err() {
                // Without a shutdown, the origin would wait for the remainder. If this fails, the socket has failed
                // already.
                let _ = poll_fn(|context| Pin::new(&mut *lock()).poll_shutdown(context)).await;
            }
        });
        self.sending = Some(sending);
    }

    /// Lets the task send the remainder of a request although its response has ended. `place` is dropped when the task
    /// is done.
    pub(super) fn finish_sending(&mut self, place: impl Send + 'static) {
        if let Some(mut sending) = self.sending.take() {
            tokio::spawn(async move {
                sending.join_next().await;
                drop(place);
            });
        }
    }

    /// Waits for octets from the origin, and reads at most as many as fit into `buffer`.
    pub(super) fn poll_receive(&self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(context, buffer)
    }

    /// Waits for octets from the origin, and reads at most `wanted` of them into the spare capacity of `target`.
    pub(super) fn poll_receive_into(
        &self,
        context: &mut Context<'_>,
        target: &mut BytesMut,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        let room = target.capacity();
        let mut target = target.limit(wanted.min(room));
        let mut stream = self.lock();
        pin!(stream.read_buf(&mut target)).poll(context)
    }

    /// Returns the number of a body's octets to read at once.
    pub(super) fn read_len(&self) -> usize {
        self.lock().read_len()
    }

    /// Returns the number of octets to read at once while a head is expected.
    pub(super) fn head_read_len(&self) -> usize {
        self.lock().head_read_len()
    }

    /// Reserves `len` octets of the memory for bodies, until the returned guard is dropped. `None` for a tunnel.
    pub(super) fn reserve(&self, len: usize) -> Option<Reservation> {
        self.lock().reserve(len)
    }

    /// Turns the link into a byte stream, after a 101. `after` are the octets that arrived behind the head of the 101.
    ///
    /// Returns `None` if the request is still being sent.
    pub(super) fn into_switched(self, after: Bytes) -> Option<SwitchedStream> {
        let stream = Arc::into_inner(self.stream)?.into_inner().ignore_poison();
        Some(switched_stream(stream, after))
    }

    fn lock(&self) -> MutexGuard<'_, OriginStream> {
        self.stream.lock().ignore_poison()
    }
}

/// Turns a stream into one that first returns `after`, the octets that arrived behind the response's head.
pub(crate) fn switched_stream(stream: OriginStream, after: Bytes) -> SwitchedStream {
    let (reading, writing) = tokio::io::split(stream.into_tunnel());
    tokio::io::join(Cursor::new(after).chain(reading), writing)
}
