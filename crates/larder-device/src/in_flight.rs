//! An operation in flight: checked, owning its buffer, and tracking its progress.
//!
//! Owns: the rules common to all devices: what is refused, and how short and interrupted calls continue. System calls
//! are made elsewhere. Invariant: an operation that [`TransferBounds::admit`] accepts is inside the device and aligned.
//! Every step either moves bytes or uses up one of a bounded number of retries.

use std::{io, ops::ControlFlow, sync::Arc};

use crate::{AlignedBuffer, Completion, Transfer, buffer::BufferPool};

/// The limits that a device sets for operations: its length, and the alignment of offsets and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferBounds {
    pub(super) len_bytes: u64,
    pub(super) alignment_bytes: u32,
}

impl TransferBounds {
    /// Checks `transfer`. If it is invalid or empty, completes it and returns `None`.
    pub(super) fn admit(self, transfer: Transfer) -> Option<InFlight> {
        let (work, offset_bytes) = match transfer {
            Transfer::Read { offset_bytes, buffer, completion } => {
                (PendingCall::Read { buffer, completion }, offset_bytes)
            }
            Transfer::Write { offset_bytes, buffer, completion } => {
                (PendingCall::Write { buffer, completion }, offset_bytes)
            }
            Transfer::Sync { completion } => (PendingCall::Sync { completion }, 0),
        };
        let in_flight =
            InFlight { work, offset_bytes, alignment_bytes: self.alignment_bytes, done_bytes: 0, retry_count: 0 };
        let len_bytes = in_flight.len_bytes();
        if let Err(error) = self.check(offset_bytes, len_bytes) {
            in_flight.complete(Err(error));
            return None;
        }
        if len_bytes == 0 && !matches!(in_flight.work, PendingCall::Sync { .. }) {
            in_flight.complete(Ok(()));
            return None;
        }
        Some(in_flight)
    }

    pub(super) fn check(self, offset_bytes: u64, len_bytes: usize) -> io::Result<()> {
        let alignment_bytes = u64::from(self.alignment_bytes);
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !offset_bytes.is_multiple_of(alignment_bytes) || !(len_bytes as u64).is_multiple_of(alignment_bytes) {
            return refuse(format!(
                "a transfer is not aligned: offset {offset_bytes}, length {len_bytes}, alignment {alignment_bytes}"
            ));
        }
        let is_inside = offset_bytes.checked_add(len_bytes as u64).is_some_and(|end| end <= self.len_bytes);
        if !is_inside {
            return refuse(format!(
                "a transfer ends beyond the device: offset {offset_bytes}, length {len_bytes}, device {}",
                self.len_bytes
            ));
        }
        Ok(())
    }
}

/// An operation that was checked and is not completed yet. If it is dropped, it completes with an error, like any
/// [`Completion`].
pub(super) struct InFlight {
    work: PendingCall,
    offset_bytes: u64,
    alignment_bytes: u32,
    done_bytes: usize,
    retry_count: u32,
}

enum PendingCall {
    Read { buffer: AlignedBuffer, completion: Completion<AlignedBuffer> },
    Write { buffer: Arc<AlignedBuffer>, completion: Completion<()> },
    Sync { completion: Completion<()> },
}

/// The system call that an operation needs next: the remaining bytes, and their offset on the device.
pub(super) enum SystemCall<'a> {
    Read(&'a mut [u8], u64),
    Write(&'a [u8], u64),
    Sync,
}

impl InFlight {
    /// Notes the result of a system call. Returns the outcome if the operation has ended, or otherwise that another
    /// call is needed.
    pub(super) fn advance(&mut self, result: io::Result<usize>) -> ControlFlow<io::Result<()>> {
        let moved_bytes = match result {
            Ok(moved_bytes) => moved_bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                return self.retry(error);
            }
            Err(error) => return ControlFlow::Break(Err(error)),
        };
        if matches!(self.work, PendingCall::Sync { .. }) {
            return ControlFlow::Break(Ok(()));
        }
        if moved_bytes == 0 {
            return ControlFlow::Break(Err(self.nothing_moved()));
        }
        let reached_bytes = (self.done_bytes + moved_bytes).min(self.len_bytes());
        // Only whole blocks count: direct I/O can continue only at the start of a block.
        let reached_bytes = reached_bytes - reached_bytes % self.alignment_bytes as usize;
        if reached_bytes == self.done_bytes {
            return self.retry(self.nothing_moved());
        }
        self.done_bytes = reached_bytes;
        self.retry_count = 0;
        if self.done_bytes == self.len_bytes() { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
    }

    /// Returns the system call to make next.
    pub(super) fn call(&mut self) -> SystemCall<'_> {
        let offset_bytes = self.offset_bytes + self.done_bytes as u64;
        let end = self.len_bytes().min(self.done_bytes + CALL_BYTES_MAX);
        let range = self.done_bytes..end;
        match &mut self.work {
            PendingCall::Read { buffer, .. } => SystemCall::Read(&mut buffer.as_mut_slice()[range], offset_bytes),
            PendingCall::Write { buffer, .. } => SystemCall::Write(&buffer.as_slice()[range], offset_bytes),
            PendingCall::Sync { .. } => SystemCall::Sync,
        }
    }

    /// Returns the buffer of a failed operation. It must be kept as long as the kernel may still use it.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only io_uring leaves buffers with the kernel"))]
    pub(super) fn keep_buffer(&mut self) -> Arc<AlignedBuffer> {
        match &mut self.work {
            PendingCall::Read { buffer, .. } => Arc::new(std::mem::replace(buffer, AlignedBuffer::with_len(0))),
            PendingCall::Write { buffer, .. } => Arc::clone(buffer),
            PendingCall::Sync { .. } => Arc::new(AlignedBuffer::with_len(0)),
        }
    }

    /// Returns the index of the read's buffer in `pool`; `None` if it is not from this pool.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only io_uring knows buffers before they are used")
    )]
    pub(super) fn index_in(&self, pool: &Arc<BufferPool>) -> Option<u16> {
        match &self.work {
            PendingCall::Read { buffer, .. } => buffer.index_in(pool),
            PendingCall::Write { .. } | PendingCall::Sync { .. } => None,
        }
    }

    /// Completes the operation with `outcome`.
    pub(super) fn complete(self, outcome: io::Result<()>) {
        match self.work {
            PendingCall::Read { buffer, completion } => completion.complete(outcome.map(|()| buffer)),
            PendingCall::Write { buffer, completion } => {
                // Dropped before the completion, so that its receiver can become the only owner.
                drop(buffer);
                completion.complete(outcome);
            }
            PendingCall::Sync { completion } => completion.complete(outcome),
        }
    }

    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only io_uring treats reads apart"))]
    pub(super) fn is_read(&self) -> bool {
        matches!(self.work, PendingCall::Read { .. })
    }

    pub(super) fn len_bytes(&self) -> usize {
        match &self.work {
            PendingCall::Read { buffer, .. } => buffer.len(),
            PendingCall::Write { buffer, .. } => buffer.len(),
            PendingCall::Sync { .. } => 0,
        }
    }

    fn retry(&mut self, error: io::Error) -> ControlFlow<io::Result<()>> {
        if self.retry_count == RETRY_COUNT_MAX {
            return ControlFlow::Break(Err(error));
        }
        self.retry_count += 1;
        ControlFlow::Continue(())
    }

    fn nothing_moved(&self) -> io::Error {
        let (kind, what) = match self.work {
            PendingCall::Read { .. } => (io::ErrorKind::UnexpectedEof, "the file is shorter than when it was opened"),
            PendingCall::Write { .. } | PendingCall::Sync { .. } => {
                (io::ErrorKind::WriteZero, "the device accepts no more bytes")
            }
        };
        io::Error::new(kind, format!("{what}: offset {}", self.offset_bytes + self.done_bytes as u64))
    }
}

/// Maximum bytes of a single system call. The kernel's limit is just below 2 GiB, and not always a multiple of a block.
const CALL_BYTES_MAX: usize = 1 << 30;
/// Maximum number of system calls in a row that move no bytes. After them, the operation fails.
const RETRY_COUNT_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const BOUNDS: TransferBounds = TransferBounds { len_bytes: 1 << 20, alignment_bytes: 512 };

    fn read(offset_bytes: u64, len_bytes: usize) -> (Option<InFlight>, mpsc::Receiver<io::Result<usize>>) {
        let (sender, receiver) = mpsc::channel();
        let completion =
            Completion::callback(move |result: io::Result<AlignedBuffer>| drop(sender.send(result.map(|b| b.len()))));
        let transfer = Transfer::Read { offset_bytes, buffer: AlignedBuffer::with_len(len_bytes), completion };
        (BOUNDS.admit(transfer), receiver)
    }

    fn next_read(in_flight: &mut InFlight) -> (usize, u64) {
        match in_flight.call() {
            SystemCall::Read(rest, offset_bytes) => (rest.len(), offset_bytes),
            SystemCall::Write(..) | SystemCall::Sync => panic!("a read became something else"),
        }
    }

    /// Guards against an operation beyond the end of its device, or one that is not aligned.
    #[test]
    fn what_breaks_the_rules_is_refused() {
        for (offset_bytes, len_bytes) in
            [(1, 512), (0, 511), (1 << 20, 512), ((1 << 20) - 512, 1024), (u64::MAX - 511, 512)]
        {
            let (in_flight, outcome) = read(offset_bytes, len_bytes);
            assert!(in_flight.is_none());
            assert_eq!(outcome.recv().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn an_empty_transfer_is_done_at_once() {
        let (in_flight, outcome) = read(1 << 20, 0);
        assert!(in_flight.is_none());
        assert_eq!(outcome.recv().unwrap().unwrap(), 0);
    }

    /// Guards against bytes that are skipped or repeated after a system call has moved only a part of them.
    #[test]
    fn a_short_transfer_goes_on_at_the_last_whole_block() {
        let (in_flight, outcome) = read(4096, 4096);
        let mut in_flight = in_flight.unwrap();
        assert_eq!(next_read(&mut in_flight), (4096, 4096));
        assert!(in_flight.advance(Ok(1500)).is_continue());
        assert_eq!(next_read(&mut in_flight), (3072, 5120));
        assert!(in_flight.advance(Err(io::ErrorKind::Interrupted.into())).is_continue());
        assert_eq!(next_read(&mut in_flight), (3072, 5120));
        let ControlFlow::Break(done) = in_flight.advance(Ok(3072)) else { panic!("all bytes have come") };
        in_flight.complete(done);
        assert_eq!(outcome.recv().unwrap().unwrap(), 4096);
    }

    /// Guards against a system call that is repeated forever without moving bytes.
    #[test]
    fn a_transfer_without_progress_ends() {
        for stuck in [|| Ok(100), || Err(io::ErrorKind::WouldBlock.into())] {
            let mut in_flight = read(0, 4096).0.unwrap();
            let steps = (0..1000).take_while(|_| in_flight.advance(stuck()).is_continue()).count();
            assert_eq!(steps, RETRY_COUNT_MAX as usize);
        }
        let ControlFlow::Break(Err(error)) = read(0, 4096).0.unwrap().advance(Ok(0)) else { panic!("nothing came") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
