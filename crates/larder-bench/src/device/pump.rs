//! Keeps a number of operations in flight for a time, and counts and times them.
//!
//! Owns: the loop of one thread that submits, while the device completes on its own threads. Invariant: the given
//! number is in flight until the time is over, and all have completed when it returns. Cost: one lock and one wakeup
//! for the operations completed since the last round.

use super::{SEQUENTIAL_BYTES, scratch::noise};
use crate::cpu;
use hdrhistogram::Histogram;
use larder_device::IgnorePoison;
use larder_device::{AlignedBuffer, Completion, Device, Transfer};
use larder_workload::Random;
use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// The kind of the operations that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpWork {
    RandomRead,
    RandomWrite,
    SequentialRead,
    SequentialWrite,
    /// Random writes and random reads take turns.
    ReadsAndWrites,
    /// Random reads. After every [`SEQUENTIAL_BYTES`] of reads, one sequential write of the same length.
    ReadsAndSequentialWrites,
}

impl PumpWork {
    /// Returns the number of operations from one write to the next. `None` if all operations are of one kind.
    pub(super) fn write_every(self, transfer_bytes: u64) -> Option<u64> {
        match self {
            Self::ReadsAndWrites => Some(2),
            Self::ReadsAndSequentialWrites => Some(1 + SEQUENTIAL_BYTES / transfer_bytes),
            _ => None,
        }
    }
}

/// An operation to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextTransfer {
    is_write: bool,
    offset_bytes: u64,
}

/// The rate of the measured operations, the times that they took, and their processor time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PumpFigures {
    pub(super) per_second: f64,
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
    pub(super) cpu_us: f64,
}

/// Keeps operations of one kind in flight on a device.
pub(super) struct Pump {
    device: Arc<dyn Device>,
    work: PumpWork,
    transfer_bytes: u64,
    depth: u32,
    random: Random,
    /// Number of operations started so far. `sequential_count` is the number of those that were sequential.
    begun_count: u64,
    sequential_count: u64,
    written: Arc<AlignedBuffer>,
    returned: Arc<ReturnedTransfers>,
}

/// The operations that the device has completed and that the measuring thread has not counted yet.
#[derive(Default)]
struct ReturnedTransfers {
    done: Mutex<Vec<FinishedTransfer>>,
    some: Condvar,
}

/// An operation that the device has completed.
struct FinishedTransfer {
    begun: Instant,
    ended: Instant,
    outcome: io::Result<Option<AlignedBuffer>>,
}

impl ReturnedTransfers {
    fn lock(&self) -> MutexGuard<'_, Vec<FinishedTransfer>> {
        self.done.lock().ignore_poison()
    }

    fn put(&self, begun: Instant, outcome: io::Result<Option<AlignedBuffer>>) {
        let mut done = self.lock();
        done.push(FinishedTransfer { begun, ended: Instant::now(), outcome });
        if done.len() == 1 {
            self.some.notify_one();
        }
    }

    fn take(&self) -> Vec<FinishedTransfer> {
        let mut done = self.lock();
        while done.is_empty() {
            done = self.some.wait(done).ignore_poison();
        }
        std::mem::take(&mut done)
    }
}

impl Pump {
    pub(super) fn new(device: &Arc<dyn Device>, work: PumpWork, transfer_bytes: u64, depth: u32) -> Self {
        let written_bytes = if work == PumpWork::ReadsAndSequentialWrites { SEQUENTIAL_BYTES } else { transfer_bytes };
        let mut written = AlignedBuffer::with_len(written_bytes as usize);
        noise(written.as_mut_slice());
        Self {
            device: Arc::clone(device),
            work,
            transfer_bytes,
            depth,
            random: Random::new(transfer_bytes ^ u64::from(depth)),
            begun_count: 0,
            sequential_count: 0,
            written: Arc::new(written),
            returned: Arc::default(),
        }
    }

    /// Keeps operations in flight for `time`, and returns their figures.
    pub(super) fn run(&mut self, time: Duration) -> io::Result<PumpFigures> {
        let mut times =
            Histogram::<u64>::new_with_bounds(1, TIME_MAX_NS, 3).expect("the bounds and digits are allowed");
        let begun = Instant::now();
        let cpu_begun = cpu::own();
        let mut spare: Vec<AlignedBuffer> = Vec::new();
        let mut in_flight = 0;
        let mut count = 0_u64;
        while in_flight > 0 || begun.elapsed() < time {
            while in_flight < self.depth && begun.elapsed() < time {
                self.submit(spare.pop());
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            for FinishedTransfer { begun, ended, outcome } in self.returned.take() {
                in_flight -= 1;
                count += 1;
                spare.extend(outcome?);
                times.saturating_record((ended - begun).as_nanos() as u64);
            }
        }
        let count = count.max(1) as f64;
        Ok(PumpFigures {
            per_second: count / begun.elapsed().as_secs_f64(),
            mean_us: times.mean() / 1000.0,
            p99_us: times.value_at_quantile(0.99) as f64 / 1000.0,
            cpu_us: (cpu::own() - cpu_begun).as_secs_f64() * 1e6 / count,
        })
    }

    fn submit(&mut self, spare: Option<AlignedBuffer>) {
        let NextTransfer { is_write, offset_bytes } = self.next();
        let returned = Arc::clone(&self.returned);
        let begun = Instant::now();
        self.device.submit(if is_write {
            Transfer::Write {
                offset_bytes,
                buffer: Arc::clone(&self.written),
                completion: Completion::callback(move |outcome: io::Result<()>| {
                    returned.put(begun, outcome.map(|()| None));
                }),
            }
        } else {
            Transfer::Read {
                offset_bytes,
                buffer: spare.unwrap_or_else(|| AlignedBuffer::with_len(self.transfer_bytes as usize)),
                completion: Completion::callback(move |outcome: io::Result<AlignedBuffer>| {
                    returned.put(begun, outcome.map(Some));
                }),
            }
        });
    }

    /// Returns the next operation. Its offset is a multiple of its length.
    fn next(&mut self) -> NextTransfer {
        self.begun_count += 1;
        let mixed_in =
            self.work.write_every(self.transfer_bytes).is_some_and(|every| self.begun_count.is_multiple_of(every));
        let is_write = mixed_in || matches!(self.work, PumpWork::RandomWrite | PumpWork::SequentialWrite);
        let is_sequential = match self.work {
            PumpWork::SequentialRead | PumpWork::SequentialWrite => true,
            PumpWork::ReadsAndSequentialWrites => mixed_in,
            PumpWork::RandomRead | PumpWork::RandomWrite | PumpWork::ReadsAndWrites => false,
        };
        let transfer_bytes = if is_write { self.written.len() as u64 } else { self.transfer_bytes };
        let places = self.device.len_bytes() / transfer_bytes;
        let place = if is_sequential {
            self.sequential_count += 1;
            (self.sequential_count - 1) % places
        } else {
            self.random.below(places)
        };
        NextTransfer { is_write, offset_bytes: place * transfer_bytes }
    }
}

const TIME_MAX_NS: u64 = 100_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::MemoryDevice;

    #[test]
    fn every_kind_of_transfer_is_counted_and_timed() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let pure = [PumpWork::RandomRead, PumpWork::RandomWrite, PumpWork::SequentialRead, PumpWork::SequentialWrite];
        for work in pure.into_iter().chain([PumpWork::ReadsAndWrites, PumpWork::ReadsAndSequentialWrites]) {
            // On a busy machine, a run of 5 ms may end before its first read does.
            let mut runs = (0..100).map(|_| Pump::new(&device, work, 4096, 4).run(Duration::from_millis(5)).unwrap());
            let outcome = runs.find(|outcome| outcome.per_second > 0.0 && outcome.mean_us > 0.0);
            let outcome = outcome.unwrap_or_else(|| panic!("{work:?}: nothing was counted or timed"));
            assert!(outcome.p99_us + 1.0 >= outcome.mean_us / 100.0, "{work:?}: {outcome:?}");
        }
    }

    #[test]
    fn random_places_are_spread_and_sequential_ones_go_round() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        let mut pump = Pump::new(&device, PumpWork::SequentialRead, 1 << 18, 1);
        assert_eq!((0..5).map(|_| pump.next().offset_bytes >> 18).collect::<Vec<_>>(), [0, 1, 2, 3, 0]);
        let mut pump = Pump::new(&device, PumpWork::RandomRead, 4096, 1);
        let mut seen = [0_u32; 256];
        (0..25_600).for_each(|_| seen[pump.next().offset_bytes as usize / 4096] += 1);
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
    }

    #[test]
    fn mixed_work_writes_as_many_bytes_as_it_reads() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 20));
        let mut pump = Pump::new(&device, PumpWork::ReadsAndSequentialWrites, 1 << 18, 1);
        let made: Vec<_> = (0..15).map(|_| pump.next()).collect();
        let written: Vec<_> = made.iter().filter(|next| next.is_write).map(|next| next.offset_bytes >> 20).collect();
        assert_eq!(written, [0, 1, 2], "{made:?}");
        let mut pump = Pump::new(&device, PumpWork::ReadsAndWrites, 4096, 1);
        assert_eq!((0..10).filter(|_| pump.next().is_write).count(), 5);
    }
}
