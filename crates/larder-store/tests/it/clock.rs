//! Guards against a clock that is set back while an operation waits for its due time.

use crate::support::{block_on, insert, version_of};
use larder_device::{Device, FaultPlan, FaultyDevice};
use larder_store::{Policy, Store};
use larder_torture::options;
use std::{sync::Arc, time::Duration};

const HOUR_S: i64 = 3600;

#[test]
fn what_is_stored_is_flushed_and_synced_in_time_whenever_the_clock_is_set() {
    // The other policies write at once or only for a sync, and policies with many files cannot be opened this way.
    let is_durable = |policy: &&Policy| {
        let is_paged = policy.name.starts_with("stream-") || policy.name.starts_with("lazy-");
        is_paged || policy.name == "log" || policy.name == "tiny" || policy.name.contains("cache-log")
    };
    for (policy, step_s) in
        Policy::all().iter().filter(is_durable).flat_map(|policy| [(policy, -HOUR_S), (policy, HOUR_S)])
    {
        let options = options(policy, 1);
        let device = Arc::new(FaultyDevice::new(options.size_bytes, 1, FaultPlan::default()));
        let open =
            |device: &Arc<FaultyDevice>| Store::open_on(Arc::clone(device) as Arc<dyn Device>, &options).unwrap();
        let store = open(&device);
        let wait = |time: Duration| {
            options.clock.advance(time);
            // The first round does the due work, the second syncs what it wrote.
            (0..2).for_each(|_| block_on(store.maintain()));
        };
        assert!(insert(&store, 1, 1, 700));
        assert!(store.stats().dirty_bytes >= 700, "{policy}: {}", store.stats().dirty_bytes);
        wait(options.sync_interval);
        assert_eq!(store.stats().dirty_bytes, 0, "{policy}");
        assert!(insert(&store, 2, 1, 700));
        options.clock.step(step_s);
        wait(options.flush_interval);
        assert_eq!(version_of(&open(&Arc::new(device.kill())), 2), Some(1), "{policy}: flushed, after {step_s} s");
        wait(options.sync_interval);
        assert_eq!(version_of(&open(&Arc::new(device.power_cut())), 2), Some(1), "{policy}: synced, after {step_s} s");
    }
}
