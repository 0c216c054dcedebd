//! A device that fails on purpose: in memory, with the faults of a [`FaultPlan`] drawn from a seed.
//!
//! Owns: the bytes that reads return, the bytes that would survive a power loss, the acknowledged writes in between
//! (the drive's volatile cache), and the operations that wait for [`FaultyDevice::turn`]. It uses neither threads nor
//! time. Invariants: the same seed and the same calls give the same bytes, completions and [`FaultStats`]. With a plan
//! of zeros it behaves like any other device. Cost: each write is copied three times.
//!
//! Idea: faults of drives after Bairavasundaram et al. (FAST 2008) and Zheng et al. (FAST 2013); simulation by seed as
//! in FoundationDB.

mod plan;

use crate::ignore_poison::IgnorePoison;
use std::{
    collections::VecDeque,
    io, mem,
    ops::ControlFlow,
    sync::{Mutex, MutexGuard},
};

use rustix::io::Errno;

use crate::SplitMix64;
use crate::{
    Device, MemoryDevice, Transfer,
    in_flight::{InFlight, SystemCall, TransferBounds},
};
pub use plan::{FaultPlan, FaultStats};
use plan::{PlannedFault, TransferFate, TransferKind};

/// A device in memory that produces the faults of a [`FaultPlan`]. A seed decides which operations have one, so that a
/// test can be repeated.
///
/// ```
/// use larder_device::{Device, FaultPlan, FaultyDevice, block_on};
///
/// let device = FaultyDevice::new(1 << 20, 42, FaultPlan { read_errors_ppm: 1_000_000, ..FaultPlan::default() });
/// let device: &dyn Device = &device;
/// assert!(block_on(device.read(0, 4096)).is_err());
/// ```
pub struct FaultyDevice {
    bounds: TransferBounds,
    /// The bytes that reads return: those of all completed writes, whether they are in the drive's cache or on the
    /// medium.
    seen: MemoryDevice,
    state: Mutex<FaultyState>,
}

impl_debug!(FaultyDevice {});

struct FaultyState {
    plan: FaultPlan,
    random: SplitMix64,
    stats: FaultStats,
    /// The bytes that certainly survive a power loss.
    durable: MemoryDevice,
    /// The writes that were completed since the last sync, the oldest first. After a power loss, any of them may be
    /// there, whole or in part.
    cached: VecDeque<LandedWrite>,
    cached_bytes: usize,
    /// Number that the next completed write gets.
    next_landed: u64,
    waiting: Vec<WaitingTransfer>,
    /// Whether the next sync fails and undoes all writes since the last one.
    loses_next_sync: bool,
    /// The write that was in progress when all operations began to fail ([`FaultPlan::dead_after`]).
    last_gasp: Option<LandedWrite>,
}

/// A write, or a part of it, that has reached the drive.
struct LandedWrite {
    number: u64,
    offset_bytes: u64,
    bytes: Box<[u8]>,
}

/// An operation that is not completed yet.
struct WaitingTransfer {
    in_flight: InFlight,
    fault: Option<PlannedFault>,
    is_short: bool,
    /// Distance in bytes that is added to the offset of a misdirected operation.
    shift_bytes: u64,
    /// For a sync: the number of the first write that it does not cover.
    sync_below: u64,
}

impl FaultyDevice {
    /// Creates a device with `len_bytes` of zeros. `seed` decides which operations have faults.
    pub fn new(len_bytes: u64, seed: u64, plan: FaultPlan) -> Self {
        Self::on(MemoryDevice::new(len_bytes), SplitMix64::new(seed), plan)
    }

    /// Creates a device with the content of `medium`, all of it durable.
    pub fn with_contents(medium: &MemoryDevice, seed: u64, plan: FaultPlan) -> Self {
        Self::on(medium.snapshot(), SplitMix64::new(seed), plan)
    }

    /// Replaces the plan. Numbers of operations in it still count from the first operation of this device.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.lock().plan = plan;
    }

    /// Makes the next sync that is submitted fail, and undo all writes since the last sync. Later syncs succeed.
    pub fn lose_next_sync(&self) {
        self.lock().loses_next_sync = true;
    }

    /// Continues one of the waiting operations, which the seed chooses. Returns `false` if none waits.
    pub fn turn(&self) -> bool {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            return false;
        }
        let count = state.waiting.len() as u64;
        let at = state.random.below(count) as usize;
        let mut waiting = state.waiting.swap_remove(at);
        match self.step(&mut state, &mut waiting) {
            ControlFlow::Continue(()) => state.waiting.push(waiting),
            ControlFlow::Break(outcome) => {
                drop(state);
                waiting.in_flight.complete(outcome);
            }
        }
        true
    }

    /// Returns the number of operations that wait for [`Self::turn`].
    pub fn waiting_count(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns how many of the waiting operations will fail. The statistics include their faults already.
    pub fn struck_count(&self) -> usize {
        self.lock().waiting.iter().filter(|waiting| waiting.fault.is_some()).count()
    }

    /// Returns the device as another process finds it if this process is killed now. All acknowledged writes are there.
    /// Each write that waits is there, missing, or there in part. The new device has other random numbers and no
    /// waiting operations. This device should no longer be used.
    pub fn kill(&self) -> Self {
        let mut state = self.lock();
        let contents = self.seen.snapshot();
        let FaultyState { random, waiting, last_gasp, .. } = &mut *state;
        let pending = waiting.iter_mut().filter_map(pending_write).chain(last_gasp.take());
        pending.for_each(|landed| land_in_part(&contents, landed, random));
        self.successor(contents, &mut state)
    }

    /// Returns the device after a power loss. All synced writes are there. Any other write may be there too, whole or
    /// in part. Otherwise like [`FaultyDevice::kill`].
    pub fn power_cut(&self) -> Self {
        let mut state = self.lock();
        let contents = state.durable.snapshot();
        let FaultyState { random, cached, waiting, last_gasp, .. } = &mut *state;
        let pending = waiting.iter_mut().filter_map(pending_write).chain(last_gasp.take());
        let mut loose: Vec<LandedWrite> = cached.drain(..).chain(pending).collect();
        while !loose.is_empty() {
            let next = random.below(loose.len() as u64) as usize;
            land_in_part(&contents, loose.swap_remove(next), random);
        }
        self.successor(contents, &mut state)
    }

    /// Returns a copy of the bytes that reads return.
    pub fn contents(&self) -> Vec<u8> {
        self.seen.contents()
    }

    /// Returns the statistics of this device. A device that [`FaultyDevice::kill`] or [`FaultyDevice::power_cut`]
    /// returned continues those of the earlier device.
    pub fn stats(&self) -> FaultStats {
        self.lock().stats
    }

    fn on(contents: MemoryDevice, random: SplitMix64, plan: FaultPlan) -> Self {
        let bounds = TransferBounds { len_bytes: contents.len_bytes(), alignment_bytes: contents.alignment_bytes() };
        let state = FaultyState {
            plan,
            random,
            stats: FaultStats::default(),
            durable: contents.snapshot(),
            cached: VecDeque::new(),
            cached_bytes: 0,
            next_landed: 0,
            waiting: Vec::new(),
            loses_next_sync: false,
            last_gasp: None,
        };
        Self { bounds, seen: contents, state: Mutex::new(state) }
    }

    fn successor(&self, contents: MemoryDevice, state: &mut FaultyState) -> Self {
        let next = Self::on(contents, state.random.fork(), state.plan.clone());
        next.lock().stats = state.stats;
        next
    }

    /// Does one step of an operation: moves its bytes, or only some of them if the operation is to be short.
    fn step(&self, state: &mut FaultyState, waiting: &mut WaitingTransfer) -> ControlFlow<io::Result<()>> {
        let WaitingTransfer { in_flight, fault, is_short, shift_bytes, sync_below } = waiting;
        match fault {
            Some(PlannedFault::Error) => return ControlFlow::Break(Err(Errno::IO.into())),
            Some(PlannedFault::Full) => return ControlFlow::Break(Err(Errno::NOSPC.into())),
            Some(PlannedFault::Loss) => {
                self.lose(state);
                return ControlFlow::Break(Err(Errno::IO.into()));
            }
            _ => {}
        }
        let moved_bytes = match in_flight.call() {
            SystemCall::Read(to, offset_bytes) => {
                let len = piece(to.len(), *is_short, &mut state.random);
                let to = &mut to[..len];
                self.seen.read_at(offset_bytes.wrapping_add(*shift_bytes), to);
                if *fault == Some(PlannedFault::Flipped) {
                    flip(to, &mut state.random);
                    *fault = None;
                }
                to.len()
            }
            SystemCall::Write(from, offset_bytes) => {
                let from = &from[..piece(from.len(), *is_short, &mut state.random)];
                let mut bytes: Box<[u8]> = match fault {
                    Some(PlannedFault::Lost) => Box::default(),
                    Some(PlannedFault::Torn) => from[..sectors_below(from.len(), &mut state.random)].into(),
                    _ => from.into(),
                };
                if *fault == Some(PlannedFault::Flipped) {
                    flip(&mut bytes, &mut state.random);
                    *fault = None;
                }
                let moved_bytes = from.len();
                self.land(state, offset_bytes.wrapping_add(*shift_bytes), bytes);
                moved_bytes
            }
            SystemCall::Sync => {
                while state.cached.front().is_some_and(|oldest| oldest.number < *sync_below) {
                    state.make_oldest_durable();
                }
                0
            }
        };
        in_flight.advance(Ok(moved_bytes))
    }

    /// Undoes writes that are only in the drive's cache. Undoes all of them unless the plan has sync losses; then a
    /// random choice decides between all and some.
    fn lose(&self, state: &mut FaultyState) {
        let loses_all = state.plan.sync_losses_ppm == 0 || state.random.below(2) == 0;
        let kept: Vec<LandedWrite> = state.cached.drain(..).collect();
        state.cached_bytes = 0;
        for landed in kept {
            if !loses_all && state.random.below(4) == 0 {
                state.durable.write_at(landed.offset_bytes, &landed.bytes);
            }
        }
        self.seen.write_at(0, &state.durable.contents());
    }

    fn land(&self, state: &mut FaultyState, offset_bytes: u64, bytes: Box<[u8]>) {
        self.seen.write_at(offset_bytes, &bytes);
        state.cached_bytes += bytes.len();
        state.cached.push_back(LandedWrite { number: state.next_landed, offset_bytes, bytes });
        state.next_landed += 1;
        while state.cached_bytes > CACHE_BYTES_MAX {
            state.make_oldest_durable();
        }
    }

    /// Returns a random distance by which an operation of `len_bytes` at `offset_bytes` is misdirected. The new place
    /// is also within the device.
    fn astray(&self, offset_bytes: u64, len_bytes: usize, random: &mut SplitMix64) -> u64 {
        let alignment_bytes = u64::from(self.bounds.alignment_bytes);
        let places = (self.bounds.len_bytes - len_bytes as u64) / alignment_bytes + 1;
        (random.below(places) * alignment_bytes).wrapping_sub(offset_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, FaultyState> {
        self.state.lock().ignore_poison()
    }
}

impl Device for FaultyDevice {
    fn submit(&self, transfer: Transfer) {
        let (motion, offset_bytes) = match &transfer {
            Transfer::Read { offset_bytes, .. } => (TransferKind::Read, *offset_bytes),
            Transfer::Write { offset_bytes, .. } => (TransferKind::Write, *offset_bytes),
            Transfer::Sync { .. } => (TransferKind::Sync, 0),
        };
        let Some(in_flight) = self.bounds.admit(transfer) else { return };
        let mut state = self.lock();
        let FaultyState { plan, random, stats, loses_next_sync, .. } = &mut *state;
        let TransferFate { mut fault, is_short, is_slow } = plan.draw(motion, random, stats);
        if motion == TransferKind::Sync && mem::take(loses_next_sync) {
            fault = Some(PlannedFault::Loss);
            (stats.sync_errors, stats.sync_losses) = (stats.sync_errors + 1, stats.sync_losses + 1);
        }
        let is_astray = fault == Some(PlannedFault::Misdirected);
        let shift_bytes = if is_astray { self.astray(offset_bytes, in_flight.len_bytes(), random) } else { 0 };
        let mut waiting = WaitingTransfer { in_flight, fault, is_short, shift_bytes, sync_below: state.next_landed };
        if state.plan.dead_after.is_some_and(|last| state.stats.transfers == last + 1) {
            state.last_gasp = rest_of_write(&mut waiting);
        }
        if is_slow {
            state.waiting.push(waiting);
            return;
        }
        let outcome = loop {
            if let ControlFlow::Break(outcome) = self.step(&mut state, &mut waiting) {
                break outcome;
            }
        };
        // The completion may submit another operation.
        drop(state);
        waiting.in_flight.complete(outcome);
    }

    fn len_bytes(&self) -> u64 {
        self.bounds.len_bytes
    }

    fn alignment_bytes(&self) -> u32 {
        self.bounds.alignment_bytes
    }

    fn name(&self) -> &'static str {
        "faulty"
    }
}

impl FaultyState {
    fn make_oldest_durable(&mut self) {
        if let Some(landed) = self.cached.pop_front() {
            self.durable.write_at(landed.offset_bytes, &landed.bytes);
            self.cached_bytes -= landed.bytes.len();
        }
    }
}

/// Returns the part of a waiting write that is still to be written; `None` if the write will fail.
fn pending_write(waiting: &mut WaitingTransfer) -> Option<LandedWrite> {
    let lands = matches!(waiting.fault, None | Some(PlannedFault::Misdirected));
    if lands { rest_of_write(waiting) } else { None }
}

fn rest_of_write(waiting: &mut WaitingTransfer) -> Option<LandedWrite> {
    match waiting.in_flight.call() {
        SystemCall::Write(from, offset_bytes) => {
            let offset_bytes = offset_bytes.wrapping_add(waiting.shift_bytes);
            Some(LandedWrite { number: u64::MAX, offset_bytes, bytes: from.into() })
        }
        SystemCall::Read(..) | SystemCall::Sync => None,
    }
}

/// Applies a write that was not completed before a kill or a power loss: whole, only its first sectors, or not at all.
fn land_in_part(medium: &MemoryDevice, landed: LandedWrite, random: &mut SplitMix64) {
    let len = match random.below(4) {
        0 => 0,
        1 => sectors_below(landed.bytes.len(), random),
        _ => landed.bytes.len(),
    };
    medium.write_at(landed.offset_bytes, &landed.bytes[..len]);
}

/// Returns how many of `len` bytes the next step moves. For a short operation, that is usually not a whole number of
/// sectors. Sometimes it is all `len` bytes, so that the operation ends.
fn piece(len: usize, is_short: bool, random: &mut SplitMix64) -> usize {
    if !is_short || random.below(3) == 0 { len } else { 1 + random.below(len as u64) as usize }
}

/// Returns the length in bytes of a random number of whole sectors, less than `len_bytes`.
fn sectors_below(len_bytes: usize, random: &mut SplitMix64) -> usize {
    let sectors = (len_bytes / SECTOR_BYTES) as u64;
    if sectors == 0 { 0 } else { random.below(sectors) as usize * SECTOR_BYTES }
}

fn flip(bytes: &mut [u8], random: &mut SplitMix64) {
    if !bytes.is_empty() {
        let bit = random.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Bytes that a drive writes either whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Maximum number of bytes in the drive's cache. If there are more, the oldest become durable.
const CACHE_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
