//! Limits the HTTP/2 frames with which a client causes work without requesting anything (RFC 9113 10.5).
//!
//! Owns: the count of recent frames. The connection's owner closes it. A frame that h2 answers or records
//! costs the client nothing and the proxy a few microseconds, and so does a refused stream. Honest clients send such
//! frames along with requests and received data, so both raise the limit. Invariant: the counts cover the last
//! [`STRETCH_TICKS`]. Cost: one short lock per read or write.

use larder_device::IgnorePoison;
use std::sync::{Mutex, MutexGuard};

use crate::{ground::config::Limits, road::client::raw_frames::RawFrames};

/// The recent frames on one HTTP/2 connection.
#[derive(Debug, Default)]
pub(crate) struct FloodGuard {
    state: Mutex<FloodState>,
}

#[derive(Debug, Default)]
struct FloodState {
    frames: RawFrames,
    since_tick: u32,
    idle_frame_count: u64,
    opened_count: u64,
    begun_count: u64,
    sent_bytes: u64,
}

/// The result of checking received octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrivedFrames {
    /// Whether the head of a request is incomplete, so more of it must arrive.
    pub(crate) in_head: bool,
    /// The reason to close the connection if it sent too many frames of one kind, otherwise `None`.
    pub(crate) flood: Option<&'static str>,
}

impl FloodGuard {
    /// Counts the frames in received octets. `tick` is the current time, in seconds.
    pub(crate) fn push(&self, octets: &[u8], tick: u32, limits: &Limits) -> ArrivedFrames {
        let mut state = self.lock();
        state.turn(tick);
        state.frames.push(octets);
        let counted = state.frames.take();
        state.idle_frame_count += u64::from(counted.idle);
        state.opened_count += u64::from(counted.opened);
        ArrivedFrames { in_head: state.frames.is_in_block(), flood: state.flood(limits) }
    }

    /// Counts an opened stream that became a request.
    pub(crate) fn note_begun(&self) {
        self.lock().begun_count += 1;
    }

    /// Counts bytes sent to the client, which permit it to send window updates.
    pub(crate) fn note_sent(&self, bytes: usize) {
        self.lock().sent_bytes += bytes as u64;
    }

    fn lock(&self) -> MutexGuard<'_, FloodState> {
        self.state.lock().ignore_poison()
    }
}

impl FloodState {
    fn turn(&mut self, tick: u32) {
        if tick.saturating_sub(self.since_tick) >= STRETCH_TICKS {
            let frames = std::mem::take(&mut self.frames);
            *self = Self { frames, since_tick: tick, ..Self::default() };
        }
    }

    fn flood(&self, limits: &Limits) -> Option<&'static str> {
        let room = self.opened_count * FRAMES_PER_REQUEST + self.sent_bytes / BYTES_PER_FRAME;
        if self.idle_frame_count > u64::from(limits.control_count_max) + room {
            return Some("too many frames without a request");
        }
        let refused_max = u64::from(limits.stream_count_max) + u64::from(limits.abandoned_count_max);
        (self.opened_count.saturating_sub(self.begun_count) > refused_max).then_some("too many cancelled streams")
    }
}

/// Length of the interval over which frames are counted, in seconds.
const STRETCH_TICKS: u32 = 10;
/// Number of additional frames that each request permits the client to send.
const FRAMES_PER_REQUEST: u64 = 16;
/// Number of bytes sent to the client that permit it one more frame, such as a window update.
///
/// A client updates two windows, the stream's and the connection's, so it may update both after twice as many bytes.
const BYTES_PER_FRAME: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(floods: &FloodGuard, count: usize, tick: u32) -> bool {
        let limits =
            Limits { control_count_max: 100, stream_count_max: 10, abandoned_count_max: 20, ..Limits::default() };
        let pings = [0, 0, 0, 6, 0, 0, 0, 0, 0].repeat(count);
        floods.push(&pings, tick, &limits).flood.is_some()
    }

    fn begun() -> FloodGuard {
        let floods = FloodGuard::default();
        floods.push(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, &Limits::default());
        floods
    }

    #[test]
    fn frames_that_ask_for_nothing_have_a_rate() {
        let floods = begun();
        assert!(!pushed(&floods, 100, 0));
        assert!(pushed(&floods, 1, 9));
        assert!(!pushed(&floods, 100, 10), "that was another stretch");
        assert!(pushed(&floods, 1, 10));
    }

    #[test]
    fn requests_and_responses_make_room_for_more() {
        let floods = begun();
        floods.push(&[0, 0, 0, 1, 4, 0, 0, 0, 1], 0, &Limits::default());
        assert!(!pushed(&floods, 116, 0) && pushed(&floods, 1, 0));
        floods.note_sent(6400);
        assert!(!pushed(&floods, 99, 0) && pushed(&floods, 1, 0));
    }

    #[test]
    fn streams_that_come_to_nothing_have_a_rate() {
        let limits = Limits { stream_count_max: 10, abandoned_count_max: 20, ..Limits::default() };
        let floods = begun();
        let open = |number: u8| floods.push(&[0, 0, 0, 1, 4, 0, 0, 0, number], 0, &limits).flood.is_some();
        assert!((1..=30).all(|number| !open(2 * number - 1)));
        floods.note_begun();
        assert!(!open(61) && open(63));
    }
}
