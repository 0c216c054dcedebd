//! Time as the engine sees it: milliseconds since the Unix epoch, from the system or set by hand.
//!
//! With [`Clock::manual`] a simulation or a test runs the engine in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// A source of time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands still until [`Clock::advance`]; clones share it.
    pub fn manual(since_epoch: Duration) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(since_epoch.as_millis() as u64))))
    }

    /// Moves a manual clock on; a system clock moves by itself and ignores this.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Time since the Unix epoch.
    pub(crate) fn now(&self) -> Duration {
        match &self.0 {
            Source::System => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            Source::Manual(now) => Duration::from_millis(now.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn now_s(&self) -> u32 {
        u32::try_from(self.now().as_secs()).unwrap_or(u32::MAX)
    }
}
