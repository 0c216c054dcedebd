//! The order of a connection's responses (RFC 9218): a response gives way to more urgent ones.
//!
//! Owns: the number of responses that are being sent, by urgency. While a more urgent response is being sent, a less
//! urgent one adds only a little at a time, and only once everything before it is written. So it uses what the others
//! leave, and a stream whose window stays shut holds up no other. Cost: a few plain loads for each piece.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http::HeaderMap;
use larder_http::priority::{URGENCY_MAX, urgency};

use crate::{ground::http2::sending::SendAllowance, road::client::peer::Client};

/// Number of responses being sent on one connection, for each urgency.
#[derive(Default)]
pub(super) struct UrgencyCounts([AtomicU32; URGENCY_MAX as usize + 1]);

/// Decides when one response may send, by its urgency and that of other responses on its connection.
pub(super) struct ResponseTurn {
    client: Arc<Client>,
    counts: Arc<UrgencyCounts>,
    urgency: u8,
    is_sending: bool,
    /// The connection's flush count when the response last gave way to a more urgent one. `None` if it does not wait.
    flushed_before: Option<u64>,
}

impl ResponseTurn {
    /// Creates the scheduler of one response's sending. `fields` are the request's fields, which state the urgency.
    pub(super) fn new(client: &Arc<Client>, counts: &Arc<UrgencyCounts>, fields: &HeaderMap) -> Self {
        Self {
            client: Arc::clone(client),
            counts: Arc::clone(counts),
            urgency: urgency(fields),
            is_sending: false,
            flushed_before: None,
        }
    }

    /// Counts the response among those that are being sent.
    pub(super) fn begin_sending(&mut self) {
        self.is_sending = true;
        self.client.note_sending();
        self.counts.0[usize::from(self.urgency)].fetch_add(1, Relaxed);
    }

    /// Waits until the response may send, and returns how much it may send.
    pub(super) fn poll_turn(&mut self, context: &Context<'_>) -> Poll<SendAllowance> {
        let more_urgent = &self.counts.0[..usize::from(self.urgency)];
        if more_urgent.iter().all(|count| count.load(Relaxed) == 0) {
            self.flushed_before = None;
            return Poll::Ready(SendAllowance::All);
        }
        let flushed = &self.client.flushed;
        let before = *self.flushed_before.get_or_insert_with(|| {
            // The connection's task flushes even if there is nothing to write.
            self.client.wake();
            flushed.count()
        });
        if !flushed.is_after(before, context) {
            return Poll::Pending;
        }
        self.flushed_before = None;
        Poll::Ready(SendAllowance::Leftover(TURN_BYTES))
    }

    /// Makes the next call of [`Self::poll_turn`] wait for a flush, because more urgent responses left no room to send.
    pub(super) fn await_room(&mut self, context: &Context<'_>) {
        let before = self.client.flushed.count();
        self.flushed_before = Some(before);
        // Registers this task's waker. The result does not matter here.
        self.client.flushed.is_after(before, context);
    }
}

impl Drop for ResponseTurn {
    fn drop(&mut self) {
        if self.is_sending {
            self.counts.0[usize::from(self.urgency)].fetch_sub(1, Relaxed);
        }
    }
}

/// Maximum bytes that a response sends in one turn while more urgent ones are being sent.
const TURN_BYTES: usize = 16 << 10;
