//! At stake: the loss when a real process with a real file is killed by SIGKILL: at most what was stored in the last
//! second, and never a removal.
//!
//! The test starts its own program again as the process to be killed.

use crate::support::{block_on, insert, key_bytes, version_of};
use larder_store::{IndexAxis, LayoutAxis, Policy, Store, StoreOptions};
use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Environment variable that gives the process to be killed its store and policy.
const CHILD: &str = "LARDER_KILLED_CHILD";
const OWN_NAME: &str = "killed::a_killed_process_leaves_what_it_had_synced_and_nothing_that_it_had_removed";
const KEYS: u64 = 200;

fn options(row: &str, path: &Path) -> StoreOptions {
    let policy = Policy::named(row).unwrap();
    StoreOptions { policy, mean_entry_bytes: 4096, ..StoreOptions::new(path, 24 << 20) }
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

/// Returns the keys that a process finds after another was killed.
fn found_after_kill(row: &str, path: &Path) -> Vec<u64> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", OWN_NAME, "--nocapture"])
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
        let found = found_after_kill(policy.name, &folder.path().join("store"));
        assert_eq!(found, expected, "{policy}");
    }
}
