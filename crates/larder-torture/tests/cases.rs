//! Holds a simulated HTTP cache to the table of cases: larder-tower above a device in memory, on one thread, in virtual
//! time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../larder-tower/tests/it/cases.rs"]
mod cases;
#[path = "../../larder-tower/tests/it/layer_subject.rs"]
mod layer_subject;

use cases::CaseOrigin;
use larder_cache::Cache;
use larder_device::{Device, FaultPlan, FaultyDevice};
use larder_http::Settings;
use larder_store::Clock;
use layer_subject::LayerSubject;
use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};
use tokio::runtime::Builder;

const DISK_BYTES: u64 = 16 << 20;

#[test]
fn simulated_private_cache_keeps_to_the_table() {
    check("private", Settings::private());
}

#[test]
fn simulated_shared_cache_keeps_to_the_table() {
    check("shared", Settings::default());
}

fn check(kind: &str, settings: Settings) {
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(FaultyDevice::new(DISK_BYTES, 1, FaultPlan::default()));
    let cache = Cache::builder(directory.path())
        .disk(DISK_BYTES)
        .memory("16MB")
        .configure_store(|options| {
            options.clock = Clock::manual(Duration::from_secs(1_800_000_000));
            options.background = false;
        })
        .device(Arc::clone(&device) as Arc<dyn Device>)
        .open()
        .unwrap();
    let origin = Arc::new(CaseOrigin::default());
    let subject = LayerSubject::new(cache, settings, &origin);
    let mismatches = run(&device, cases::mismatches(kind, &subject, &origin));
    assert!(mismatches.is_empty(), "{kind}:\n{}", mismatches.join("\n"));
}

/// Runs a future and the cache's tasks, and turns the device between them.
fn run<T>(device: &FaultyDevice, future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut future = pin!(future);
        poll_fn(|context| {
            while device.turn() {}
            // The device wakes nobody by itself.
            context.waker().wake_by_ref();
            future.as_mut().poll(context)
        })
        .await
    })
}
