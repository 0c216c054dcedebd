//! The faults of a faulty device: how often they are to occur, and how often they occurred.

use crate::SplitMix64;

/// The faults that a [`crate::FaultyDevice`] produces, and their rates. `_ppm` means per million operations. By
/// default, there are no faults.
///
/// With all numbers 0 and without a power loss, the device does everything that [`crate::Device`] promises.
///
/// ```
/// use larder_device::{AlignedBuffer, Device, FaultPlan, FaultyDevice, block_on};
/// use std::sync::Arc;
///
/// // A drive that acknowledges writes and loses them.
/// let plan = FaultPlan { lost_writes_ppm: 1_000_000, ..FaultPlan::default() };
/// let device = Arc::new(FaultyDevice::new(1 << 20, 42, plan));
/// let writer: Arc<dyn Device> = device.clone();
/// let mut buffer = AlignedBuffer::with_len(4096);
/// buffer.as_mut_slice().fill(7);
/// block_on(writer.write(0, Arc::new(buffer))).unwrap();
/// assert_eq!(device.contents()[0], 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Writes that are acknowledged although only their first sectors of 512 bytes reach the medium, per million.
    pub torn_writes_ppm: u32,
    /// Writes that are acknowledged but never reach the medium, per million.
    pub lost_writes_ppm: u32,
    /// Writes that reach the medium at another aligned offset, per million.
    pub misdirected_writes_ppm: u32,
    /// Writes that reach the medium with one flipped bit, per million.
    pub flipped_writes_ppm: u32,
    /// Writes that fail with an I/O error and change nothing, per million.
    pub write_errors_ppm: u32,
    /// Reads that return the bytes at another aligned offset, per million.
    pub misdirected_reads_ppm: u32,
    /// Reads that return one flipped bit although the medium is intact, per million.
    pub flipped_reads_ppm: u32,
    /// Reads that fail with an I/O error, per million.
    pub read_errors_ppm: u32,
    /// Syncs that fail with an I/O error and make nothing durable, per million.
    pub sync_errors_ppm: u32,
    /// Syncs that fail with an I/O error and lose writes, per million. Any completed write that is not durable yet may
    /// be undone. Reads then return the older bytes, and later syncs succeed.
    pub sync_losses_ppm: u32,
    /// Operations that move their bytes in several pieces, per million.
    pub short_transfers_ppm: u32,
    /// Operations that wait until [`super::FaultyDevice::turn`] completes them, per million.
    pub slow_transfers_ppm: u32,
    /// Number of an operation, counted from 0, that fails with an I/O error.
    pub error_at: Option<u64>,
    /// Number of operations after which all writes fail, because the device is full.
    pub full_after: Option<u64>,
    /// Number of operations after which all operations fail. If the first one that fails is a write, a part of it may
    /// reach the medium.
    pub dead_after: Option<u64>,
}

/// The operations and faults that a [`crate::FaultyDevice`] has counted. A test reads them to make sure that the faults
/// it is about have occurred.
///
/// ```
/// use larder_device::{Device, FaultPlan, FaultyDevice, block_on};
///
/// let device = FaultyDevice::new(1 << 20, 42, FaultPlan { read_errors_ppm: 1_000_000, ..FaultPlan::default() });
/// let reader: &dyn Device = &device;
/// assert!(block_on(reader.read(0, 4096)).is_err());
/// assert_eq!((device.stats().transfers, device.stats().bad_reads()), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Number of operations that were submitted.
    pub transfers: u64,
    /// Number of writes that only partly reached the medium.
    pub torn_writes: u64,
    /// Number of writes that never reached the medium.
    pub lost_writes: u64,
    /// Number of writes that reached the medium at another offset.
    pub misdirected_writes: u64,
    /// Number of writes that reached the medium with a flipped bit.
    pub flipped_writes: u64,
    /// Number of reads that returned the bytes at another offset.
    pub misdirected_reads: u64,
    /// Number of reads that returned a flipped bit.
    pub flipped_reads: u64,
    /// Number of reads that failed.
    pub read_errors: u64,
    /// Number of writes that failed.
    pub write_errors: u64,
    /// Number of syncs that failed.
    pub sync_errors: u64,
    /// Number of failed syncs that lost writes. Also counted in `sync_errors`.
    pub sync_losses: u64,
    /// Number of operations that moved their bytes in several pieces.
    pub short_transfers: u64,
    /// Number of operations that waited for [`super::FaultyDevice::turn`].
    pub slow_transfers: u64,
}

impl FaultStats {
    /// Returns the number of acknowledged writes that are missing or wrong on the medium.
    pub fn lies(&self) -> u64 {
        self.torn_writes + self.lost_writes + self.misdirected_writes + self.flipped_writes
    }

    /// Returns the number of reads that failed or returned wrong bytes.
    pub fn bad_reads(&self) -> u64 {
        self.misdirected_reads + self.flipped_reads + self.read_errors
    }
}

/// The fault of one operation, if any, and whether the operation is short or slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TransferFate {
    pub(super) fault: Option<PlannedFault>,
    pub(super) is_short: bool,
    pub(super) is_slow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedFault {
    Torn,
    Lost,
    Misdirected,
    Flipped,
    Error,
    Full,
    /// The sync fails, and undoes some of the writes since the last sync.
    Loss,
}

/// The kind of an operation, which decides which faults it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferKind {
    Read,
    Write,
    Sync,
}

impl FaultPlan {
    /// Draws what happens to the next operation, and counts it. An operation has at most one fault.
    pub(super) fn draw(&self, motion: TransferKind, random: &mut SplitMix64, stats: &mut FaultStats) -> TransferFate {
        let reached = |limit: Option<u64>| limit.is_some_and(|limit| stats.transfers >= limit);
        let fault = if reached(self.dead_after) || self.error_at == Some(stats.transfers) {
            Some(PlannedFault::Error)
        } else if reached(self.full_after) && motion == TransferKind::Write {
            Some(PlannedFault::Full)
        } else {
            let rates = self.rates(motion);
            rates.into_iter().find(|&(per_million, _)| random.happens(per_million)).map(|(_, fault)| fault)
        };
        // A torn write leaves a prefix, which a write in several pieces would not.
        let is_whole = motion == TransferKind::Sync || fault == Some(PlannedFault::Torn);
        let is_short = !is_whole && random.happens(self.short_transfers_ppm);
        let fate = TransferFate { fault, is_short, is_slow: random.happens(self.slow_transfers_ppm) };
        stats.note(motion, fate);
        fate
    }

    /// Returns the faults that an operation of this kind can have, each with its rate.
    fn rates(&self, motion: TransferKind) -> Vec<(u32, PlannedFault)> {
        match motion {
            TransferKind::Read => vec![
                (self.misdirected_reads_ppm, PlannedFault::Misdirected),
                (self.flipped_reads_ppm, PlannedFault::Flipped),
                (self.read_errors_ppm, PlannedFault::Error),
            ],
            TransferKind::Write => vec![
                (self.torn_writes_ppm, PlannedFault::Torn),
                (self.lost_writes_ppm, PlannedFault::Lost),
                (self.misdirected_writes_ppm, PlannedFault::Misdirected),
                (self.flipped_writes_ppm, PlannedFault::Flipped),
                (self.write_errors_ppm, PlannedFault::Error),
            ],
            TransferKind::Sync => {
                vec![(self.sync_errors_ppm, PlannedFault::Error), (self.sync_losses_ppm, PlannedFault::Loss)]
            }
        }
    }
}

impl FaultStats {
    fn note(&mut self, motion: TransferKind, fate: TransferFate) {
        self.transfers += 1;
        self.short_transfers += u64::from(fate.is_short);
        self.slow_transfers += u64::from(fate.is_slow);
        let Some(fault) = fate.fault else { return };
        self.sync_losses += u64::from(fault == PlannedFault::Loss);
        let counter = match (motion, fault) {
            (TransferKind::Read, PlannedFault::Misdirected) => &mut self.misdirected_reads,
            (TransferKind::Read, PlannedFault::Flipped) => &mut self.flipped_reads,
            (TransferKind::Read, _) => &mut self.read_errors,
            (TransferKind::Write, PlannedFault::Torn) => &mut self.torn_writes,
            (TransferKind::Write, PlannedFault::Lost) => &mut self.lost_writes,
            (TransferKind::Write, PlannedFault::Misdirected) => &mut self.misdirected_writes,
            (TransferKind::Write, PlannedFault::Flipped) => &mut self.flipped_writes,
            (TransferKind::Write, PlannedFault::Error | PlannedFault::Full | PlannedFault::Loss) => {
                &mut self.write_errors
            }
            (TransferKind::Sync, _) => &mut self.sync_errors,
        };
        *counter += 1;
    }
}
