//! The order in which the responses of a resource are stored.
//!
//! Owns: the turns. Invariants: commits that wait for their turn run one after another, and older work does not replace
//! what newer work has written at the same place. A value that waits can be shown meanwhile, in memory: the older
//! commits that it waits for then leave it there, and no older value is shown in its stead.
//!
//! Cost: nothing but what a commit costs without turns, unless it has to wait.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use super::{KeyCommit, KeyWork, RunningCommits};
use larder_device::IgnorePoison;

/// The order of a commit among the other commits of its key. None of them begins, ends, or shows its value while this
/// exists, so a change of memory that depends on the order takes effect in it.
pub(crate) struct CommitOrder<'a> {
    commits: &'a RunningCommits,
    work: &'a KeyWork,
}

impl CommitOrder<'_> {
    /// Returns whether other commits of the key are in progress, so this one has not begun.
    pub(crate) fn must_wait(&self) -> bool {
        self.commits.are_any()
    }

    /// Returns whether nothing has been written for the key since this work began. May return `false` although that is
    /// so: the last write may have ended before, if the work that wrote is still in progress.
    pub(crate) fn is_first(&self) -> bool {
        self.commits.turns.last.is_none()
    }

    /// Returns whether no newer work has written or shows a value under `key`. Newer work that shows a variant shows it
    /// under the key of the resource, too, because its marker may be there.
    pub(crate) fn is_newest(&self, key: &[u8]) -> bool {
        let is_newer = |(_, number): &&(Arc<[u8]>, u64)| *number > self.work.number;
        let last = self.commits.turns.last.as_ref().filter(is_newer);
        let shown = self.commits.turns.shown.as_ref().filter(is_newer);
        last.is_none_or(|(place, _)| **place != *key)
            && shown.is_none_or(|(place, _)| **place != *key && *self.work.of.key != *key)
    }
}

/// The last work on a key that wrote or showed a value, with the place of the value.
#[derive(Default)]
pub(super) struct LastTurns {
    /// The place and the work of the last commit that began in its turn. Only the last one is known, so older work may
    /// still write at another place, as variants of a response do.
    last: Option<(Arc<[u8]>, u64)>,
    /// The place and the work of the newest value that is shown while its commit waits for its turn.
    shown: Option<(Arc<[u8]>, u64)>,
}

impl LastTurns {
    /// Forgets all work so far, because none of it may show or write a value any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl RunningCommits {
    fn are_any(&self) -> bool {
        self.current_count + self.marked_count > 0
    }
}

impl KeyWork {
    /// Waits until no commit of the key is in progress, and begins one. `place` is where the value is written: the key
    /// itself, or the key of one of its variants.
    ///
    /// `show` may make the value visible to readers, and returns whether it did. It is called before the wait, and
    /// again when the commit begins. It is not called for a value that must not become visible.
    ///
    /// Returns `None` if the key has changed since the work began, or if work that began later was the last to write at
    /// this place.
    pub(crate) async fn commit_in_turn(
        &self,
        place: &Arc<[u8]>,
        mut show: impl FnMut(&CommitOrder<'_>) -> bool,
    ) -> Option<KeyCommit> {
        poll_fn(|context| self.poll_turn(place, &mut show, context)).await
    }

    fn poll_turn(
        &self,
        place: &Arc<[u8]>,
        show: &mut impl FnMut(&CommitOrder<'_>) -> bool,
        context: &Context<'_>,
    ) -> Poll<Option<KeyCommit>> {
        let mut commits = self.of.commits.lock().ignore_poison();
        if !self.may_commit(place, &commits) {
            return Poll::Ready(None);
        }
        if !commits.are_any() {
            show(&CommitOrder { commits: &commits, work: self });
            commits.turns.shown.take_if(|(_, number)| *number == self.number);
            return Poll::Ready(Some(self.commit_at(place, &mut commits)));
        }
        let newest = commits.turns.shown.as_ref().map_or(0, |(_, number)| *number);
        if newest != self.number && show(&CommitOrder { commits: &commits, work: self }) && newest < self.number {
            commits.turns.shown = Some((Arc::clone(place), self.number));
        }
        commits.wake_later(context);
        Poll::Pending
    }

    /// Begins a commit as [`commit_in_turn`](Self::commit_in_turn) does, but without a wait.
    pub(crate) fn commit_out_of_turn(&self, place: &Arc<[u8]>) -> Option<KeyCommit> {
        let mut commits = self.of.commits.lock().ignore_poison();
        self.may_commit(place, &commits).then(|| self.commit_at(place, &mut commits))
    }

    /// Returns whether the key has not changed since the work began, and newer work was not the last to write at
    /// `place`.
    fn may_commit(&self, place: &Arc<[u8]>, commits: &RunningCommits) -> bool {
        let is_newer = |(last, number): &(Arc<[u8]>, u64)| last == place && *number > self.number;
        self.is_current() && !commits.turns.last.as_ref().is_some_and(is_newer)
    }

    fn commit_at(&self, place: &Arc<[u8]>, commits: &mut RunningCommits) -> KeyCommit {
        commits.turns.last = Some((Arc::clone(place), self.number));
        self.commit_now(commits)
    }
}

impl KeyCommit {
    /// Ends the commit with a last change of memory, which must depend on the order of the commits. If the commit is
    /// outdated, changes nothing and returns it: it ends when what it has written is removed.
    pub(crate) fn end(mut self, change: impl FnOnce(&CommitOrder<'_>)) -> Option<Self> {
        let commits = self.work.of.commits.lock().ignore_poison();
        if self.is_outdated() {
            drop(commits);
            return Some(self);
        }
        change(&CommitOrder { commits: &commits, work: &self.work });
        self.work.end_commit(commits);
        self.has_ended = true;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActiveKeys;
    use futures_executor::block_on;
    use std::task::Waker;

    fn key(name: &str) -> Arc<[u8]> {
        name.as_bytes().into()
    }

    /// Guards against a response that was requested earlier and replaces the one that the client got last.
    #[test]
    fn commits_take_turns_and_older_work_does_not_replace_the_result_of_newer_work() {
        let keys = Arc::new(ActiveKeys::default());
        let place = key("a");
        let variant = key("a, in German");
        let works: [KeyWork; 3] = std::array::from_fn(|_| keys.begin(&place));
        let context = Context::from_waker(Waker::noop());
        let turn = |work: &KeyWork, place| work.poll_turn(place, &mut |_| false, &context);
        let Poll::Ready(Some(first)) = turn(&works[0], &place) else { panic!("nobody else writes") };
        assert!(turn(&works[1], &place).is_pending() && turn(&works[2], &variant).is_pending());
        let part = first.clone();
        drop(first);
        assert!(turn(&works[2], &place).is_pending(), "a part of the first commit still runs");
        drop(part);
        let Poll::Ready(Some(newest)) = turn(&works[2], &place) else { panic!("the first commit has ended") };
        drop((keys.mark(b"b"), newest));
        assert!(matches!(turn(&works[1], &place), Poll::Ready(None)));
        assert!(matches!(turn(&works[2], &place), Poll::Ready(Some(_))), "its own later part");
        let Poll::Ready(Some(other)) = turn(&works[1], &variant) else { panic!("another place") };
        let marked = keys.mark(b"a");
        assert!(turn(&keys.begin(&place), &place).is_pending(), "an outdated commit may still remove the value");
        drop(other);
        block_on(marked.ended());
        assert!(matches!(turn(&keys.begin(&place), &place), Poll::Ready(Some(_))));
        assert!(matches!(turn(&works[2], &place), Poll::Ready(None)), "the key has changed since it began");
    }

    /// Guards against readers that get an older value while a newer one waits for the commit of that.
    #[test]
    fn value_is_shown_while_it_waits_unless_a_newer_one_is() {
        let keys = Arc::new(ActiveKeys::default());
        let place = key("a");
        let works: [KeyWork; 4] = std::array::from_fn(|_| keys.begin(&place));
        let context = Context::from_waker(Waker::noop());
        let mut readers_get = None;
        let mut turn = |at: usize| {
            let mut show = |order: &CommitOrder<'_>| {
                let is_newest = order.is_newest(&place);
                if is_newest {
                    readers_get = Some(at);
                }
                is_newest
            };
            let commit = works[at].poll_turn(&place, &mut show, &context);
            (commit, readers_get)
        };
        let (Poll::Ready(Some(first)), Some(0)) = turn(0) else { panic!("nobody else writes") };
        for (at, shown) in [(2, 2), (1, 2), (3, 3), (2, 3)] {
            let (commit, readers_get) = turn(at);
            assert!(commit.is_pending() && readers_get == Some(shown), "{at}: {readers_get:?}");
        }
        let mut is_cleared = None;
        assert!(first.end(|order| is_cleared = Some(order.is_newest(&place))).is_none());
        assert_eq!(is_cleared, Some(false), "readers need the newer value");
        let (Poll::Ready(Some(second)), Some(3)) = turn(1) else { panic!("the first commit has ended") };
        drop(second);
        let (Poll::Ready(Some(last)), Some(3)) = turn(3) else { panic!("the second commit has ended") };
        assert!(matches!(turn(2), (Poll::Ready(None), Some(3))), "the newest value must stay");
        assert!(last.end(|order| is_cleared = Some(order.is_newest(&place))).is_none());
        assert_eq!(is_cleared, Some(true));
    }

    /// Guards against a value that becomes visible after its key has changed, and against one that was shown before and
    /// then passes for newer than the change.
    #[test]
    fn change_of_the_key_ends_what_older_work_shows() {
        let keys = Arc::new(ActiveKeys::default());
        let place = key("a");
        let context = Context::from_waker(Waker::noop());
        let mut changing = keys.begin(&place);
        let commit = keys.begin(&place).begin_commit().unwrap();
        let waiting = keys.begin(&place);
        assert!(waiting.poll_turn(&place, &mut |_| true, &context).is_pending());
        assert!(changing.outdate_others());
        let outdated = commit.end(|_| panic!("the key has changed")).expect("it must be undone");
        let unshown = &mut |_: &CommitOrder<'_>| panic!("the key has changed");
        assert!(matches!(waiting.poll_turn(&place, unshown, &context), Poll::Ready(None)));
        drop(outdated);
        let commit = changing.begin_commit().unwrap();
        assert!(commit.end(|order| assert!(order.is_newest(&place) && order.must_wait())).is_none());
        assert!(changing.commit_out_of_turn(&place).is_some() && waiting.commit_out_of_turn(&place).is_none());
    }
}
