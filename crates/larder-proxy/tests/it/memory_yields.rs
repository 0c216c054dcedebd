//! Checks that a proxy that uses a machine's free memory returns it when other programs need it, without losing
//! responses.

use std::fs;

use larder_proxy::MachineMemory;
use tempfile::TempDir;

use crate::support::{Connection, Fixture, Reply, body, eventually};

const MIB: usize = 1 << 20;
/// Few enough bytes to fit into the store and the memory cache.
const COUNT: usize = 20;
const LEN: usize = MIB;

/// Writes the figures of a machine of 1 GiB.
fn write_machine(root: &TempDir, available_mib: usize) {
    let folder = root.path().join("proc");
    fs::create_dir_all(&folder).unwrap();
    let text = format!("MemTotal: 1048576 kB\nMemAvailable: {} kB\n", available_mib << 10);
    fs::write(folder.join("new"), text).unwrap();
    // Renamed in one step, so that the proxy never reads half a file.
    fs::rename(folder.join("new"), folder.join("meminfo")).unwrap();
}

#[test]
fn memory_cache_shrinks_when_others_need_memory_and_the_store_still_has_every_entry() {
    let root = TempDir::new().unwrap();
    write_machine(&root, 500);
    let sent = body(LEN);
    let fixture = Fixture::with(
        move |_, _| Reply::ok(&["Cache-Control: max-age=600", "ETag: \"v1\""], &sent),
        |config| {
            // All tests share this process, so the limit must be too high to affect the others.
            (config.memory_bytes, config.hot_bytes) = (Some(1 << 40), 64 << 20);
            config.memory_yields = Some(MachineMemory::below(root.path()));
            config.admin = Some("127.0.0.1:0".parse().unwrap());
        },
    );
    let targets = || (0..COUNT).map(|number| format!("/{number}"));
    for target in targets() {
        fixture.get(&target, &[]);
        fixture.get_hit(&target, &[]);
    }
    let cached = || fixture.proxy.stats().memory_cache_bytes as usize;
    eventually("all are in memory", || {
        targets().for_each(|target| drop(fixture.get(&target, &[])));
        cached() >= COUNT * LEN
    });

    write_machine(&root, 10);
    eventually("it gives way", || metric(&fixture, "larder_memory_yields_total") == 1);
    assert!(cached() <= 2 * MIB, "{} bytes are cached, and the machine lacks more", cached());
    assert!(metric(&fixture, "larder_memory_cache_bytes_max") <= 2 * MIB as u64);
    for target in targets() {
        assert!(fixture.get(&target, &[]).is_hit(), "{target} is in the store");
    }
}

/// Returns a figure of `/metrics`.
fn metric(fixture: &Fixture, name: &str) -> u64 {
    let text = Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}
