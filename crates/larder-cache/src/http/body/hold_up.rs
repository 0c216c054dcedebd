//! Limits the time for which storing a response may delay its readers.
//!
//! The rule: a store may delay the readers of one response by [`GRACE`] in all, plus the time it takes to store the
//! bytes at [`RATE_MIN`] bytes a second. A store that takes longer cannot keep up; the response is then not stored, and
//! its readers get it at the origin's speed.
//!
//! Why: the store's write buffer and the window absorb short delays, so a wait means that the device is slower than the
//! origin and the clients. A healthy device is several times as fast as the limit. If Larder gave up on it just because
//! the origin is even faster, long bodies would never be stored. A device below the limit is failing, throttled or
//! overloaded, so it is not waited for. A response of one chunk or less delays nobody, because it is stored after its
//! end.
//!
//! Owns: the time waited. Cost: one clock read for each chunk that the store does not accept at once.

use larder_device::IgnorePoison;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Mutex,
    task::Poll,
    time::{Duration, Instant},
};

/// Measures for how long the store has delayed the clients of one response.
#[derive(Default)]
pub(super) struct HoldUp(Mutex<HoldUpAccount>);

#[derive(Default)]
struct HoldUpAccount {
    waited: Duration,
    stored_bytes: u64,
    is_over: bool,
}

impl HoldUp {
    /// Awaits `storing`, which stores `len` bytes. Returns `None` if that would delay the clients for longer than the
    /// store may.
    pub(super) async fn bounded<T>(&self, len: u64, storing: impl Future<Output = T>) -> Option<T> {
        let mut storing = pin!(storing);
        if let Poll::Ready(stored) = poll_fn(|context| Poll::Ready(storing.as_mut().poll(context))).await {
            self.note(len, Duration::ZERO);
            return Some(stored);
        }
        let began = Instant::now();
        let left = self.0.lock().ignore_poison().left();
        let stored = tokio::time::timeout(left, storing).await.ok();
        self.note(len, began.elapsed());
        self.0.lock().ignore_poison().is_over |= stored.is_none();
        stored
    }

    /// Returns whether the store has delayed the clients for longer than it may.
    pub(super) fn is_over(&self) -> bool {
        self.0.lock().ignore_poison().is_over
    }

    fn note(&self, len: u64, waited: Duration) {
        self.0.lock().ignore_poison().note(len, waited);
    }
}

impl HoldUpAccount {
    fn note(&mut self, len: u64, waited: Duration) {
        self.stored_bytes += len;
        self.waited += waited;
    }

    /// Returns for how much longer the store may delay the clients.
    fn left(&self) -> Duration {
        let earned = Duration::from_millis(self.stored_bytes.saturating_mul(1000) / RATE_MIN);
        (GRACE + earned).saturating_sub(self.waited)
    }
}

/// Minimum rate of a store that counts as keeping up, in bytes per second.
const RATE_MIN: u64 = 32 << 20;
/// Time for which the store may delay the clients of a response, in addition to the time that its bytes take at
/// [`RATE_MIN`].
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 1 << 20;

    /// Returns how many of 1,000 chunks are stored if each of them makes the clients wait for the time `wait`.
    fn chunks_until_given_up(wait: Duration) -> usize {
        let mut hold_up = HoldUpAccount::default();
        let takes = |_: &usize| {
            let in_time = wait <= hold_up.left();
            hold_up.note(CHUNK, wait);
            in_time
        };
        (0..1000).take_while(takes).count()
    }

    #[test]
    fn store_that_takes_32_mib_a_second_is_waited_for_and_a_slower_one_for_a_second() {
        assert_eq!(chunks_until_given_up(Duration::ZERO), 1000);
        assert_eq!(chunks_until_given_up(Duration::from_millis(31)), 1000);
        // A store of 3 MB/s takes a third of a second per chunk.
        assert_eq!(chunks_until_given_up(Duration::from_millis(333)), 3);
        assert_eq!(chunks_until_given_up(Duration::from_secs(2)), 0);
    }
}
