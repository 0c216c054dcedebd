//! The faults of a faulty device: how often they are to occur, and how often they occurred.

use crate::SplitMix64;

/// The faults of a device and their rates. `_ppm` means per million operations. The default is no faults.
///
/// With a plan of all zeros, and without a power loss, the device keeps all promises of [`crate::Device`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Writes that are acknowledged although only the first sectors (512 B) reach the medium.
    pub torn_writes_ppm: u32,
    /// Writes that are acknowledged but never reach the medium.
    pub lost_writes_ppm: u32,
    /// Writes that land at another aligned offset.
    pub misdirected_writes_ppm: u32,
    /// Writes with one flipped bit on the medium.
    pub flipped_writes_ppm: u32,
    /// Writes that fail with an I/O error and change nothing.
    pub write_errors_ppm: u32,
    /// Reads that return the bytes of another aligned offset.
    pub misdirected_reads_ppm: u32,
    /// Reads that return one flipped bit; the medium is intact.
    pub flipped_reads_ppm: u32,
    /// Reads that fail with an I/O error.
    pub read_errors_ppm: u32,
    /// Syncs that fail with an I/O error and make nothing durable.
    pub sync_errors_ppm: u32,
    /// Syncs that fail with an I/O error and lose writes: each completed write that is not durable yet may be undone.
    /// Reads then return the older bytes, and later syncs succeed.
    pub sync_losses_ppm: u32,
    /// Operations that move their bytes in several pieces.
    pub short_transfers_ppm: u32,
    /// Operations that complete only when [`super::FaultyDevice::turn`] picks them.
    pub slow_transfers_ppm: u32,
    /// The operation with this number, from 0, fails with an I/O error.
    pub error_at: Option<u64>,
    /// After this many operations, writes fail because the device is full.
    pub full_after: Option<u64>,
    /// After this many operations, everything fails. If the first one to fail is a write, a part of it may land.
    pub dead_after: Option<u64>,
}

/// The operations and faults of a faulty device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Operations that were started.
    pub transfers: u64,
    /// Writes that only partly reached the medium.
    pub torn_writes: u64,
    /// Writes that never reached the medium.
    pub lost_writes: u64,
    /// Writes that landed at another offset.
    pub misdirected_writes: u64,
    /// Writes with a flipped bit.
    pub flipped_writes: u64,
    /// Reads of another offset.
    pub misdirected_reads: u64,
    /// Reads with a flipped bit.
    pub flipped_reads: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Syncs that failed.
    pub sync_errors: u64,
    /// Syncs of these that lost writes.
    pub sync_losses: u64,
    /// Operations that moved their bytes in pieces.
    pub short_transfers: u64,
    /// Operations that waited for a turn.
    pub slow_transfers: u64,
}

impl FaultStats {
    /// Returns the number of acknowledged writes that the medium does not hold correctly.
    pub fn lies(&self) -> u64 {
        self.torn_writes + self.lost_writes + self.misdirected_writes + self.flipped_writes
    }

    /// Returns the number of reads that failed or returned wrong bytes.
    pub fn bad_reads(&self) -> u64 {
        self.misdirected_reads + self.flipped_reads + self.read_errors
    }
}

/// The fate of one operation.
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
    /// A sync that fails and undoes some of the writes since the last one.
    Loss,
}

/// The kind of operation for which a fate is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferKind {
    Read,
    Write,
    Sync,
}

impl FaultPlan {
    /// Draws the fate of the next operation, and counts it. At most one fault strikes an operation.
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

    /// Returns the faults that can strike an operation, and their rates.
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
