//! How long storing a response may hold up those who read it.
//!
//! The rule: a store may make the readers of one response wait for a second in all, and besides for as long as it takes what it
//! stores of it at [`RATE_MIN`] bytes a second. One that takes more time cannot keep up, and the response is not stored: its
//! readers have it at the origin's speed from then on. Why: what the store buffers (its dirty bytes, bounded) and the window
//! in front of it even out hiccups, so that waiting at all means that the device is slower than origin and clients; a device
//! in good health takes several times that rate, and to give up there because the origin is faster still would leave long
//! bodies unstored for good; one that is dying, throttled, or shared by too many is not worth anybody's time. A response of
//! one chunk or less holds nobody up: it is stored behind its end. Owns: the time waited. Cost: a clock read for each
//! chunk that the store does not take at once.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

/// What the store has made the readers of one response wait.
#[derive(Default)]
pub(super) struct HoldUp {
    waited: Duration,
    stored_bytes: u64,
}

impl HoldUp {
    /// What storing `len` bytes comes to; `None` if it takes longer than the readers may be held up.
    pub(super) async fn bounded<T>(&mut self, len: u64, storing: impl Future<Output = T>) -> Option<T> {
        let mut storing = pin!(storing);
        if let Poll::Ready(stored) = poll_fn(|context| Poll::Ready(storing.as_mut().poll(context))).await {
            self.note(len, Duration::ZERO);
            return Some(stored);
        }
        let began = Instant::now();
        let stored = tokio::time::timeout(self.left(), storing).await.ok();
        self.note(len, began.elapsed());
        stored
    }

    fn note(&mut self, len: u64, waited: Duration) {
        self.stored_bytes += len;
        self.waited += waited;
    }

    /// How much longer they may wait.
    fn left(&self) -> Duration {
        let earned = Duration::from_millis(self.stored_bytes.saturating_mul(1000) / RATE_MIN);
        (GRACE + earned).saturating_sub(self.waited)
    }
}

/// What a store must take at least, in bytes a second, to be waited for.
const RATE_MIN: u64 = 32 << 20;
/// How long the readers of a response may be held up besides.
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 1 << 20;

    /// How many chunks a store takes that makes readers wait for each so long, of 1,000.
    fn chunks_until_given_up(wait: Duration) -> usize {
        let mut hold_up = HoldUp::default();
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
        // 3 MB/s: a third of a second each.
        assert_eq!(chunks_until_given_up(Duration::from_millis(333)), 3);
        assert_eq!(chunks_until_given_up(Duration::from_secs(2)), 0);
    }
}
