//! Decides whether a volume works: when it is excluded because too many operations in a row failed, and when it is
//! probed again.
//!
//! Owns: the count, the decision, and the schedule of probes. The consequences are in `store::outage`. Invariants: a
//! single volume is excluded only if operations have failed throughout [`LONE_PATIENCE`] and none has worked, because
//! no other volume can take over its share. Only the task that probes takes a volume back. A full disk is not a
//! failure, because its entries can be read. Cost: one load per successful operation.

use super::turn::TaskTurn;
use crate::sync::IgnorePoison;
use crate::sync::atomic::AtomicBool as TurnFlag;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering, fence},
    },
    time::Duration,
};

/// Number of operations that must fail one after the other before the volume is excluded.
pub(crate) const FAILURES_IN_A_ROW_MAX: u32 = 16;
/// Time during which every operation must fail before the only volume of a store is excluded.
const LONE_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time between two failures of the same series. After a longer time without operations, a failure begins a new
/// series, because the device may have worked in between.
const FAILURE_GAP_MAX: Duration = Duration::from_secs(2);
/// First pause between probes of an excluded volume. Doubled if the volume fails again soon after it was put back in
/// use.
const PROBE_PAUSE_MIN: Duration = Duration::from_secs(1);
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(8);
/// A volume that fails within this time after it was put back in use counts as not repaired.
const RELAPSE: Duration = Duration::from_secs(60);

/// The state of a volume (in use or excluded), and the data that decides it.
#[derive(Default)]
pub(crate) struct VolumeHealth {
    failures_in_a_row: AtomicU32,
    /// When the latest series of failures began, and when it last continued.
    failing: Mutex<Option<FailingTime>>,
    has_neighbors: AtomicBool,
    is_out: AtomicBool,
    /// Whether the exclusion of this volume is durably recorded. If so, the next start empties the volume.
    is_recorded: Arc<AtomicBool>,
    on_out: OnceLock<Box<dyn Fn() + Send + Sync>>,
    probes: Mutex<ProbeSchedule>,
    is_probing: TurnFlag,
}

/// A series of failures without a long gap: the times of the first and the latest.
#[derive(Clone, Copy)]
struct FailingTime {
    since: Duration,
    until: Duration,
}

/// When an excluded volume is probed.
#[derive(Default)]
struct ProbeSchedule {
    due_at: Duration,
    pause: Duration,
    back_at: Option<Duration>,
}

impl VolumeHealth {
    /// Sets the function that is called when this volume is excluded. It must not block. Also notes that the store has
    /// other volumes. Only the first call of `set_on_out` has an effect.
    pub(crate) fn set_on_out(&self, call: impl Fn() + Send + Sync + 'static) {
        self.has_neighbors.store(true, Ordering::Relaxed);
        let _ = self.on_out.set(Box::new(call));
    }

    /// Notes the outcome of an operation. If the outcome excludes the volume, returns the number of failures in a row.
    pub(crate) fn note<T>(&self, outcome: &io::Result<T>, now: impl Fn() -> Duration) -> Option<u32> {
        match outcome {
            Ok(_) => {
                if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
                    self.failures_in_a_row.store(0, Ordering::Relaxed);
                }
                None
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => None,
            Err(_) => {
                let now = now();
                let (failures, since) = self.note_failure(now);
                let is_patient =
                    !self.has_neighbors.load(Ordering::Relaxed) && now.saturating_sub(since) < LONE_PATIENCE;
                let is_over = failures >= FAILURES_IN_A_ROW_MAX && !is_patient;
                (is_over && self.exclude(now, false)).then_some(failures)
            }
        }
    }

    /// Counts a failure. Returns the number of failures in a row, and for how long they have lasted.
    fn note_failure(&self, now: Duration) -> (u32, Duration) {
        let mut failing = self.failing.lock().ignore_poison();
        let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let goes_on = |time: &FailingTime| failures > 1 && now <= time.until + FAILURE_GAP_MAX;
        let since = failing.filter(goes_on).map_or(now, |time| time.since);
        *failing = Some(FailingTime { since, until: now });
        (failures, since)
    }

    /// Excludes the volume. Returns `false` if it is already excluded. With `is_urgent`, the first probe is due at
    /// once, unless the volume has failed soon after it was put back in use.
    fn exclude(&self, now: Duration, is_urgent: bool) -> bool {
        let mut probes = self.probes();
        if self.is_out() {
            return false;
        }
        let is_relapse = probes.back_at.is_some_and(|back_at| now < back_at + RELAPSE);
        let pause = if is_relapse { 2 * probes.pause } else { PROBE_PAUSE_MIN };
        probes.pause = pause.clamp(PROBE_PAUSE_MIN, PROBE_PAUSE_MAX);
        probes.due_at = if is_urgent && !is_relapse { now } else { now + probes.pause };
        self.is_out.store(true, Ordering::SeqCst);
        drop(probes);
        if let Some(call) = self.on_out.get() {
            call();
        }
        true
    }

    /// Excludes the volume because its engine failed. It is back once it is opened again with a new engine.
    pub(crate) fn exclude_for_reopening(&self, now: Duration) {
        self.exclude(now, true);
    }

    /// Returns whether the volume failed again soon after it was put back in use.
    pub(crate) fn has_relapsed(&self) -> bool {
        self.probes().pause > PROBE_PAUSE_MIN
    }

    /// Returns the right to probe the volume. Returns `None` if the volume is in use, no probe is due (unless
    /// `is_forced` is set), or another task is probing.
    pub(crate) fn begin_probe(&self, now: Duration, is_forced: bool) -> Option<TaskTurn<'_>> {
        let turn = TaskTurn::take(&self.is_probing)?;
        let mut probes = self.probes();
        let is_due = self.is_out() && (is_forced || now >= probes.due_at);
        if is_due {
            probes.due_at = now + probes.pause;
        }
        is_due.then_some(turn)
    }

    /// Returns the time from `now` until the next probe of an excluded volume; `None` if the volume is in use.
    pub(crate) fn probe_due(&self, now: Duration) -> Option<Duration> {
        self.is_out().then(|| self.probes().due_at.saturating_sub(now))
    }

    /// Puts the volume back in use. Only the task with the right to probe it may call this.
    pub(crate) fn set_in_use(&self, now: Duration) {
        let mut probes = self.probes();
        assert!(self.is_out(), "what is taken back was excluded");
        probes.back_at = Some(now);
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        self.is_out.store(false, Ordering::SeqCst);
    }

    /// Notes whether the exclusion of this volume is durably recorded.
    pub(crate) fn set_recorded(&self, is_recorded: bool) {
        self.is_recorded.store(is_recorded, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Returns the flag that [`Self::set_recorded`] sets, so that the completion of a write can set it.
    pub(crate) fn recorded_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_recorded)
    }

    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// Returns whether the volume is excluded and this is recorded, so that the next start empties it.
    pub(crate) fn is_out_and_safe(&self) -> bool {
        self.is_out() && self.is_safe()
    }

    /// Returns whether a later start cannot find outdated entries on the volume: it is in use, or the next start
    /// empties it.
    ///
    /// A task that has deferred a removal can rely on `true`: the record of the exclusion is dropped only after the
    /// removal is written.
    pub(crate) fn is_safe(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.is_out() || self.is_recorded.load(Ordering::SeqCst)
    }

    fn probes(&self) -> MutexGuard<'_, ProbeSchedule> {
        self.probes.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn failed(kind: io::ErrorKind) -> io::Result<()> {
        Err(kind.into())
    }

    fn with_neighbors() -> (VolumeHealth, Arc<AtomicU32>) {
        let calls = Arc::new(AtomicU32::new(0));
        let health = VolumeHealth::default();
        let counted = Arc::clone(&calls);
        health.set_on_out(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (health, calls)
    }

    fn fail(health: &VolumeHealth, count: u32, now: Duration) -> u32 {
        let excluded = (0..count).filter(|_| health.note(&failed(io::ErrorKind::Other), || now).is_some());
        excluded.count() as u32
    }

    /// Guards against a volume that is excluded because of one bad sector, or a dead one that is used forever.
    #[test]
    fn only_failures_in_a_row_take_a_volume_out_and_only_once() {
        let (health, calls) = with_neighbors();
        let now = || Duration::ZERO;
        for _ in 0..10 {
            assert_eq!(fail(&health, FAILURES_IN_A_ROW_MAX - 1, Duration::ZERO), 0);
            health.note(&Ok(()), now);
        }
        (0..100).for_each(|_| _ = health.note(&failed(io::ErrorKind::StorageFull), now));
        assert!(!health.is_out());
        assert_eq!(fail(&health, 100, Duration::ZERO), 1);
        health.note(&Ok(()), now);
        assert!(health.is_out());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    /// Protects all entries of a store, which are lost if its only disk is excluded for a momentary error.
    #[test]
    fn a_volume_that_is_alone_is_excluded_only_when_nothing_works_for_ten_seconds() {
        let health = VolumeHealth::default();
        assert_eq!(fail(&health, 1000, Duration::from_secs(1)), 0);
        health.note(&Ok(()), || Duration::from_secs(2));
        for second in 20..30 {
            assert_eq!(fail(&health, 1000, Duration::from_secs(second)), 0, "second {second}");
        }
        assert_eq!(fail(&health, 1000, Duration::from_secs(30)), 1);
    }

    /// Protects all entries of a store. Its only disk must not be excluded because one read failed today and some fail
    /// tomorrow.
    #[test]
    fn volume_that_is_alone_stays_in_use_when_errors_follow_an_earlier_one() {
        let health = VolumeHealth::default();
        assert_eq!(fail(&health, 1, Duration::from_secs(100)), 0);
        for millis in 0..50 {
            assert_eq!(fail(&health, 1, Duration::from_secs(500) + 20 * Duration::from_millis(millis)), 0);
        }
        assert!(!health.is_out());
    }

    /// Guards against a repaired disk that is not used, or a dead one that is probed all the time.
    #[test]
    fn a_volume_that_is_out_is_probed_every_second_and_less_often_when_it_fails_again() {
        let (health, _) = with_neighbors();
        let seconds = Duration::from_secs;
        assert!(health.begin_probe(seconds(0), true).is_none() && health.probe_due(seconds(0)).is_none());
        fail(&health, FAILURES_IN_A_ROW_MAX, seconds(0));
        assert_eq!(health.probe_due(seconds(0)), Some(seconds(1)));
        assert!(health.begin_probe(seconds(0), false).is_none());
        let probe = health.begin_probe(seconds(1), false);
        assert!(probe.is_some() && health.begin_probe(seconds(9), true).is_none(), "one task probes at a time");
        drop(probe);
        assert_eq!(health.probe_due(seconds(1)), Some(seconds(1)));
        let mut pauses = Vec::new();
        for now in (10..60).step_by(10).map(seconds) {
            health.set_in_use(now);
            fail(&health, FAILURES_IN_A_ROW_MAX, now);
            pauses.push(health.probe_due(now).unwrap().as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 8, 8]);
        health.set_in_use(seconds(60));
        fail(&health, FAILURES_IN_A_ROW_MAX, seconds(200));
        assert_eq!(health.probe_due(seconds(200)), Some(seconds(1)));
    }
}
