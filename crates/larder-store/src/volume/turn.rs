//! The right to do what one task does at a time.

use crate::sync::atomic::{AtomicBool, Ordering};

/// A right that one task has at a time; given back also when that task is dropped.
pub(crate) struct TaskTurn<'a>(&'a AtomicBool);

impl<'a> TaskTurn<'a> {
    /// Takes the right, if nobody has it: then `taken` is set.
    pub(crate) fn take(taken: &'a AtomicBool) -> Option<Self> {
        (!taken.swap(true, Ordering::AcqRel)).then(|| Self(taken))
    }
}

impl Drop for TaskTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_tasks_until_it_is_dropped() {
        let taken = AtomicBool::new(false);
        let turn = TaskTurn::take(&taken);
        assert!(turn.is_some() && TaskTurn::take(&taken).is_none());
        drop(turn);
        assert!(TaskTurn::take(&taken).is_some());
    }
}
