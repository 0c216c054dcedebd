//! Totals of served requests: the last minute, hour and day, today, and all time across restarts.
//!
//! Owns: the totals and their file next to the store. `metrics` has the counters. Invariants: memory is constant
//! however long the proxy runs. A crash loses the counts since the file was last written, at most [`KEEP_INTERVAL`]. If
//! the file cannot be read or written, this is logged, and only the totals of earlier runs are lost. Cost: once a
//! second the counters of all workers are summed; requests pay nothing.

mod days;
mod file;
mod series;
mod sums;
mod timed;

use larder_device::IgnorePoison;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::{Zoned, civil::Date};
use serde::{Deserialize, Serialize};

use self::timed::TimedLooks;
pub(crate) use self::{
    days::DailySums,
    series::{SeriesPoint, TimeSeries},
    sums::ExchangeSums,
    timed::NamedTimes,
};
use crate::figures::metrics::{ProxyStats, WorkerMetrics};

/// The totals of served requests over time, and their file.
pub(crate) struct History {
    workers: Vec<Arc<WorkerMetrics>>,
    book: Mutex<CounterBook>,
    is_changed: AtomicBool,
    path: Option<PathBuf>,
}

/// All totals of served requests at one moment.
#[derive(Clone, Debug)]
pub(crate) struct CounterBook {
    /// The workers' counters, as of the last update.
    counted: ExchangeSums,
    pub(crate) kept: KeptHistory,
    /// Requests in the last minute, by second.
    pub(crate) seconds: TimeSeries,
    looks: TimedLooks,
}

/// The totals that are kept in the file across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptHistory {
    /// Start of the period that `ever` covers, in seconds of Unix time.
    pub(crate) since_s: i64,
    pub(crate) ever: ExchangeSums,
    /// The day that `today` covers, in this machine's time zone.
    pub(crate) date: Date,
    pub(crate) today: ExchangeSums,
    /// Requests in the last hour, by minute.
    pub(crate) minutes: TimeSeries,
    /// Requests in the last day, by quarter of an hour.
    pub(crate) quarters: TimeSeries,
    /// Requests in the last 13 months, by day.
    #[serde(default)]
    pub(crate) days: DailySums,
}

/// A moment, with the date in this machine's time zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockMoment {
    unix_s: i64,
    date: Date,
}

impl ClockMoment {
    pub(crate) fn now() -> Self {
        let now = Zoned::now();
        Self { unix_s: now.timestamp().as_second(), date: now.date() }
    }

    pub(crate) fn unix_s(self) -> i64 {
        self.unix_s
    }
}

impl History {
    /// Reads the totals from their file. If there is no valid file, starts with empty totals. Blocks the thread.
    pub(crate) fn open(path: Option<PathBuf>, workers: Vec<Arc<WorkerMetrics>>) -> Self {
        let read = path.as_deref().map(file::read);
        let kept = match read {
            Some(Ok(kept)) => Some(kept),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                let path = path.as_deref().unwrap_or_else(|| "".as_ref()).display();
                tracing::warn!(%error, %path, "the totals of earlier runs cannot be read; they start from zero");
                None
            }
            _ => None,
        };
        let kept = kept.unwrap_or_else(|| KeptHistory::new(ClockMoment::now()));
        let book = CounterBook {
            counted: ExchangeSums::default(),
            kept,
            seconds: TimeSeries::seconds(),
            looks: TimedLooks::new(),
        };
        Self { workers, book: Mutex::new(book), is_changed: AtomicBool::new(false), path }
    }

    /// Adds the counts of the workers since the last update.
    pub(crate) fn note(&self, moment: ClockMoment) {
        let stats = ProxyStats::sum(&self.workers);
        let counted = ExchangeSums::of(&stats);
        let mut book = self.book();
        let added = counted.since(&book.counted);
        book.counted = counted;
        book.add(&added, moment);
        book.looks.look(&stats, moment.unix_s);
        self.is_changed.fetch_or(added != ExchangeSums::default(), Relaxed);
    }

    /// Updates the totals, and returns them as of `moment`.
    pub(crate) fn book_at(&self, moment: ClockMoment) -> CounterBook {
        self.note(moment);
        self.book().clone()
    }

    /// Returns the distribution of response times in the last minute.
    pub(crate) fn lately(&self) -> NamedTimes {
        self.book().looks.lately(&ProxyStats::sum(&self.workers))
    }

    /// Returns the counters of all workers.
    pub(crate) fn workers(&self) -> &[Arc<WorkerMetrics>] {
        &self.workers
    }

    /// Writes the totals to their file, if they have changed. Blocks the thread.
    pub(crate) fn save(&self) {
        let Some(path) = self.path.as_deref().filter(|_| self.is_changed.swap(false, Relaxed)) else { return };
        let kept = self.book().kept.clone();
        if let Err(error) = file::write(path, &kept) {
            tracing::warn!(%error, path = %path.display(), "the totals cannot be written");
        }
    }

    /// Updates the totals every second and saves them, as long as the proxy runs.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut interval = tokio::time::interval(LOOK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut saved_at = None;
        loop {
            let now = interval.tick().await;
            self.note(ClockMoment::now());
            if self.is_changed.load(Relaxed) && saved_at.is_none_or(|at| now - at >= KEEP_INTERVAL) {
                saved_at = Some(now);
                let this = Arc::clone(&self);
                // `save` logs its own errors. Here, only a panic could be reported.
                let _ = tokio::task::spawn_blocking(move || this.save()).await;
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, CounterBook> {
        self.book.lock().ignore_poison()
    }
}

impl CounterBook {
    fn add(&mut self, added: &ExchangeSums, moment: ClockMoment) {
        let ClockMoment { unix_s, date } = moment;
        if self.kept.date != date {
            (self.kept.date, self.kept.today) = (date, ExchangeSums::default());
        }
        self.kept.ever.add(added);
        self.kept.today.add(added);
        let point = added.point();
        self.kept.days.add(&point, date);
        for series in [&mut self.seconds, &mut self.kept.minutes, &mut self.kept.quarters] {
            series.add(&point, unix_s);
        }
    }
}

impl KeptHistory {
    fn new(moment: ClockMoment) -> Self {
        Self {
            since_s: moment.unix_s,
            ever: ExchangeSums::default(),
            date: moment.date,
            today: ExchangeSums::default(),
            minutes: TimeSeries::minutes(),
            quarters: TimeSeries::quarters(),
            days: DailySums::default(),
        }
    }
}

/// Interval at which the workers' counters are summed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which changed totals are written to the file.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::figures::outcome::Outcome;

    const MONDAY: ClockMoment = ClockMoment { unix_s: 1_000_000_000, date: Date::constant(2026, 11, 23) };

    fn open(path: &std::path::Path) -> (History, Arc<WorkerMetrics>) {
        let worker = Arc::new(WorkerMetrics::default());
        (History::open(Some(path.to_owned()), vec![Arc::clone(&worker)]), worker)
    }

    fn later(moment: ClockMoment, seconds: i64) -> ClockMoment {
        ClockMoment { unix_s: moment.unix_s + seconds, ..moment }
    }

    #[test]
    fn what_was_counted_is_there_after_a_restart_and_a_new_day_begins_at_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        let (history, worker) = open(&path);
        worker.count(Outcome::Hit);
        worker.saved_bytes.add(100);
        worker.client_bytes.add(100);
        history.note(MONDAY);
        worker.count(Outcome::Miss);
        history.note(later(MONDAY, 61));
        history.save();
        drop(history);

        let (history, worker) = open(&path);
        worker.count(Outcome::Hit);
        let book = history.book_at(later(MONDAY, 62));
        assert_eq!((book.kept.ever.hits(), book.kept.ever.misses(), book.kept.ever.hit_bytes()), (2, 1, 100));
        assert_eq!(book.kept.today, book.kept.ever);
        let hits: Vec<u64> = book.kept.minutes.points().map(|point| point.hits).collect();
        assert_eq!((hits.len(), &hits[58..]), (60, &[1, 1][..]));
        let book =
            history.book_at(ClockMoment { unix_s: MONDAY.unix_s + 86_400, date: MONDAY.date.tomorrow().unwrap() });
        assert_eq!((book.kept.ever.hits(), book.kept.today.requests()), (2, 0));
    }

    #[test]
    fn a_file_that_is_damaged_is_told_and_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        let (history, worker) = open(&path);
        worker.count(Outcome::Hit);
        history.note(MONDAY);
        history.save();
        let whole = fs::read(&path).unwrap();
        let cut = &whole[..whole.len() / 2];
        let series_too_long =
            String::from_utf8(whole.clone()).unwrap().replace("\"points\":[", "\"points\":[[1,1,1,1,1,1],");
        for text in [cut, b"", b"nonsense", b"{}", &[0; 4096], series_too_long.as_bytes()] {
            fs::write(&path, text).unwrap();
            let (history, worker) = open(&path);
            assert_eq!(history.book_at(MONDAY).kept.ever.requests(), 0, "{:?}", String::from_utf8_lossy(text));
            worker.count(Outcome::Hit);
            history.note(MONDAY);
            history.save();
            assert_eq!(open(&path).0.book_at(MONDAY).kept.ever.hits(), 1);
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(open(&path).0.book_at(MONDAY).kept.ever.hits(), 1);
    }
}
