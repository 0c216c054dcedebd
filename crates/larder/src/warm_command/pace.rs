//! How fast bytes may come: a bucket that fills at a rate.
//!
//! Owns: how much there is in it. Does not: move bytes. Invariant: over any time no more is taken than the rate allows, and what one piece
//! takes at once, for pieces are not cut.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// How fast bytes may come.
pub(super) struct Pace {
    rate: Option<u64>,
    /// When all that was taken has been earned.
    paid_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// Returns a pace of so many bytes a second; `None` is any.
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self { rate, paid_at: Mutex::new(None) }
    }

    /// Waits until so many bytes more may have come.
    pub(super) async fn take(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let until = {
            let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
            let from = paid_at.unwrap_or_else(Instant::now).max(Instant::now());
            *paid_at.insert(from + due(bytes, rate))
        };
        sleep_until(until).await;
    }
}

/// How long so many bytes take at a rate.
fn due(bytes: usize, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(due(500_000, 500_000), Duration::from_secs(1));
        assert_eq!(due(1, 1000), Duration::from_millis(1));
        assert_eq!(due(3, 0), Duration::from_secs(3));
    }
}
