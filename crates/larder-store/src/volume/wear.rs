//! A daily limit on writes, so that flash lasts: a bucket that fills at a steady rate.
//!
//! Owns: the number of bytes that may be written now. Admission and reclaim ask for it and do the refusing. Invariant:
//! over any period, no more is written than the rate allows, plus an hour's worth, plus writes in progress. Cost: a
//! lock for each offered entry; nothing without a limit.

use crate::sync::IgnorePoison;
use crate::sync::Mutex;
use std::time::Duration;

const DAY_S: f64 = 86_400.0;
/// Capacity of the token bucket, as the seconds in which an empty bucket becomes full.
const BUCKET_S: f64 = 3_600.0;

/// The limit on the bytes that are written to one volume per day.
pub(crate) struct WearLimit {
    bytes_per_s: f64,
    bucket: Mutex<WearBucket>,
}

struct WearBucket {
    level_bytes: f64,
    filled_at: Duration,
    /// Total bytes written when the level was last updated.
    counted_bytes: u64,
}

impl WearLimit {
    /// Creates the limit for a volume of `size_bytes`: per day, `writes_per_day` times its size may be written. Returns
    /// `None` for 0, which means no limit.
    pub(crate) fn new(size_bytes: u64, writes_per_day: f64, now: Duration) -> Option<Self> {
        let bytes_per_s = size_bytes as f64 * writes_per_day / DAY_S;
        let bucket = WearBucket { level_bytes: bytes_per_s * BUCKET_S, filled_at: now, counted_bytes: 0 };
        (bytes_per_s > 0.0).then(|| Self { bytes_per_s, bucket: Mutex::new(bucket) })
    }

    /// Returns how many bytes may be written now. `written_bytes` is the number of bytes written since the volume was
    /// opened.
    pub(crate) fn left_bytes(&self, now: Duration, written_bytes: u64) -> u64 {
        let mut bucket = self.bucket.lock().ignore_poison();
        let gained = now.saturating_sub(bucket.filled_at).as_secs_f64() * self.bytes_per_s;
        let spent = written_bytes.saturating_sub(bucket.counted_bytes) as f64;
        // The level can become negative, when more was spent than allowed. Later gains make up for that first.
        bucket.level_bytes = (bucket.level_bytes + gained).min(self.bytes_per_s * BUCKET_S) - spent;
        (bucket.filled_at, bucket.counted_bytes) = (now.max(bucket.filled_at), written_bytes.max(bucket.counted_bytes));
        assert!(bucket.level_bytes.is_finite(), "a level is a number of bytes");
        bucket.level_bytes.max(0.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_written_than_the_rate_gives_and_an_hours_worth() {
        let second = Duration::from_secs(1);
        let limit = WearLimit::new(86_400_000, 2.0, Duration::ZERO).unwrap();
        assert_eq!(limit.left_bytes(Duration::ZERO, 0), 7_200_000);
        assert_eq!(limit.left_bytes(second, 7_202_000), 0, "what was gained meanwhile was full already");
        assert_eq!(limit.left_bytes(3 * second, 7_202_000), 2_000);
        assert_eq!(limit.left_bytes(DAY_S as u32 * second, 7_202_000), 7_200_000);
        assert!(WearLimit::new(86_400_000, 0.0, Duration::ZERO).is_none());
    }
}
