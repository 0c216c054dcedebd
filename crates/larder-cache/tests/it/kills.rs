//! A process is killed while it writes: afterwards only written values are found, and removals hold.

use crate::support::{builder, content};
use futures_executor::block_on;
use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

const DIRECTORY: &str = "LARDER_CACHE_TEST_DIRECTORY";

/// Writes values, and removes every third by its tag, until the process is killed.
///
/// The next test runs this in a child process. Otherwise it does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(directory) = env::var(DIRECTORY) else { return };
    let cache = builder(Path::new(&directory)).disk("256MB").open().unwrap();
    block_on(async {
        for number in 0_u64.. {
            let name = format!("value {number}");
            cache.entry(&name).tag(&name).insert(content(number, len_of(number))).await.unwrap();
            if number.is_multiple_of(3) {
                cache.remove_tag(&name).await.unwrap();
            }
            println!("written {number}");
        }
    });
}

/// Returns the length of a value. Most are short; every tenth is stored in chunks.
fn len_of(number: u64) -> usize {
    if number % 10 == 9 { 3 << 20 } else { 30_000 }
}

#[test]
fn values_are_whole_and_removals_hold_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "kills::child_writes_until_it_is_killed", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let written: Vec<_> = lines.filter(|line| line.contains("written")).take(120).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(written.len(), 120);
    let cache = builder(directory.path()).disk("256MB").open().unwrap();
    block_on(async {
        let mut found_count = 0;
        for number in 0..200_u64 {
            if let Some(bytes) = cache.get(format!("value {number}")).await.unwrap() {
                assert!(bytes == content(number, len_of(number)), "{number}");
                assert!(!(number.is_multiple_of(3) && number < 120), "{number} was removed");
                found_count += 1;
            }
        }
        assert!(found_count > 20, "{found_count} of 80");
    });
}
