//! The engine's clock: the system's, or one that is set by hand.
//!
//! There are two times, because the time of day can be changed. Intervals and deadlines use [`Clock::now`], which never
//! goes back. Only expiry times, which are given as a time of day, use [`Clock::now_s`]. With [`Clock::manual`], a
//! simulation or a test runs the engine in virtual time.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// A source of time.
///
/// ```
/// use larder_store::Clock;
/// use std::time::Duration;
///
/// let clock = Clock::manual(Duration::from_secs(1_700_000_000));
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.since_epoch(), Duration::from_secs(1_700_000_060));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug, Default)]
enum ClockSource {
    #[default]
    System,
    Manual(Arc<ManualClock>),
}

/// A clock that is set by hand, in milliseconds.
#[derive(Debug)]
struct ManualClock {
    passed: AtomicU64,
    time_of_day: AtomicI64,
}

/// One moment, as monotonic time and as Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockMoment {
    /// Time since a fixed moment, as [`Clock::now`] returns it.
    pub(crate) at: Duration,
    /// Unix time in seconds, as [`Clock::now_s`] returns it.
    pub(crate) unix_s: u32,
}

/// Returns whether an entry that expires at `expires_at` has expired. Both times are Unix times in seconds; 0 means
/// never. The entry expires after the second `expires_at`, not at its start.
pub(crate) fn has_expired(expires_at: u32, now_s: u32) -> bool {
    expires_at != 0 && expires_at < now_s
}

/// The moment when [`Clock::now`] was first called in this process.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// Creates a clock that stands still until [`Clock::advance`] is called. `since_epoch` is its first Unix time. Its
    /// clones are the same clock.
    pub fn manual(since_epoch: Duration) -> Self {
        let passed = AtomicU64::new(0);
        let time_of_day = AtomicI64::new(since_epoch.as_millis() as i64);
        Self(ClockSource::Manual(Arc::new(ManualClock { passed, time_of_day })))
    }

    /// Advances a manual clock. A system clock ignores this.
    pub fn advance(&self, by: Duration) {
        if let ClockSource::Manual(manual) = &self.0 {
            manual.passed.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
            manual.time_of_day.fetch_add(by.as_millis() as i64, Ordering::Relaxed);
        }
    }

    /// Sets the time of day of a manual clock forward or back by `by_s` seconds, as an administrator would.
    /// Intervals and deadlines do not change.
    pub fn step(&self, by_s: i64) {
        if let ClockSource::Manual(manual) = &self.0 {
            manual.time_of_day.fetch_add(by_s * 1000, Ordering::Relaxed);
        }
    }

    /// Returns the time since some fixed moment in the past. It never goes back.
    pub(crate) fn now(&self) -> Duration {
        match &self.0 {
            ClockSource::System => STARTED.elapsed(),
            ClockSource::Manual(manual) => Duration::from_millis(manual.passed.load(Ordering::Relaxed)),
        }
    }

    /// Returns the time since the Unix epoch. It can jump forward or back when the time of day is changed.
    pub fn since_epoch(&self) -> Duration {
        match &self.0 {
            ClockSource::System => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            ClockSource::Manual(manual) => {
                Duration::from_millis(u64::try_from(manual.time_of_day.load(Ordering::Relaxed)).unwrap_or(0))
            }
        }
    }

    /// Returns the time of day, in seconds since the Unix epoch.
    pub(crate) fn now_s(&self) -> u32 {
        u32::try_from(self.since_epoch().as_secs()).unwrap_or(u32::MAX)
    }

    /// Returns the present moment, as monotonic time and as Unix time.
    pub(crate) fn moment(&self) -> ClockMoment {
        ClockMoment { at: self.now(), unix_s: self.now_s() }
    }
}
