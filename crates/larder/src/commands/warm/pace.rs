//! Limits the rate at which bytes are fetched from origins.

use larder_device::IgnorePoison;
use larder_proxy::{Bucket, Pace};
use std::{num::NonZeroU64, sync::Mutex, time::Instant};
use tokio::time::sleep_until;

/// Limits the rate of all fetches together.
pub(super) struct WarmPace {
    pace: Option<Pace>,
    bucket: Mutex<Bucket>,
}

impl WarmPace {
    /// Creates a limit of `rate` bytes per second. `None` means no limit.
    pub(super) fn new(rate: Option<NonZeroU64>) -> Self {
        Self { pace: rate.map(|rate| Pace::new(rate, 0)), bucket: Mutex::default() }
    }

    /// Waits until the limit permits `bytes` more bytes.
    pub(super) async fn take(&self, bytes: usize) {
        let Some(pace) = &self.pace else { return };
        let turn = self.bucket.lock().ignore_poison().take(pace, Instant::now(), bytes as u64);
        sleep_until(turn.into()).await;
    }
}
