//! Schedules that once broke the law, by seed.

use larder_store::Policy;
use larder_torture::{
    faults,
    schedule::{self, SchedulePlan},
};

/// At stake: a removal or invalidation that was acknowledged because the next start empties the volume. One copy of the
/// superblock said that this start may believe it, because the change that says so had failed after the first copy.
#[test]
fn changes_of_an_excluded_volume_last_although_the_end_of_its_doubt_was_half_written() {
    for (policy, seed) in [("hashcache-log", 850_003_286), ("tiny", 810_002_863)] {
        let policy = Policy::named(policy).unwrap();
        let faults = faults::named("syncs").unwrap();
        let outcome = schedule::run(&SchedulePlan::of_seed(seed, policy, &faults, 300));
        assert!(outcome.is_ok(), "{policy}, seed {seed}: {}", outcome.err().unwrap());
    }
}
