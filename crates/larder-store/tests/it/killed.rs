//! At stake: the loss when a real process with a real file is killed by SIGKILL: at most what was stored in the last
//! second, nothing that was flushed, and never a removal.
//!
//! The test starts its own program again as the process to be killed.

use crate::support::{block_on, insert, key_bytes, version_of};
use larder_store::{IndexAxis, LayoutAxis, Policy, Store, StoreOptions};
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
const KEYS: u64 = 200;
const FLUSHED_KEYS: u64 = 20;

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

/// Returns the versions that a process finds after another, which runs this test, was killed.
fn found_after_kill(test: &str, row: &str, path: &Path) -> Vec<u64> {
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
    let store = Store::open(options(row, path)).unwrap();
    block_on(store.ready());
    let found = (0..KEYS).map(|key| version_of(&store, key).unwrap_or(0)).collect();
    block_on(store.close()).unwrap();
    found
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
