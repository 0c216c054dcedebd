//! Guards against a plan that is compared with a measurement of something else.

use larder_bench::{StoreJob, measure_store};
use larder_store::{IoChoice, Policy, Tuning};
use std::{fs, time::Duration};
use tempfile::TempDir;

#[test]
fn rows_of_every_kind_are_measured_and_leave_nothing() {
    let scratch = TempDir::new().unwrap();
    for name in ["log", "squid", "hashcache-set", "stream"] {
        let job = StoreJob {
            directory: scratch.path().to_owned(),
            policy: Policy::named(name).expect("it is a row"),
            tuning: Tuning::default(),
            size_bytes: 48 << 20,
            mean_bytes: 32 << 10,
            hit_ratio: 0.6,
            storable_share: 0.8,
            depth: 16,
            time: Duration::from_millis(300),
            io: IoChoice::Auto,
        };
        let rate = measure_store(&job, &mut |_, _| {}).unwrap();
        // The faster the disk, the more of such a small store is overwritten during the measurement: `hashcache-set`
        // has 28% to 32% hits.
        assert!(rate.per_second > 10.0 && (0.2..0.8).contains(&rate.hit_ratio), "{name}: {rate:?}");
        assert!(rate.write_factor > 0.5, "{name}: {rate:?}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "{name}");
    }
}
