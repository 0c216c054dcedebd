//! The second tier. Guards against an error, a wrong body, a long wait or an old version because of a place that is
//! slow, down or lies. Guards also against hits that are lost although an evicted entry is still there.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use larder_proxy::{BuildCache, LocalWriters, NeedsRestart, Proxy, ProxyConfig, RunningProxy};
use larder_store::{Store, StoreOptions};
use ring::digest::{SHA256, digest};
use tempfile::TempDir;

use crate::support::{Connection, Fixture, Origin, Received, Reply, Response, body, eventually, gate::PATIENCE};

/// The store has room for a fifth of the requested bodies.
const STORE_BYTES: u64 = 24 << 20;
const BODY_BYTES: usize = 200_000;
const COUNT: usize = 400;
/// Requests after which a test waits for the tier. Fewer bytes than this may wait there.
const COUNT_AT_ONCE: usize = 50;

/// A proxy with a small store and a tier in a folder.
struct Tiered {
    proxy: RunningProxy,
    store: Store,
    origin: Origin,
    home: TempDir,
}

fn answer(received: &Received, _: usize) -> Reply {
    match received.target.strip_prefix("/long/") {
        Some(_) => Reply::ok(&["Cache-Control: max-age=600", "ETag: \"1\""], body(5_500_000)),
        None => Reply::ok(&["Cache-Control: max-age=600"], short(&received.target)),
    }
}

/// The body of a target, which no other target has.
fn short(target: &str) -> Vec<u8> {
    let mut bytes = body(BODY_BYTES);
    bytes[..target.len()].copy_from_slice(target.as_bytes());
    bytes
}

fn configure(config: &mut ProxyConfig, home: &Path) {
    config.state_base = Some(home.join("state"));
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.hot_bytes = 0;
    config.tier.folder = Some(home.join("tier"));
    config.tier.admits_all = true;
    config.tier.pack_age = Duration::from_millis(50);
    // A test that is not about a slow tier must not see one because the machine is busy.
    config.tier.timeout = PATIENCE;
}

impl Tiered {
    fn start(change: impl Fn(&mut ProxyConfig)) -> Self {
        Self::start_at(TempDir::new().unwrap(), Origin::start(answer), change)
    }

    fn start_at(home: TempDir, origin: Origin, change: impl Fn(&mut ProxyConfig)) -> Self {
        // A link, which a test can replace in one step.
        let real = home.path().join("real");
        let folder = home.path().join("tier");
        fs::create_dir_all(&real).unwrap();
        if !folder.exists() {
            symlink(&real, &folder).unwrap();
        }
        let store = Store::open(StoreOptions::new(home.path().join("store"), STORE_BYTES)).unwrap();
        eventually("the store has loaded", || store.stats().loaded);
        let mut config = Fixture::config(&origin);
        configure(&mut config, home.path());
        change(&mut config);
        let proxy = Proxy::start(config, Some(store.clone())).unwrap();
        Self { proxy, store, origin, home }
    }

    fn restart(self, change: impl Fn(&mut ProxyConfig)) -> Self {
        let Self { proxy, store, origin, home } = self;
        proxy.shutdown(Duration::from_secs(30));
        store.release().unwrap();
        drop(store);
        Self::start_at(home, origin, change)
    }

    fn address(&self) -> SocketAddr {
        self.proxy.local_addrs()[0]
    }

    fn get(&self, target: &str) -> Response {
        Connection::open(self.address()).request("GET", target, &[])
    }

    /// Requests a target with a short body, and checks it. Returns whether it came from the cache.
    fn get_short(&self, client: &mut Connection, number: usize) -> bool {
        let target = format!("/{number}");
        let response = client.request("GET", &target, &[]);
        assert_eq!(response.status, 200, "{target}");
        assert!(response.body == short(&target), "{target}: wrong bytes");
        response.is_hit()
    }

    /// Requests all targets, checks every body, and returns how many came from the cache. Waits again and again until
    /// the packs are stored: a tier that has less processor time than the clients would drop some.
    fn get_all(&self) -> usize {
        let mut client = Connection::open(self.address());
        let hits = (0..COUNT).filter(|number| {
            if number % COUNT_AT_ONCE == 0 {
                self.wait_for_packs();
            }
            self.get_short(&mut client, *number)
        });
        let hits = hits.count();
        self.wait_for_packs();
        hits
    }

    fn wait_for_packs(&self) {
        eventually("the packs are stored", || self.metric("waiting_entries") == 0);
    }

    fn metric(&self, name: &str) -> u64 {
        let text = Connection::open_admin(self.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]).text();
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("larder_tier_{name} ")));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Requests all targets once. Those that the store has evicted are in the tier then.
    fn fill(&self) {
        self.get_all();
        let entries = self.metric("entries");
        let dropped = self.metric("dropped_total");
        assert!(entries >= COUNT as u64 / 2, "{entries} entries, {dropped} dropped");
    }

    fn packs(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.home.path().join("tier")).unwrap();
        folders
            .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
            .map(|file| file.unwrap().path())
            .collect()
    }
}

#[test]
fn what_the_store_evicts_is_found_again_also_after_a_restart() {
    let tiered = Tiered::start(|_| {});
    tiered.fill();
    let hits = tiered.get_all();
    assert!(hits >= COUNT * 95 / 100, "{hits} hits");
    let fetched = tiered.origin.count();
    let hits = tiered.metric("hits_total");
    assert!(hits > 0 && tiered.metric("corrupt_total") == 0);
    let tiered = tiered.restart(|_| {});
    let hits = tiered.get_all();
    assert!(hits >= COUNT * 95 / 100, "{hits} hits after the restart");
    assert!(tiered.metric("hits_total") > COUNT as u64 / 2, "{}", tiered.metric("hits_total"));
    assert!(tiered.origin.count() - fetched <= COUNT * 10 / 100);
}

#[test]
fn long_bodies_come_back_with_their_heads_and_ranges() {
    let tiered = Tiered::start(|config| config.tier.admits_all = false);
    let targets: Vec<String> = (0..8).map(|number| format!("/long/{number}")).collect();
    let whole = body(5_500_000);
    let get_all = || {
        let hits = targets.iter().filter(|target| {
            let response = tiered.get(target);
            assert!(response.status == 200 && response.body == whole);
            tiered.wait_for_packs();
            response.is_hit()
        });
        hits.count()
    };
    assert_eq!(get_all(), 0);
    let entries = tiered.metric("entries");
    assert!(entries >= 20, "{entries} evicted chunks and heads are in the tier");
    let hits = get_all();
    let fetched = tiered.origin.count();
    assert!(hits >= 6, "{hits} of 8 bodies are found");
    assert!(tiered.metric("hits_total") > 0);
    for target in &targets {
        let part = Connection::open(tiered.address()).request("GET", target, &["Range: bytes=4000000-4000099"]);
        assert_eq!((part.status, part.body.as_slice()), (206, &whole[4_000_000..4_000_100]));
    }
    assert!(tiered.origin.count() - fetched <= 2);
}

/// Forges the bodies of all records in a pack, with digests that everybody can compute. Returns their number.
fn forge(pack: &mut [u8]) -> usize {
    /// Lengths of the fields before a record's key, and of the digests that a record may end with.
    const FIXED_BYTES: usize = 48;
    const DIGESTS_BYTES: [usize; 2] = [32, 16];
    let sha256 = |parts: &[&[u8]]| digest(&SHA256, &parts.concat());
    let mut at = 0;
    let mut count = 0;
    while at < pack.len() {
        let length = |field: usize| u32::from_le_bytes(pack[at + field..at + field + 4].try_into().unwrap()) as usize;
        let content = at + FIXED_BYTES..at + FIXED_BYTES + length(4) + length(8) + length(12);
        let body = content.end - length(12)..content.end;
        let is_end = |digest_bytes: &&usize| {
            let rest = pack.get(content.end + **digest_bytes..);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"LTE"))
        };
        let digest_bytes = *DIGESTS_BYTES.iter().find(is_end).unwrap();
        pack[body].iter_mut().for_each(|octet| *octet = b'!');
        let inner = sha256(&[&pack[content.clone()]]);
        let outer = sha256(&[&pack[at..at + FIXED_BYTES], inner.as_ref()]);
        pack[content.end..content.end + digest_bytes].copy_from_slice(&outer.as_ref()[..digest_bytes]);
        (at, count) = (content.end + digest_bytes, count + 1);
    }
    count
}

/// Guards against pages that come from anyone who may write to the folder or the bucket. Each response's body is
/// compared.
#[test]
fn forged_pages_are_never_served() {
    let tiered = Tiered::start(|_| {});
    tiered.fill();
    let mut count = 0;
    for pack in tiered.packs() {
        let mut bytes = fs::read(&pack).unwrap();
        count += forge(&mut bytes);
        fs::write(&pack, bytes).unwrap();
    }
    assert!(count >= 100, "{count} forged pages");
    tiered.get_all();
    assert!(tiered.metric("corrupt_total") > 0);
}

#[test]
fn entries_under_another_secret_are_misses_and_those_under_the_same_one_are_not() {
    let secrets = TempDir::new().unwrap();
    let secret = |name: &str| {
        let path = secrets.path().join(name);
        fs::write(&path, format!("{name}0123456789abcdef")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let first = secret("first");
    let other = secret("other");
    let tiered = Tiered::start(|config| config.tier.secret = Some(first.clone()));
    tiered.fill();
    let tiered = tiered.restart(|config| config.tier.secret = Some(first.clone()));
    assert!(tiered.metric("entries") >= COUNT as u64 / 2);
    let tiered = tiered.restart(|config| config.tier.secret = Some(other.clone()));
    assert_eq!(tiered.metric("entries"), 0);
    assert!(tiered.metric("packs") > 0, "they leave when the tier is full");
    tiered.get_all();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    let mut config = Fixture::config(&tiered.origin);
    config.tier.secret = Some(other);
    assert!(config.check_files().unwrap_err().to_string().contains("other users may read it"));
}

#[test]
fn flipped_bits_cost_hits_only() {
    let tiered = Tiered::start(|_| {});
    tiered.fill();
    for pack in tiered.packs() {
        let mut bytes = fs::read(&pack).unwrap();
        bytes.iter_mut().step_by(1000).for_each(|byte| *byte ^= 0x10);
        fs::write(&pack, bytes).unwrap();
    }
    assert!(tiered.get_all() < COUNT);
    assert!(tiered.metric("corrupt_total") > 0);
}

/// Guards against a place that answers with the bytes of another version, which have a valid checksum.
#[test]
fn packs_that_are_swapped_or_cut_short_cost_hits_only() {
    let tiered = Tiered::start(|_| {});
    tiered.fill();
    let packs = tiered.packs();
    assert!(packs.len() >= 2);
    let contents: Vec<Vec<u8>> = packs.iter().map(|pack| fs::read(pack).unwrap()).collect();
    for (at, pack) in packs.iter().enumerate() {
        let other = &contents[(at + 1) % contents.len()];
        fs::write(pack, if at % 2 == 0 { other } else { &other[..other.len() / 2] }).unwrap();
    }
    tiered.get_all();
    assert!(tiered.metric("corrupt_total") + tiered.metric("failed_total") > 0);
}

#[test]
fn tier_that_is_down_costs_hits_only_and_is_used_again_when_it_returns() {
    let tiered = Tiered::start(|_| {});
    tiered.fill();
    let folder = tiered.home.path().join("tier");
    let real = tiered.home.path().join("real");
    let replace_by = |target: &Path| {
        let new = tiered.home.path().join("new");
        symlink(target, &new).unwrap();
        fs::rename(&new, &folder).unwrap();
    };
    // In the place of the folder, nothing can be stored or read.
    let file = tiered.home.path().join("file");
    fs::write(&file, "no folder").unwrap();
    replace_by(&file);
    // An entry that is requested is fetched, and then forgotten by the tier. So each is requested once only.
    let mut client = Connection::open(tiered.address());
    let mut numbers = 0..COUNT;
    let mut get_next = |why: &str| tiered.get_short(&mut client, numbers.next().expect(why));
    while tiered.metric("up") == 1 {
        get_next("a tier that fails three times is paused");
    }
    while tiered.metric("bypassed_total") < 20 {
        get_next("a tier that is paused is not asked");
    }
    replace_by(&real);
    let hits = tiered.metric("hits_total");
    let mut numbers = (0..COUNT).cycle();
    eventually("it is used again", || {
        numbers.by_ref().take(COUNT_AT_ONCE).for_each(|number| _ = tiered.get_short(&mut client, number));
        tiered.metric("hits_total") > hits
    });
}

#[test]
fn tier_that_does_not_answer_holds_nobody_up() {
    let tiered = Tiered::start(|config| config.tier.timeout = Duration::from_millis(100));
    tiered.fill();
    // Opening a pipe that nobody writes waits for ever.
    for pack in tiered.packs() {
        fs::remove_file(&pack).unwrap();
        assert!(Command::new("mkfifo").arg(&pack).status().unwrap().success());
    }
    let failed = tiered.metric("failed_total");
    let mut client = Connection::open(tiered.address());
    (0..COUNT).for_each(|number| _ = tiered.get_short(&mut client, number));
    let failed = tiered.metric("failed_total") - failed;
    let bypassed = tiered.metric("bypassed_total");
    // Without the pauses after failures, each of 300 lookups would wait.
    assert!(failed >= 3 && bypassed > failed, "{failed} failed, {bypassed} were skipped");
    // So that the threads that wait can end with the test.
    for pack in tiered.packs() {
        drop(fs::OpenOptions::new().read(true).write(true).open(pack));
    }
}

/// Guards against a removed or replaced entry that comes back, because an older copy of it is in the tier.
#[test]
fn removed_and_replaced_entries_do_not_come_back_from_the_tier() {
    let build = |config: &mut ProxyConfig| {
        let local_writers = LocalWriters::All;
        config.build_caches.push(BuildCache { local_writers, ..BuildCache::at("/c") });
    };
    let tiered = Tiered::start(build);
    let send = |tiered: &Tiered, method: &str, target: &str, bytes: &[u8]| {
        let mut client = Connection::open_admin(tiered.address());
        client
            .send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", bytes.len()));
        client.send(bytes);
        client.read_response(method).status
    };
    let targets: Vec<String> = (0..30).map(|number| format!("/c/{number}")).collect();
    for target in &targets {
        assert_eq!(send(&tiered, "PUT", target, &short(target)), 201);
    }
    let read = |tiered: &Tiered, target: &str| Connection::open_admin(tiered.address()).request("GET", target, &[]);
    // The others push them out of the store.
    tiered.fill();
    let found = targets.iter().filter(|target| read(&tiered, target).status == 200).count();
    assert!(found >= targets.len() * 9 / 10, "{found} are found");
    let new = |target: &String| [target.as_bytes(), b" is new"].concat();
    for (number, target) in targets.iter().enumerate() {
        match number % 3 {
            0 => assert_eq!(send(&tiered, "DELETE", target, b""), 204),
            1 => assert_eq!(send(&tiered, "PUT", target, &new(target)), 204),
            _ => {}
        }
    }
    let check = |tiered: &Tiered| {
        for (number, target) in targets.iter().enumerate() {
            let found = read(tiered, target);
            match number % 3 {
                0 => assert_eq!(found.status, 404, "{target} is back"),
                1 => assert!(found.status == 404 || found.body == new(target), "{target} is the old one"),
                _ => assert!(found.status == 404 || found.body == short(target), "{target}"),
            }
        }
    };
    check(&tiered);
    // Not even once the new ones are evicted, or the process has ended.
    tiered.get_all();
    tiered.get_all();
    check(&tiered);
    let tiered = tiered.restart(build);
    check(&tiered);
}

#[test]
fn budget_limits_the_packs_and_size_removes_the_oldest() {
    let stingy = Tiered::start(|config| config.tier.puts_per_day = Some(1));
    stingy.get_all();
    assert!(stingy.metric("dropped_total") > 0);
    assert_eq!(stingy.metric("packs_stored_total"), 1);
    let small = Tiered::start(|config| config.tier.bytes_max = 20 << 20);
    small.get_all();
    let packs = small.metric("packs_stored_total");
    assert!(packs >= 3, "{packs} packs were stored");
    assert!(small.metric("bytes") <= 20 << 20);
    let on_disk = || small.packs().iter().map(|pack| fs::metadata(pack).map_or(0, |file| file.len())).sum::<u64>();
    eventually("the folder is small, too", || on_disk() <= (20 << 20));
}

#[test]
fn tier_needs_a_store_and_a_restart_to_change() {
    let origin = Origin::start(answer);
    let home = TempDir::new().unwrap();
    let mut config = Fixture::config(&origin);
    configure(&mut config, home.path());
    let refused = Proxy::start(config, None).err().unwrap();
    assert!(refused.to_string().contains("a second tier needs a store"), "{refused}");
    let tiered = Tiered::start(|_| {});
    let mut config = Fixture::config(&tiered.origin);
    configure(&mut config, tiered.home.path());
    config.tier.bytes_max = 1 << 30;
    let outcome = tiered.proxy.handle().reload(config).unwrap();
    assert!(outcome.unchanged.contains(&NeedsRestart::Tier), "{:?}", outcome.unchanged);
}
