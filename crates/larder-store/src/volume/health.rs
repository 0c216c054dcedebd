//! Whether a volume still works: taken out after too many failed transfers in a row.
//!
//! Owns: the count and the verdict. Does not: know what follows from it (see `volumes`). Invariant: a volume that
//! was taken out stays out until the store is opened again. A full disk is no failure: what is on it can be read.
//! Cost: one load per transfer that succeeds.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Failed transfers in a row after which a volume is taken out.
pub(crate) const FAILURES_IN_A_ROW_MAX: u32 = 16;

/// The health of one volume.
#[derive(Default)]
pub(crate) struct Health {
    failures_in_a_row: AtomicU32,
    is_out: AtomicBool,
    /// Whether it is on record elsewhere that this volume was out, so that it is not believed when it returns.
    is_recorded: AtomicBool,
    on_out: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Health {
    /// Calls `call` when the volume is taken out; it must not block. Only the first such call counts.
    pub(crate) fn set_on_out(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_out.set(Box::new(call));
    }

    /// Notes how a transfer ended.
    pub(crate) fn note<T>(&self, outcome: &io::Result<T>) {
        match outcome {
            Ok(_) => {
                if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
                    self.failures_in_a_row.store(0, Ordering::Relaxed);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {}
            Err(error) => {
                let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if failures >= FAILURES_IN_A_ROW_MAX && !self.is_out.swap(true, Ordering::AcqRel) {
                    tracing::error!(%error, failures, "a volume fails and is taken out: its share is missed from now on");
                    if let Some(call) = self.on_out.get() {
                        call();
                    }
                }
            }
        }
    }

    /// That the volume was out is durable on another one, or on itself.
    pub(crate) fn set_recorded(&self) {
        self.is_recorded.store(true, Ordering::Release);
    }

    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// Whether it is out, and will be emptied before it is believed again.
    pub(crate) fn is_out_and_safe(&self) -> bool {
        self.is_out() && self.is_safe()
    }

    /// Whether what the volume still holds cannot be believed by mistake: it is in use, or will be emptied first.
    pub(crate) fn is_safe(&self) -> bool {
        !self.is_out() || self.is_recorded.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn failed(kind: io::ErrorKind) -> io::Result<()> {
        Err(kind.into())
    }

    /// At stake: a volume given up because of one bad sector, or asked for ever although it is dead.
    #[test]
    fn only_failures_in_a_row_take_a_volume_out_and_only_once() {
        let calls = Arc::new(AtomicU32::new(0));
        let health = Health::default();
        let counted = Arc::clone(&calls);
        health.set_on_out(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..10 {
            (1..FAILURES_IN_A_ROW_MAX).for_each(|_| health.note(&failed(io::ErrorKind::Other)));
            health.note(&Ok(()));
        }
        (0..100).for_each(|_| health.note(&failed(io::ErrorKind::StorageFull)));
        assert!(!health.is_out());
        (0..100).for_each(|_| health.note(&failed(io::ErrorKind::Other)));
        health.note(&Ok(()));
        assert!(health.is_out());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
