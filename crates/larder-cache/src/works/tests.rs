//! Tests of the marks: every change is seen by the work before it, and by no other work.

use super::*;
use futures_executor::block_on;
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

fn key(name: &str) -> Arc<[u8]> {
    name.as_bytes().into()
}

#[test]
fn change_is_seen_by_all_work_that_began_before_it_and_by_no_other() {
    let keys = Arc::new(ActiveKeys::default());
    let one = keys.begin(&key("a"));
    let another = keys.begin(&key("a"));
    let other = keys.begin(&key("b"));
    for number in 0..20_000_u32 {
        drop(keys.begin(&number.to_le_bytes()[..].into()));
        block_on(keys.mark(&number.to_le_bytes()).ended());
    }
    assert!(one.is_current() && another.is_current() && other.is_current());
    block_on(keys.mark(b"a").ended());
    assert!(!one.is_current() && another.begin_commit().is_none());
    assert!(other.begin_commit().is_some() && keys.begin(&key("a")).is_current());
    block_on(keys.mark(b"b").ended());
    assert!(!other.is_current() && one.renewed().is_current());
    let mut last = keys.begin(&key("a"));
    let older = keys.begin(&key("a"));
    assert!(last.outdate_others() && last.is_current() && !older.is_current());
    block_on(keys.mark(b"a").ended());
    assert!(!last.outdate_others());
}

#[test]
fn key_without_work_is_forgotten() {
    let keys = Arc::new(ActiveKeys::default());
    let work = keys.begin(&key("a"));
    let commit = work.begin_commit().unwrap();
    drop(work);
    assert_eq!(keys.len(), 1);
    drop((commit.clone(), commit));
    assert!(keys.is_empty());
}

#[test]
fn whoever_marked_a_commit_waits_for_its_last_part_and_for_no_later_commit() {
    let keys = Arc::new(ActiveKeys::default());
    let commit = keys.begin(&key("a")).begin_commit().unwrap();
    let mut marked = keys.mark(b"a");
    let later = keys.begin(&key("a")).begin_commit().unwrap();
    assert!(commit.is_outdated() && !later.is_outdated());
    let part = commit.clone();
    drop(commit);
    let context = Context::from_waker(Waker::noop());
    assert_eq!(marked.poll_ended(&context), Poll::Pending);
    drop(part);
    assert_eq!(marked.poll_ended(&context), Poll::Ready(()));
    drop(later);
}

/// Guards against a value that is found after the removal of an older one was acknowledged.
#[test]
fn no_value_of_marked_work_is_found_once_its_commits_have_ended() {
    let keys = Arc::new(ActiveKeys::default());
    let stored = Mutex::new(None);
    let version = AtomicU64::new(1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let work = keys.begin(&key("a"));
                    let value = version.load(SeqCst);
                    let Some(commit) = work.begin_commit() else { continue };
                    *stored.lock().ignore_poison() = Some(value);
                    if commit.is_outdated() {
                        *stored.lock().ignore_poison() = None;
                    }
                }
            });
        }
        for latest in 2..20_000 {
            version.store(latest, SeqCst);
            let marked = keys.mark(b"a");
            *stored.lock().ignore_poison() = None;
            block_on(marked.ended());
            let older = stored.lock().ignore_poison().filter(|value| *value < latest);
            if older.is_some() {
                is_over.store(true, SeqCst);
            }
            assert_eq!(older, None, "removed as number {latest}");
        }
        is_over.store(true, SeqCst);
    });
    assert!(keys.is_empty());
}
