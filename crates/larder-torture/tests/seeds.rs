//! Schedules that once broke the law, by seed.

use larder_store::Policy;
use larder_torture::{
    faults,
    laws::{self, Face, LawPlan},
    schedule::{self, SchedulePlan},
};

/// Protects a removal or invalidation that was acknowledged because the next start empties the volume. One copy of the
/// superblock said that this start may believe it, because the change that says so had failed after the first copy.
#[test]
fn changes_of_an_excluded_volume_last_although_the_end_of_its_doubt_was_half_written() {
    expect_lawful("syncs", &[("hashcache-log", 850_003_286), ("tiny", 810_002_863)]);
}

/// Protects a removal that was acknowledged because the next start empties the volume. A sync failed while the volume
/// was taken back, another one that had begun before succeeded, and the new doubt was ended with the old one.
#[test]
fn changes_of_an_excluded_volume_last_although_a_sync_failed_when_it_was_taken_back() {
    let seeds = [("hashcache-log", 830_000_007), ("stream", 860_000_484), ("hashcache-basic", 860_000_368)];
    expect_lawful("syncs", &seeds);
}

/// Protects the sync that is due. A task that was about to submit it was not polled, and the other tasks took it for
/// submitted.
#[test]
fn due_sync_does_not_wait_for_a_task_that_nobody_polls() {
    expect_lawful("slow", &[("hashcache-log-lru", 830_000_196)]);
}

/// At stake: a stored response. The process was stopped for 40 s while a removal was written, and the cache took the
/// store for one that does not respond.
#[test]
fn store_is_used_although_the_process_was_stopped() {
    if let Err(broken) = laws::run(LawPlan { face: Face::Responses, seed: 20_280_766, tell: None }) {
        panic!("{broken}");
    }
}

/// Runs the schedules of these policies and seeds.
fn expect_lawful(faults: &str, schedules: &[(&str, u64)]) {
    let faults = faults::named(faults).expect("a kind of faults");
    for &(policy, seed) in schedules {
        let policy = Policy::named(policy).expect("a policy");
        if let Err(broken) = schedule::run(&SchedulePlan::of_seed(seed, policy, &faults, 300)) {
            panic!("{policy}, seed {seed}: {broken}");
        }
    }
}
