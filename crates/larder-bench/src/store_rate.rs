//! Measures the requests per second of a policy on a disk, to compare with a plan.
//!
//! Owns: a temporary store in a directory. Nothing is proxied: requests are lookups, and insertions of the misses, as a
//! plan counts them. Invariant: the store is full before the clock starts, and no hit is for an entry that entered the
//! page cache since then. Cost: the store's size written once, and the given time.

use crate::{cpu, undo::Undo};
use bytes::Bytes;
use larder_device::FilesDirectory;
use larder_store::{Error, ErrorKind, Hints, IoChoice, Policy, Stats, Store, StoreOptions, Tuning, plan::Sizes};
use larder_workload::{Random, mix};
use rustix::fs::{Advice, fadvise};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime, task::JoinSet};

/// The settings of a measurement of one policy.
#[derive(Clone, Debug)]
pub struct StoreJob {
    /// A directory on the disk to measure. The store is created in it.
    pub directory: PathBuf,
    /// The policy to measure.
    pub policy: &'static Policy,
    /// Values of the policies' constants.
    pub tuning: Tuning,
    /// Size of the store, in bytes.
    pub size_bytes: u64,
    /// Mean length of an entry, in bytes. Lengths are lognormal, as in [`Sizes::Mean`].
    pub mean_bytes: u64,
    /// Share of the requests that are for a recently stored entry, from 0 to 1.
    pub hit_ratio: f64,
    /// Share of the misses whose response is stored, from 0 to 1.
    pub storable_share: f64,
    /// Number of requests in flight at the same time.
    pub depth: u32,
    /// Time for which requests are counted.
    pub time: Duration,
    /// The I/O interface of the kernel that the store uses.
    pub io: IoChoice,
}

impl StoreJob {
    /// Returns the distribution of entry lengths that a plan for the same measurement needs.
    pub fn sizes(&self) -> Sizes {
        Sizes::Mean(self.mean_bytes as f64)
    }
}

/// The results of a measurement of one policy.
#[derive(Clone, Copy, Debug)]
pub struct StoreRate {
    /// Requests per second.
    pub per_second: f64,
    /// Share of the requests that were hits.
    pub hit_ratio: f64,
    /// Mean number of reads from the device per request.
    pub reads_per_request: f64,
    /// Share of the insertions that the store refused for lack of room.
    pub refused_ratio: f64,
    /// Bytes written to the device per byte of stored entries.
    pub write_factor: f64,
    /// Processor time per request, in microseconds.
    pub cpu_us: f64,
}

/// Measures a policy on a disk. Calls `progress` with the current step and the completed share, from 0 to 1.
///
/// # Errors
/// The directory is unusable, or the store fails.
pub fn measure_store(job: &StoreJob, progress: &mut dyn FnMut(&str, f64)) -> Result<StoreRate, Error> {
    let place = job.directory.join(format!("larder-bench.{}", std::process::id()));
    if place.exists() {
        return Err(Error::new(ErrorKind::Invalid, format!("left from another measurement: {}", place.display())));
    }
    let _undo = Undo::removes(place.clone());
    let options = StoreOptions {
        policy: job.policy,
        tuning: job.tuning.clone(),
        mean_entry_bytes: job.mean_bytes,
        io: job.io,
        ..StoreOptions::new(&place, job.size_bytes)
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::io(ErrorKind::Unavailable, "cannot start a runtime", error))?;
    runtime.block_on(async {
        let store = Store::open(options)?;
        let run = Arc::new(RateRun {
            store,
            median_bytes: job.mean_bytes as f64 / libm::exp(Sizes::SIGMA * Sizes::SIGMA / 2.0),
            noise: noise(),
            next: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        });
        fill(&run, job, progress).await?;
        run.store.sync().await?;
        let rate = measure(&run, job, &place, progress).await?;
        run.store.close().await?;
        Ok(rate)
    })
}

struct RateRun {
    store: Store,
    median_bytes: f64,
    noise: Bytes,
    next: AtomicU64,
    requests: AtomicU64,
    hits: AtomicU64,
}

impl RateRun {
    fn len_bytes(&self, number: u64) -> usize {
        let deviations = Random::new(mix(number)).normal() * Sizes::SIGMA;
        (self.median_bytes * libm::exp(deviations)).clamp(64.0, NOISE_BYTES as f64) as usize
    }

    async fn insert(&self, number: u64) -> Result<(), Error> {
        let stored = async {
            let mut writer = self.store.insert(&key(number), "HTTP/1.1 200 OK".into(), Hints::default())?;
            writer.write(self.noise.slice(..self.len_bytes(number)))?;
            writer.commit().await
        };
        match stored.await {
            // A policy may refuse an entry for lack of room, which the store counts.
            Err(error) if error.kind() == ErrorKind::Full => Ok(()),
            stored => stored,
        }
    }

    /// Sends one request: with the probability [`StoreJob::hit_ratio`] for the next entry of `round`, otherwise for a
    /// new entry. Returns whether it was a hit.
    async fn request(&self, random: &mut Random, job: &StoreJob, round: &RecentRound) -> Result<bool, Error> {
        let number =
            if random.happens(job.hit_ratio) { round.next() } else { self.next.fetch_add(1, Ordering::Relaxed) };
        if let Some(reader) = self.store.get(&key(number)).await? {
            let len = reader.len();
            if reader.read(0..len).await?.is_some() {
                return Ok(true);
            }
        }
        if random.happens(job.storable_share) {
            self.insert(number).await?;
        }
        Ok(false)
    }
}

/// The entries that were stored last before the clock started, each once, in random order.
///
/// Repeated entries, and entries stored later, would be in the page cache if the policy keeps files. Hits must come
/// from the disk, which is measured.
struct RecentRound {
    numbers: Vec<u64>,
    asked: AtomicUsize,
}

impl RecentRound {
    /// Creates a round of the `count` entries whose numbers are just below `end`.
    fn new(end: u64, count: u64, random: &mut Random) -> Self {
        let mut numbers: Vec<u64> = (end.saturating_sub(count.max(1))..end).collect();
        random.shuffle(&mut numbers);
        Self { numbers, asked: AtomicUsize::new(0) }
    }

    /// Returns the number of the next entry. Repeats the last number when all were returned.
    fn next(&self) -> u64 {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        self.numbers.get(asked).or(self.numbers.last()).copied().unwrap_or_default()
    }

    fn is_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed) >= self.numbers.len()
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"bench-..........";
    key[6..14].copy_from_slice(&number.to_le_bytes());
    key
}

async fn fill(run: &Arc<RateRun>, job: &StoreJob, progress: &mut dyn FnMut(&str, f64)) -> Result<(), Error> {
    let count = (job.size_bytes as f64 * FILL_TURNS / job.mean_bytes as f64) as u64;
    let mut tasks = JoinSet::new();
    loop {
        let number = run.next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            break;
        }
        if tasks.len() >= FILL_DEPTH {
            ended(tasks.join_next().await)?;
        }
        if number.is_multiple_of(PROGRESS_EVERY) {
            progress("filling", number as f64 / count as f64);
        }
        let run = Arc::clone(run);
        tasks.spawn(async move { run.insert(number).await });
    }
    while let Some(task) = tasks.join_next().await {
        ended(Some(task))?;
    }
    Ok(())
}

async fn measure(
    run: &Arc<RateRun>,
    job: &StoreJob,
    place: &Path,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<StoreRate, Error> {
    let kept = (job.size_bytes as f64 * KEPT_SHARE / job.mean_bytes as f64) as u64;
    let mut random = Random::new(0);
    let before = run.store.stats();
    let mut time = Duration::ZERO;
    let mut cpu = Duration::ZERO;
    let mut is_over = false;
    while !is_over {
        progress("asking", time.as_secs_f64() / job.time.as_secs_f64());
        forget_files(place);
        let round = Arc::new(RecentRound::new(run.next.load(Ordering::Relaxed), kept, &mut random));
        let begun = Instant::now();
        let cpu_begun = cpu::own();
        let end = begun + job.time.saturating_sub(time);
        ask(run, job, &round, end, &mut random).await?;
        is_over = Instant::now() >= end;
        if is_over || job.policy.layout.keeps_files() {
            // Data that is not written yet is part of the measured work, so its writing counts, too.
            run.store.sync().await?;
        }
        time += begun.elapsed();
        cpu += cpu::own() - cpu_begun;
    }
    let after = run.store.stats();
    let requests = run.requests.load(Ordering::Relaxed).max(1) as f64;
    let more = |count: fn(&Stats) -> u64| (count(&after) - count(&before)) as f64;
    let refused = more(|stats| stats.rejected);
    Ok(StoreRate {
        per_second: requests / time.as_secs_f64(),
        hit_ratio: run.hits.load(Ordering::Relaxed) as f64 / requests,
        reads_per_request: more(|stats| stats.reads) / requests,
        refused_ratio: refused / (refused + more(|stats| stats.commits)).max(1.0),
        write_factor: more(|stats| stats.written_bytes) / more(|stats| stats.admitted_bytes).max(1.0),
        cpu_us: cpu.as_secs_f64() * 1e6 / requests,
    })
}

/// Sends requests until `end`, or until all entries of the round were requested. Keeps [`StoreJob::depth`] requests in
/// flight.
async fn ask(
    run: &Arc<RateRun>,
    job: &StoreJob,
    round: &Arc<RecentRound>,
    end: Instant,
    random: &mut Random,
) -> Result<(), Error> {
    let mut tasks = JoinSet::new();
    for _ in 0..job.depth.max(1) {
        let run = Arc::clone(run);
        let round = Arc::clone(round);
        let job = job.clone();
        let mut random = Random::new(random.bits());
        tasks.spawn(async move {
            while Instant::now() < end && !round.is_over() {
                let is_hit = run.request(&mut random, &job, &round).await?;
                run.requests.fetch_add(1, Ordering::Relaxed);
                run.hits.fetch_add(u64::from(is_hit), Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        ended(Some(task))?;
    }
    Ok(())
}

fn ended(task: Option<Result<Result<(), Error>, tokio::task::JoinError>>) -> Result<(), Error> {
    match task {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(Error::new(ErrorKind::Unavailable, format!("a task ended badly: {error}"))),
        None => Ok(()),
    }
}

/// Removes the store's files from the page cache, so that hits are read from the disk and not from memory. Without
/// effect on policies that keep no files.
fn forget_files(place: &Path) {
    let mut folders = vec![place.join(FilesDirectory::FOLDER_NAME)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if let Ok(file) = File::open(entry.path()) {
                // If this fails, some data stays in memory, and the measured rate is too high.
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }
}

fn noise() -> Bytes {
    let mut random = Random::new(1);
    let words = (0..NOISE_BYTES / 8).flat_map(|_| random.bits().to_le_bytes());
    words.collect::<Vec<u8>>().into()
}

/// Maximum length of an entry, in bytes.
const NOISE_BYTES: usize = 512 << 10;
/// Size of the data that is stored before counting starts, as a multiple of the store's size.
const FILL_TURNS: f64 = 1.1;
const FILL_DEPTH: usize = 64;
/// Share of the store's size that is filled with entries requested as hits. These are the newest entries, and every
/// policy still has them.
const KEPT_SHARE: f64 = 0.4;
const PROGRESS_EVERY: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_each_number_once_and_not_in_order() {
        let round = RecentRound::new(1000, 300, &mut Random::new(1));
        let mut asked: Vec<u64> = (0..300).map(|_| round.next()).collect();
        assert!(round.is_over() && !asked.is_sorted());
        assert_eq!(round.next(), asked[299]);
        asked.sort_unstable();
        assert_eq!(asked, (700..1000).collect::<Vec<_>>());
        assert_eq!(RecentRound::new(5, 300, &mut Random::new(1)).numbers.len(), 5);
    }
}
