//! A disk in virtual time: the position of its arm, and the time of each transfer.
//!
//! Invariant: the same transfers in the same order take the same time. Cost: a square root per transfer.

use super::parameters::{Arm, DiskParameters, Flash};

/// Number, bytes and time of the operations that a disk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskWork {
    /// Number of reads.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes that were written by programs.
    pub written_bytes: u64,
    /// Bytes that were written to the medium. On disks with write amplification, more than `written_bytes`.
    pub media_bytes: u64,
    /// Number of reads and writes that did not begin where the previous one ended, so that the head moved.
    pub moves: u64,
    /// Number of `moves` that were for a write.
    pub write_moves: u64,
    /// Time of all operations, in nanoseconds.
    pub busy_ns: u64,
    /// Time of background writes, in nanoseconds; also counted in `busy_ns`. Such writes are for data in a page cache,
    /// and for inodes and directories that are written in batches.
    pub late_ns: u64,
}

impl DiskWork {
    /// Returns the work since `before`, which is an earlier value of the same counters.
    pub fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            media_bytes: self.media_bytes - before.media_bytes,
            moves: self.moves - before.moves,
            write_moves: self.write_moves - before.write_moves,
            busy_ns: self.busy_ns - before.busy_ns,
            late_ns: self.late_ns - before.late_ns,
        }
    }
}

/// An operation of a disk: a read, a write or a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOperation {
    /// Offset of the first byte on the disk.
    pub at: u64,
    /// Number of bytes; 0 for a seek.
    pub len_bytes: u64,
    /// Whether the operation is in the background, so that no request waits for it.
    pub is_late: bool,
}

/// A disk in virtual time.
#[derive(Clone, Debug)]
pub struct Disk {
    kind: DiskKind,
    served: DiskWork,
    /// The operations since the last [`Self::take_operations`]; `None` if they are not recorded.
    recorded: Option<Vec<DiskOperation>>,
}

#[derive(Clone, Debug)]
enum DiskKind {
    Spinning { arm: Arm, head: u64 },
    Flash { flash: Flash, next_write: u64, used_share: f64 },
}

impl Disk {
    /// Creates a disk. Its arm is at the start.
    pub fn new(parameters: &DiskParameters) -> Self {
        let kind = match parameters {
            DiskParameters::Spinning(arm) => DiskKind::Spinning { arm: arm.clone(), head: 0 },
            DiskParameters::Flash(flash) => DiskKind::Flash { flash: flash.clone(), next_write: 0, used_share: 0.0 },
        };
        Self { kind, served: DiskWork::default(), recorded: None }
    }

    /// Begins to record operations, for [`Self::take_operations`].
    pub fn record_operations(&mut self) {
        self.recorded.get_or_insert_default();
    }

    /// Returns the operations that were recorded since the last call, in their order.
    pub fn take_operations(&mut self) -> Vec<DiskOperation> {
        self.recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn record(&mut self, at: u64, len_bytes: u64) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(DiskOperation { at, len_bytes, is_late: false });
        }
    }

    /// Reads bytes. Returns the time that this takes, in nanoseconds.
    pub fn read(&mut self, at: u64, len_bytes: u64) -> u64 {
        self.record(at, len_bytes);
        let ns = match &mut self.kind {
            DiskKind::Spinning { arm, head } => {
                let ns = arm.transfer_ns(*head, at, len_bytes);
                self.served.moves += u64::from(at != *head);
                *head = at + len_bytes;
                ns
            }
            DiskKind::Flash { flash, .. } => ns(flash.read_us * 1e3 + len_bytes as f64 / flash.read_bytes_per_s * 1e9),
        };
        self.served.reads += 1;
        self.served.read_bytes += len_bytes;
        self.spend(ns)
    }

    /// Writes bytes. Returns the time that this takes, in nanoseconds.
    pub fn write(&mut self, at: u64, len_bytes: u64) -> u64 {
        self.record(at, len_bytes);
        let (ns, media_bytes) = match &mut self.kind {
            DiskKind::Spinning { arm, head } => {
                let ns = arm.transfer_ns(*head, at, len_bytes);
                self.served.moves += u64::from(at != *head);
                self.served.write_moves += u64::from(at != *head);
                *head = at + len_bytes;
                (ns, len_bytes)
            }
            DiskKind::Flash { flash, next_write, used_share } => {
                let goes_on = *next_write == at || len_bytes as f64 >= flash.unamplified_bytes;
                let factor = if goes_on { 1.0 } else { flash.amplified(*used_share) };
                *next_write = at + len_bytes;
                let media_bytes = len_bytes as f64 * factor;
                // The sustained rate is that of the whole disk. A single write is done when its bytes have been
                // accepted.
                let lasting = media_bytes / flash.sustained_write_bytes_per_s * flash.channel_count;
                let single = flash.write_us * 1e-6 + len_bytes as f64 / flash.write_bytes_per_s;
                (ns(single.max(lasting) * 1e9), media_bytes as u64)
            }
        };
        self.served.writes += 1;
        self.served.written_bytes += len_bytes;
        self.served.media_bytes += media_bytes;
        self.spend(ns)
    }

    /// Writes bytes in the background. Returns the time that this takes, in nanoseconds.
    pub fn write_late(&mut self, at: u64, len_bytes: u64) -> u64 {
        let ns = self.write(at, len_bytes);
        self.served.late_ns += ns;
        if let Some(last) = self.recorded.as_mut().and_then(|recorded| recorded.last_mut()) {
            last.is_late = true;
        }
        ns
    }

    /// Moves the arm without reading or writing. Returns the time that this takes, in nanoseconds.
    pub fn seek(&mut self, at: u64) -> u64 {
        self.record(at, 0);
        let ns = match &mut self.kind {
            DiskKind::Spinning { arm, head } => {
                let ns = arm.transfer_ns(*head, at, 0);
                *head = at;
                ns
            }
            DiskKind::Flash { .. } => 0,
        };
        self.spend(ns)
    }

    /// Returns the offset at which the head is.
    pub fn head(&self) -> u64 {
        match self.kind {
            DiskKind::Spinning { head, .. } => head,
            DiskKind::Flash { .. } => 0,
        }
    }

    /// Moves the head to an offset to which requests outside of the simulation have moved it. Counts no time.
    pub fn leave_to_others(&mut self, at: u64) {
        if let DiskKind::Spinning { head, .. } = &mut self.kind {
            *head = at;
        }
    }

    /// Reads the bytes that follow the head's position and drops them, as read-ahead does between two writes. Returns
    /// the time that this takes, in nanoseconds.
    pub fn pass(&mut self, len_bytes: u64) -> u64 {
        self.record(self.head(), len_bytes);
        let rate = match &self.kind {
            DiskKind::Spinning { arm, .. } => arm.sequential_bytes_per_s,
            DiskKind::Flash { flash, .. } => flash.read_bytes_per_s,
        };
        self.served.reads += 1;
        self.served.read_bytes += len_bytes;
        self.spend(ns(len_bytes as f64 / rate * 1e9))
    }

    /// Sets which share of the disk is used. The write amplification of flash depends on it.
    pub fn set_used_share(&mut self, share: f64) {
        if let DiskKind::Flash { used_share, .. } = &mut self.kind {
            *used_share = share;
        }
    }

    /// Returns what the disk has done since it was created.
    pub fn served(&self) -> DiskWork {
        self.served
    }

    fn spend(&mut self, ns: u64) -> u64 {
        self.served.busy_ns += ns;
        ns
    }
}

impl Arm {
    /// Returns the time of an operation of `len_bytes` at offset `at` while the head is at `head`, in nanoseconds.
    pub(crate) fn transfer_ns(&self, head: u64, at: u64, len_bytes: u64) -> u64 {
        if at == head {
            return ns(len_bytes as f64 / self.sequential_bytes_per_s * 1e9);
        }
        let distance = at.abs_diff(head) as f64;
        let media_rate = self.media_rate(at);
        if at > head && distance < self.near_bytes {
            let wait_ms = distance / media_rate * 1e3 + self.near_ms;
            let most_ms = self.revolution_ms / 2.0 + self.overhead_ms;
            return ns(wait_ms.min(most_ms) * 1e6 + len_bytes as f64 / self.sequential_bytes_per_s * 1e9);
        }
        let before_ms = self.overhead_ms + self.seek_ms(distance) + self.revolution_ms / 2.0;
        ns(before_ms * 1e6 + len_bytes as f64 / media_rate * 1e9)
    }

    /// Returns the time of an operation that continues the previous one, in nanoseconds. The operation comes after the
    /// platter has turned past its position, so the disk waits for half a revolution on average.
    pub(crate) fn late_transfer_ns(&self, at: u64, len_bytes: u64) -> u64 {
        ns((self.overhead_ms + self.revolution_ms / 2.0) * 1e6 + len_bytes as f64 / self.media_rate(at) * 1e9)
    }

    /// Returns the mean time of a seek between random places, as in data sheets.
    pub fn mean_seek_ms(&self) -> f64 {
        // With both ends at random, E[sqrt x] is 8/15 and E[x] is 1/3.
        self.seek_fixed_ms + self.seek_root_ms * 8.0 / 15.0 + self.seek_linear_ms / 3.0
    }

    /// Returns how many reads of `len_bytes` at random places the disk executes per second.
    pub fn random_reads_per_s(&self, len_bytes: f64) -> f64 {
        let mean_rate = self.media_bytes_per_s * (1.0 - self.inner_loss_share / 2.0);
        1e3 / (self.overhead_ms + self.mean_seek_ms() + self.revolution_ms / 2.0 + len_bytes / mean_rate * 1e3)
    }

    fn seek_ms(&self, distance: f64) -> f64 {
        let share = distance / self.capacity_bytes;
        if share < self.seek_none_below_share {
            return 0.0;
        }
        self.seek_fixed_ms + self.seek_root_ms * libm::sqrt(share) + self.seek_linear_ms * share
    }

    fn media_rate(&self, at: u64) -> f64 {
        self.media_bytes_per_s * (1.0 - self.inner_loss_share * (at as f64 / self.capacity_bytes).min(1.0))
    }
}

impl Flash {
    /// Returns the write amplification of short writes at random places, while `used_share` of the disk is used.
    pub fn amplified(&self, used_share: f64) -> f64 {
        let mut from = 0.0;
        let mut factor_from = 1.0;
        for &(share, factor) in &self.amplification {
            if used_share <= share {
                return factor_from + (factor - factor_from) * (used_share - from) / (share - from);
            }
            (from, factor_from) = (share, factor);
        }
        factor_from
    }
}

fn ns(ns: f64) -> u64 {
    libm::round(ns) as u64
}

/// The way in which a program divides an entry into reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceReads {
    /// Maximum number of bytes of one read; `None` if one read gets the whole entry.
    pub piece_bytes: Option<u64>,
}

impl PieceReads {
    /// Reads `len_bytes` at `at` in pieces with `read`, which returns the time of one piece. The program requests each
    /// piece when it has the previous one. Meanwhile, the disk serves other requests, so its head is at `others` before
    /// each piece. Returns the total time in nanoseconds.
    pub(super) fn perform(
        self,
        disk: &mut Disk,
        (at, len_bytes): (u64, u64),
        others: u64,
        mut read: impl FnMut(&mut Disk, u64, u64) -> u64,
    ) -> u64 {
        let piece_bytes = self.piece_bytes.unwrap_or(len_bytes).max(1);
        let mut ns = 0;
        let mut done = 0;
        while done < len_bytes {
            if done > 0 {
                disk.leave_to_others(others);
            }
            let part = (len_bytes - done).min(piece_bytes);
            ns += read(disk, at + done, part);
            done += part;
        }
        ns
    }

    /// Returns the same division with pieces of at least `bytes`. This is for a file system that reads whole blocks.
    pub(super) fn of_at_least(self, bytes: u64) -> Self {
        Self { piece_bytes: self.piece_bytes.map(|piece| piece.max(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use larder_workload::Random;

    /// Guards against a simulated program that reads entries in pieces, and seems too fast because requests between the
    /// pieces do not move the head.
    #[test]
    fn each_piece_moves_the_head_again() {
        let time = |piece_bytes| {
            let mut disk = Disk::new(&Model::open("squid-scsi").unwrap().disk);
            disk.read(0, 4096);
            let others = disk.head();
            let reads = PieceReads { piece_bytes };
            let ns = reads.perform(&mut disk, (1 << 30, 12 << 10), others, Disk::read);
            (ns, disk.served().reads)
        };
        let (whole_ns, one) = time(None);
        let (pieces_ns, three) = time(Some(4096));
        assert_eq!((one, three), (2, 4));
        assert!(pieces_ns > whole_ns * 2 && pieces_ns < whole_ns * 3, "{pieces_ns} for {whole_ns}");
        assert_eq!(PieceReads { piece_bytes: Some(4096) }.of_at_least(8192).piece_bytes, Some(8192));
    }

    /// Protects all results with this disk. Section 7.2 gives 9 ms for a mean seek and 19 ms for a full stroke.
    #[test]
    fn the_papers_disk_seeks_nine_milliseconds_on_average() {
        let DiskParameters::Spinning(arm) = Model::open("st15150wc-ufs").unwrap().disk else { panic!("it spins") };
        assert!((arm.mean_seek_ms() - 9.0).abs() < 0.01, "{}", arm.mean_seek_ms());
        let full = arm.seek_ms(arm.capacity_bytes);
        assert!((full - 19.0).abs() < 0.01, "{full}");
        let mut disk = Disk::new(&DiskParameters::Spinning(arm.clone()));
        let mut random = Random::new(7);
        let reads = 20_000;
        for _ in 0..reads {
            disk.read(random.below(arm.capacity_bytes as u64 / 8192) * 8192, 8192);
        }
        let per_s = reads as f64 / (disk.served().busy_ns as f64 / 1e9);
        assert!((per_s / arm.random_reads_per_s(8192.0) - 1.0).abs() < 0.01, "{per_s}");
    }

    #[test]
    fn what_goes_on_where_the_last_ended_does_not_seek() {
        let mut disk = Disk::new(&Model::open("st15150wc-ufs").unwrap().disk);
        let first = disk.write(1 << 30, 47_000);
        assert!(first > 10_000_000);
        assert_eq!(disk.write((1 << 30) + 47_000, 47_000), 10_000_000, "4.7 MB/s");
        let near = disk.write((1 << 30) + 94_000 + 6_500, 0);
        assert_eq!(near, 1_300_000, "6.5 KB pass by in 1 ms");
    }

    #[test]
    fn scattered_writes_are_amplified_by_how_full_flash_is() {
        let parameters = Model::open("nvme").unwrap().disk;
        let DiskParameters::Flash(flash) = &parameters else { panic!("it is flash") };
        assert!((flash.amplified(0.90) - 3.38).abs() < 1e-9);
        assert!(flash.amplified(0.0) < 1.01 && flash.amplified(0.7) > 1.59 && flash.amplified(0.7) < 2.09);
        let mut disk = Disk::new(&parameters);
        disk.set_used_share(0.90);
        disk.write(1 << 20, 4096);
        disk.write((1 << 20) + 4096, 4096);
        assert_eq!(disk.served().media_bytes, (4096.0 * 3.38) as u64 + 4096);
    }
}
