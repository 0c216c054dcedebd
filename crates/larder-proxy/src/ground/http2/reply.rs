//! The responses to one request of a client over HTTP/2: interim ones, then the final one.
//!
//! Invariant: no interim response follows the final one. Cost: one lock per response.

use std::{
    sync::{Mutex, MutexGuard},
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::{HeaderMap, Response, StatusCode};
use larder_device::IgnorePoison;

/// Sends the responses to one request on its HTTP/2 stream: interim ones, then the final one.
pub(crate) struct StreamReply(Mutex<ReplyState>);

struct ReplyState {
    /// The response side of the stream. `None` once the final response was sent or the stream has ended.
    sender: Option<SendResponse<Bytes>>,
    /// Total length of the fields of interim responses so far, in bytes.
    interim_bytes: usize,
}

impl StreamReply {
    pub(crate) fn new(sender: SendResponse<Bytes>) -> Self {
        Self(Mutex::new(ReplyState { sender: Some(sender), interim_bytes: 0 }))
    }

    /// Sends an interim response, or drops it if there were too many. Returns false once the final response was sent.
    pub(crate) fn send_interim(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(sender) = &mut state.sender else { return false };
        state.interim_bytes += fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
        if state.interim_bytes > INTERIM_BYTES_MAX {
            return true;
        }
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = fields.clone();
        // Sending fails only if the connection has ended, which the stream's task learns by itself.
        let _ = sender.send_informational(response);
        true
    }

    /// Sends the head of the final response. `is_whole` says that no body follows.
    pub(crate) fn finish(&self, response: Response<()>, is_whole: bool) -> Result<SendStream<Bytes>, h2::Error> {
        let sender = self.lock().sender.take();
        sender.map_or_else(|| Err(Reason::STREAM_CLOSED.into()), |mut it| it.send_response(response, is_whole))
    }

    /// Waits until the client has reset the stream or its connection has ended.
    pub(crate) fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.lock().sender {
            Some(sender) => sender.poll_reset(context).map(drop),
            None => Poll::Ready(()),
        }
    }

    /// Prevents further responses, because the stream has ended.
    pub(crate) fn close(&self) {
        self.lock().sender = None;
    }

    fn lock(&self) -> MutexGuard<'_, ReplyState> {
        self.0.lock().ignore_poison()
    }
}

/// Maximum total length of the fields of interim responses to one request, in bytes. Further ones are dropped.
const INTERIM_BYTES_MAX: usize = 64 << 10;
