//! Entries that the store reads together with a requested one, from the requests of one page view to a hit.

use std::time::Duration;

use larder_proxy::Outcome;
use larder_store::{Policy, StoreOptions};

use crate::support::{Fixture, Received, Reply, eventually};

#[test]
fn first_hit_of_a_page_costs_a_read_and_the_rest_of_the_page_none() {
    assert!(policies_with_groups().any(|policy| policy.name == "log") && policies_with_groups().count() > 2);
    for policy in policies_with_groups() {
        let fixture = viewed(policy);
        let store = fixture.store.as_ref().unwrap();
        let reads = store.stats().reads;
        let asked = fixture.origin.count();
        assert_eq!(fixture.proxy.stats().memory_cache_entries, 0, "{policy}: nothing was read yet");
        check(&fixture, PAGE);
        let mates = MATE_COUNT as u64;
        eventually("the page's mates are in memory", || fixture.proxy.stats().memory_cache_entries > mates);
        for target in mates_of_the_page() {
            check(&fixture, &target);
        }
        assert_eq!(fixture.origin.count(), asked, "{policy}: all were hits");
        assert_eq!(store.stats().reads, reads + 1, "{policy}");
        eventually("they are counted as hits from memory", || {
            fixture.proxy.stats().outcome(Outcome::MemoryHit) == mates
        });
    }
}

#[test]
fn what_was_invalidated_does_not_come_back_with_its_neighbors() {
    for policy in policies_with_groups() {
        let fixture = viewed(policy);
        let gone = mates_of_the_page().next().unwrap();
        assert_eq!(fixture.connect().request("POST", &gone, &["Content-Length: 0"]).status, 200);
        check(&fixture, PAGE);
        eventually("the other mates are in memory", || fixture.proxy.stats().memory_cache_entries >= MATE_COUNT as u64);
        let asked = fixture.origin.count();
        check(&fixture, &gone);
        assert_eq!(fixture.origin.count(), asked + 1, "{policy}");
    }
}

/// Returns the policies that read entries along with the requested one.
fn policies_with_groups() -> impl Iterator<Item = &'static Policy> {
    Policy::all().iter().filter(|policy| policy.brings_neighbors())
}

/// Starts a proxy with one viewed page, all of it on the device and nothing in memory.
fn viewed(policy: &'static Policy) -> Fixture {
    let options = |options: &mut StoreOptions| options.policy = policy;
    let fixture = Fixture::with_options(options, answer, |config| {
        config.hot_bytes = 8 << 20;
        config.policy.cache.group_window = Duration::from_secs(60);
    });
    let store = fixture.store.as_ref().unwrap();
    for (before, target) in std::iter::once(PAGE.to_owned()).chain(mates_of_the_page()).enumerate() {
        check(&fixture, &target);
        // In this order in the store too.
        eventually("it is stored", || store.stats().commits > before as u64);
    }
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.sync()).unwrap();
    fixture
}

fn mates_of_the_page() -> impl Iterator<Item = String> {
    (0..MATE_COUNT).map(|number| format!("/{number}.png"))
}

fn answer(received: &Received, _: usize) -> Reply {
    let kind = if received.target == PAGE { "Content-Type: text/html" } else { "Content-Type: image/png" };
    Reply::ok(&["Cache-Control: max-age=60", kind], body(&received.target))
}

fn body(target: &str) -> Vec<u8> {
    target.bytes().cycle().take(3000).collect()
}

fn check(fixture: &Fixture, target: &str) {
    let referer = format!("Referer: http://site.example{PAGE}");
    let fields: &[&str] = if target == PAGE { &[] } else { &[&referer] };
    let response = fixture.get(target, fields);
    assert_eq!((response.status, response.complete), (200, true), "{target}");
    assert!(response.body == body(target), "{target}: other bytes");
}

const PAGE: &str = "/page.html";
const MATE_COUNT: usize = 12;
