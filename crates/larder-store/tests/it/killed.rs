//! Checks the loss when a real process with a real file is killed by SIGKILL: at most what was stored in the last
//! second, nothing that was flushed, and never a removal.
//!
//! The test starts its own program again as the process to be killed.

use crate::support::{block_on, insert, key_bytes, version_of};
use larder_store::{IndexAxis, LayoutAxis, Policy, Store, StoreOptions, check};
use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

/// Environment variable that gives the process to be killed its store and policy.
const CHILD: &str = "LARDER_KILLED_CHILD";
const OWN_NAME: &str = "killed::a_killed_process_leaves_what_it_had_synced_and_nothing_that_it_had_removed";
const FLUSHED_NAME: &str = "killed::what_was_flushed_survives_a_kill_in_every_policy";
const FULL_NAME: &str = "killed::check_of_a_full_store_that_was_killed_finds_no_damage";
const KEYS: u64 = 200;
const FLUSHED_KEYS: u64 = 20;
const FULL_KEYS: u64 = 1200;

fn options(row: &str, path: &Path) -> StoreOptions {
    let policy = Policy::named(row).unwrap();
    // With this seed, no two keys have the same bin of `hashcache-basic`. With a random one, 1 volume of 30 loses a key.
    let identity_seed = Some(1);
    StoreOptions { policy, mean_entry_bytes: 4096, identity_seed, ..StoreOptions::new(path, 24 << 20) }
}

/// Stores, replaces and removes entries, reports that, and then stores more until it is killed.
fn run_until_killed(row: &str, path: &Path) -> ! {
    let store = Store::open(options(row, path)).unwrap();
    block_on(store.ready());
    for key in 0..KEYS {
        assert!(insert(&store, key, 1, 3000));
    }
    for key in (0..KEYS).step_by(4) {
        assert!(insert(&store, key, 2, 2000));
    }
    block_on(store.sync()).unwrap();
    for key in (1..KEYS).step_by(4) {
        block_on(store.remove(&key_bytes(key))).unwrap();
    }
    println!("\nready");
    for version in 3.. {
        assert!(insert(&store, KEYS + version % 100, version, 2000));
    }
    unreachable!("there are always more")
}

/// Stores entries, flushes each one, reports that, and does nothing until it is killed.
fn flush_until_killed(row: &str, path: &Path) -> ! {
    let store = Store::open(options(row, path)).unwrap();
    block_on(store.ready());
    for key in 0..FLUSHED_KEYS {
        assert!(insert(&store, key, 1, 3000));
        block_on(store.flush()).unwrap();
    }
    println!("\nready");
    loop {
        thread::park();
    }
}

/// Fills a small store twice, reports that, and goes on until it is killed.
fn fill_until_killed(row: &str, path: &Path) -> ! {
    let store = Store::open(full_options(row, path)).unwrap();
    block_on(store.ready());
    for key in 0.. {
        // Bodies of many lengths, so that places are given to others in pieces.
        insert(&store, key, 1, 500 + (key * 7919 % 40_000) as usize);
        if key == FULL_KEYS {
            println!("\nready");
        }
    }
    unreachable!("there are always more")
}

fn full_options(row: &str, path: &Path) -> StoreOptions {
    let segment_size_bytes = Some(256 << 10);
    StoreOptions { size_bytes: 12 << 20, mean_entry_bytes: 16 << 10, segment_size_bytes, ..options(row, path) }
}

/// Returns the versions that a process finds after another, which runs this test, was killed.
fn found_after_kill(test: &str, row: &str, path: &Path) -> Vec<u64> {
    kill_when_ready(test, row, path);
    let store = Store::open(options(row, path)).unwrap();
    block_on(store.ready());
    let found = (0..KEYS).map(|key| version_of(&store, key).unwrap_or(0)).collect();
    block_on(store.close()).unwrap();
    found
}

/// Runs this test in another process, and kills it once it has reported to be ready.
fn kill_when_ready(test: &str, row: &str, path: &Path) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("{row}:{}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "{row}: it ended before it was killed");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_process_leaves_what_it_had_synced_and_nothing_that_it_had_removed() {
    if let Ok(child) = env::var(CHILD) {
        let (row, path) = child.split_once(':').unwrap();
        run_until_killed(row, &PathBuf::from(path));
    }
    let expected: Vec<_> = (0..KEYS).map(|key| [2, 0, 1, 1][key as usize % 4]).collect();
    let keeps_all_in_memory =
        |policy: &&Policy| policy.index == IndexAxis::Map || policy.layout == LayoutAxis::Clusters;
    for policy in Policy::all().iter().filter(keeps_all_in_memory) {
        let folder = tempfile::tempdir().unwrap();
        let found = found_after_kill(OWN_NAME, policy.name, &folder.path().join("store"));
        assert_eq!(found, expected, "{policy}");
    }
}

/// Without the flush, the last entries of most policies are still in memory when the process is killed.
#[test]
fn what_was_flushed_survives_a_kill_in_every_policy() {
    if let Ok(child) = env::var(CHILD) {
        let (row, path) = child.split_once(':').unwrap();
        flush_until_killed(row, &PathBuf::from(path));
    }
    for policy in Policy::all() {
        let folder = tempfile::tempdir().unwrap();
        let found = found_after_kill(FLUSHED_NAME, policy.name, &folder.path().join("store"));
        let lost: Vec<usize> = (0..FLUSHED_KEYS as usize).filter(|&key| found[key] != 1).collect();
        assert!(lost.is_empty(), "{policy} lost {lost:?}");
    }
}

/// Guards against an operator who replaces a disk because a process was killed.
#[test]
fn check_of_a_full_store_that_was_killed_finds_no_damage() {
    if let Ok(child) = env::var(CHILD) {
        let (row, path) = child.split_once(':').unwrap();
        fill_until_killed(row, &PathBuf::from(path));
    }
    for policy in Policy::all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        kill_when_ready(FULL_NAME, policy.name, &path);
        let checked = |when: &str| {
            let findings = check(&path, &mut |_, _| {}).unwrap();
            assert_eq!(findings.damages, [], "{policy}, {when}");
            assert!(findings.entries + findings.lost > 10, "{policy}, {when}: {findings:?}");
        };
        checked("after the kill");
        let store = Store::open(full_options(policy.name, &path)).unwrap();
        block_on(store.ready());
        (0..FULL_KEYS / 4).for_each(|key| assert!(insert(&store, key, 2, 3000), "{policy}"));
        assert_eq!(store.stats().io_errors, 0, "{policy}");
        store.release().unwrap();
        drop(store);
        checked("after the next clean stop");
    }
}
