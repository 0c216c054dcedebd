//! The right to do work that only one task may do at a time.

use crate::sync::atomic::{AtomicBool, Ordering};

/// The right to do work that only one task may do at a time. Dropping it releases the right, even if the task is
/// dropped before it is done.
pub(crate) struct TaskTurn<'a>(&'a AtomicBool);

impl<'a> TaskTurn<'a> {
    /// Takes the right by setting the flag `taken`. Returns `None` if another task has it.
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
