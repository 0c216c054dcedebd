//! Purges on one node of a fleet, and the other nodes. Guards against a response that was reported purged and is served
//! by a node that was absent and returns.

use crate::{
    origin::Origin,
    ports::free_address,
    process::{Larder, Response, refused, said},
    serving::admin_of,
    upgrading::Successor,
};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time in which a running node applies a purge made on another one.
const SOON: Duration = Duration::from_secs(1);

/// Three nodes of a fleet in front of one origin; each can be stopped.
struct Nodes {
    homes: [TempDir; 3],
    ports: [u16; 3],
    /// Ports of the admin listeners, which an upgrade must not confuse with others.
    admin_ports: [u16; 3],
    origin: Origin,
    running: [Option<Larder>; 3],
}

impl Nodes {
    fn new(timeout: &str) -> Self {
        let [a, b, c, d, e, f] = [(); 6].map(|()| free_address().port());
        let ports = [a, b, c];
        let admin_ports = [d, e, f];
        let homes = [(); 3].map(|()| TempDir::new().unwrap());
        let nodes: Vec<String> =
            NAMES.iter().zip(ports).map(|(name, port)| format!("\"{name}=127.0.0.1:{port}\"")).collect();
        for (home, name) in homes.iter().zip(NAMES) {
            let secret = home.path().join("secret");
            fs::write(&secret, "of all three nodes\n").unwrap();
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
            let text = format!(
                "node = \"{name}\"\nready_path = \"/-/ready\"\n[fleet]\nnodes = [{}]\nsecret_file = {secret:?}\nnode_timeout = \"{timeout}\"\n",
                nodes.join(", ")
            );
            fs::write(home.path().join("larder.toml"), text).unwrap();
        }
        Self { homes, ports, admin_ports, origin: Origin::start(), running: [None, None, None] }
    }

    fn start(&mut self, node: usize) {
        let home = &self.homes[node];
        let config = home.path().join("larder.toml");
        let store = home.path().join("store.larder");
        let listen = format!("127.0.0.1:{}", self.ports[node]);
        let origin = format!("http://{}", self.origin.address);
        let flags = ["--listen", &listen, "--config", config.to_str().unwrap(), "--disk", store.to_str().unwrap()];
        let admin = format!("127.0.0.1:{}", self.admin_ports[node]);
        let more = ["--size", "64MiB", "--memory-cache", "1MB", "--origin", &origin, "--admin", &admin];
        self.running[node] = Some(Larder::start(home, &[&flags[..], &more].concat()));
    }

    fn start_all(&mut self) {
        (0..3).for_each(|node| self.start(node));
        (0..3).for_each(|node| self.until_sure(node));
    }

    /// Waits until a node has said this, which it may have done while it started.
    fn until_said(&mut self, node: usize, text: &str) {
        let larder = self.running[node].as_mut().unwrap();
        if !larder.start_lines.contains(text) {
            larder.wait_for_line(text);
        }
    }

    fn kill(&mut self, node: usize) {
        let larder = self.running[node].take().unwrap();
        larder.signal(Signal::KILL);
    }

    fn node(&self, node: usize) -> &Larder {
        self.running[node].as_ref().unwrap()
    }

    /// Waits until health checks succeed.
    fn until_ready(&self, node: usize) {
        eventually("it is ready", || self.node(node).get("/-/ready").status == 200);
    }

    /// Waits until a node knows the purges of all nodes.
    fn until_sure(&self, node: usize) {
        self.until_ready(node);
        eventually("it is sure", || self.metric(node, "larder_fleet_purges_unsynced") == Some(0));
    }

    fn metric(&self, node: usize, name: &str) -> Option<i64> {
        let text = Response::get_admin(admin_of(self.node(node)), "/metrics").body;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    fn purge(&self, node: usize, arguments: &[&str]) {
        let admin = admin_of(self.node(node)).to_string();
        said(&self.homes[node], &[&["purge", "--admin", &admin], arguments].concat());
    }

    /// Stores paths on a node.
    fn store(&self, node: usize, paths: &[String]) {
        paths.iter().for_each(|path| assert_eq!(self.node(node).get(path).status, 200));
        eventually("all is stored", || paths.iter().all(|path| self.node(node).get(path).is_hit()));
    }

    /// Returns the number of these paths that a node serves from its cache.
    fn hits(&self, node: usize, paths: &[String]) -> usize {
        paths.iter().filter(|path| self.node(node).get(path).is_hit()).count()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

fn tagged(tag: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/tagged/{tag}/{number}")).collect()
}

fn url(path: &str) -> String {
    format!("http://www.example.test{path}")
}

#[test]
fn node_that_was_away_serves_nothing_that_was_purged_meanwhile() {
    let mut nodes = Nodes::new("1m");
    nodes.start_all();
    let purged: Vec<Vec<String>> = ["tag", "prefix", "url", "soft"].iter().map(|tag| tagged(tag, 60)).collect();
    let kept = tagged("kept", 60);
    for node in 0..3 {
        purged.iter().for_each(|paths| nodes.store(node, paths));
        nodes.store(node, &kept);
    }
    // A kill would lose what was stored within the last second.
    assert_eq!(nodes.running[2].take().unwrap().stop(), Some(0));
    nodes.purge(0, &["--tag", "tag"]);
    let begun = Instant::now();
    eventually("the live node has applied it", || nodes.hits(1, &purged[0][..1]) == 0);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    nodes.purge(1, &["--prefix", &url("/tagged/prefix/")]);
    let urls: Vec<String> = purged[2].iter().map(|path| url(path)).collect();
    nodes.purge(0, &urls.iter().map(String::as_str).collect::<Vec<_>>());
    nodes.purge(1, &["--soft", "--tag", "soft"]);
    nodes.start(2);
    // This also holds before the node is ready: it must serve no purged response from its cache.
    assert_eq!(nodes.hits(2, &purged[0][..20]), 0);
    nodes.until_sure(2);
    for (place, paths) in purged.iter().enumerate() {
        let paths = if place == 0 { &paths[20..] } else { paths };
        assert_eq!(nodes.hits(2, paths), 0, "{place}");
    }
    assert_eq!(nodes.hits(2, &kept), kept.len());
    // Purges everything, and a whole site.
    let again: Vec<String> = purged.concat();
    for (arguments, from) in [(&["--site", &url("/")][..], 2), (&["--all"], 1)] {
        (0..3).for_each(|node| nodes.store(node, &again));
        nodes.purge(from, arguments);
        for node in 0..3 {
            eventually("it is applied", || nodes.hits(node, &again[..1]) == 0);
            assert_eq!(nodes.hits(node, &again[1..]), 0, "{arguments:?}");
        }
    }
}

#[test]
fn no_kill_loses_an_acknowledged_purge() {
    let mut nodes = Nodes::new("1m");
    nodes.start_all();
    let tags: Vec<String> = (0..24).map(|number| format!("t{number}")).collect();
    let paths: Vec<String> = tags.iter().flat_map(|tag| tagged(tag, 3)).collect();
    let kept = tagged("kept", 20);
    nodes.store(2, &[&paths[..], &kept].concat());
    // A kill may lose what was stored within the last second, and then a miss would prove nothing.
    assert_eq!(nodes.running[2].take().unwrap().stop(), Some(0));
    nodes.start(2);
    nodes.until_sure(2);
    assert_eq!(nodes.hits(2, &paths), paths.len());
    for (number, tag) in tags.iter().enumerate() {
        // The node that accepts a purge is killed after acknowledging it, and the other one at any moment while it
        // learns of the purge.
        nodes.purge(number % 2, &["--tag", tag]);
        if number % 3 == 0 {
            nodes.kill(2);
            nodes.start(2);
        }
        if number % 8 == 5 {
            nodes.kill(number % 2);
            nodes.start(number % 2);
        }
    }
    nodes.until_sure(2);
    assert_eq!((nodes.hits(2, &paths), nodes.hits(2, &kept)), (0, kept.len()));
    // Both nodes that accepted purges have received each other's.
    for node in 0..2 {
        nodes.until_sure(node);
        assert_eq!(nodes.hits(node, &paths), 0);
    }
}

/// Guards against one node's outage that stops the others, or makes them serve what was purged on it.
#[test]
fn silent_node_makes_others_validate_and_keeps_none_from_serving() {
    let mut nodes = Nodes::new("2s");
    nodes.start_all();
    let paths = tagged("x", 20);
    (0..3).for_each(|node| nodes.store(node, &paths));
    nodes.purge(0, &["--tag", "none"]);
    (0..2).for_each(|_| assert_eq!(nodes.hits(1, &paths), paths.len()));
    let unwritten = "larder_memory_bytes{part=\"dirty\"}";
    eventually("c has written what it stored", || nodes.metric(2, unwritten) == Some(0));
    nodes.kill(2);
    nodes.purge(0, &["--tag", "x"]);
    nodes.kill(0);
    // Only b runs. At first it serves as before. Later it validates, and stays ready.
    eventually("it is in doubt", || nodes.metric(1, "larder_fleet_purges_unsynced") == Some(1));
    assert_eq!(nodes.node(1).get("/-/ready").status, 200);
    // A node that starts alone is ready, and serves nothing stored earlier without validation.
    nodes.start(2);
    nodes.until_ready(2);
    assert_eq!(nodes.metric(2, "larder_fleet_purges_unsynced"), Some(1));
    let asked = nodes.origin.count();
    let status = nodes.node(2).get(&paths[0]);
    let status = status.field("cache-status").unwrap();
    assert!(status.contains("fwd=stale") && status.ends_with("detail=purges-unknown"), "{status}");
    assert_eq!((nodes.hits(2, &paths[1..]), nodes.origin.count() - asked), (0, paths.len()));
    // What it has fetched since then is served without validation until doubt begins again.
    eventually("it is a hit again", || nodes.hits(2, &paths[..1]) == 1);
    eventually("the doubt is renewed", || nodes.hits(2, &paths[..1]) == 0);
    // Responses fetched while the purge was unknown are purged once it is known.
    nodes.store(2, &paths[..1]);
    nodes.start(0);
    (0..3).for_each(|node| nodes.until_sure(node));
    eventually("all is stored again", || nodes.hits(2, &paths) == paths.len());
}

/// Guards against a purge that the old process reads and the new one, which has the store, does not.
#[test]
fn purges_during_an_upgrade_reach_the_new_process() {
    let mut nodes = Nodes::new("1m");
    fs::create_dir_all(nodes.homes[0].path().join("cache/larder")).unwrap();
    nodes.start_all();
    let kept = tagged("kept", 20);
    nodes.store(0, &kept);
    for round in 0..3 {
        let paths = tagged(&format!("x{round}"), 20);
        (0..2).for_each(|node| nodes.store(node, &paths));
        let tag = format!("x{round}");
        let home = &nodes.homes[0];
        let told = thread::scope(|scope| {
            let upgrading = scope.spawn(|| said(home, &["upgrade"]));
            nodes.purge(1, &["--tag", &tag]);
            upgrading.join().unwrap()
        });
        let successor = Successor::of(&told);
        nodes.until_sure(0);
        assert_eq!(nodes.hits(0, &paths), 0, "round {round}: {told}");
        assert_eq!(nodes.hits(0, &kept), kept.len(), "round {round}: {told}");
        // What is purged on the new process reaches the others.
        let other = tagged(&format!("y{round}"), 1);
        nodes.store(1, &other);
        nodes.purge(0, &["--tag", &format!("y{round}")]);
        eventually("it reaches b", || nodes.hits(1, &other) == 0);
        successor.stop();
        nodes.running[0].take().unwrap().wait();
        nodes.start(0);
        nodes.until_sure(0);
        assert_eq!(nodes.hits(0, &kept), kept.len(), "round {round}");
    }
}

#[test]
fn nodes_that_do_not_belong_together_say_so_and_trust_nothing() {
    let mut nodes = Nodes::new("1m");
    fs::write(nodes.homes[1].path().join("secret"), "of somebody else!\n").unwrap();
    // For c itself, the addresses of a and c are swapped: it reads its own log, and a's log under the wrong name.
    let config = nodes.homes[2].path().join("larder.toml");
    let text = fs::read_to_string(&config).unwrap();
    let [a, _, c] = nodes.ports.map(|port| format!("127.0.0.1:{port}"));
    // The random name of the folder can contain any letter.
    fs::write(&config, text.replace(&a, "\0").replace(&c, &a).replace('\0', &c)).unwrap();
    (0..3).for_each(|node| nodes.start(node));
    nodes.until_said(0, "it refuses to send its purges: 403 this is for nodes of the fleet");
    nodes.until_said(2, "it refuses to send its purges: 403 this node is c, not a");
    for node in 0..3 {
        nodes.until_ready(node);
        assert_eq!(nodes.metric(node, "larder_fleet_purges_unsynced"), Some(1));
    }
    let open = nodes.node(0).get("/-/purges?log=0&after=0&wait=0");
    assert_eq!((open.status, open.body.contains("larder purges")), (403, false));
}

#[test]
fn fleets_that_cannot_work_are_refused_with_what_to_do() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let secret = home.path().join("secret");
    fs::write(&secret, "of all three nodes\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let with_secret = format!("secret_file = {secret:?}");
    for (text, told) in [
        ("[fleet]\nnodes = [\"a=h:1\", \"b=h:2\"]", "need a secret"),
        ("[fleet]\nnodes = [\"x=h:1\", \"b=h:2\"]\nsecret_file = \"s\"", "this node is not among the nodes"),
        ("[fleet]\nnodes = [\"a=h:1\", \"b=h:1\"]\nsecret_file = \"s\"", "one name or address"),
        ("[fleet]\nnodes = [\"a=h:1\", \"b\"]", "the node has no port: `b`"),
        ("[fleet]\nnodes = [\"a=h:1\"]\nnode_timeout = \"10ms\"\nsecret_file = \"s\"", "at least 1s"),
        ("[fleet]\nnodes = [\"a=h:1\", \"b=h:2\"]\nsecret_file = \"/none\"", "No such file"),
        ("[fleet]\nsiblings = true", "no nodes are listed"),
        ("[fleet]\nsiblings = true\ndns = \"h:1\"", "need a `log`"),
        ("[fleet]\ndns = \"h:1\"\nlog = \"redis://h\"\nsecret_file = \"s\"", "for siblings only"),
        ("[fleet]\nlisten = \"127.0.0.1:1\"\nkey = \"k\"", "needs `certificate` and `ca_file` in [fleet] as well"),
        (
            "[fleet]\nlisten = \"127.0.0.1:1\"\ncertificate = \"c\"\nkey = \"k\"\nca_file = \"f\"",
            "a certificate, and no nodes",
        ),
        ("[fleet]\nlog = \"redis://h\"", "need a secret"),
        ("[fleet]\nlog = \"redis://a:b@h\"\nsecret_file = \"s\"", "contains credentials"),
        ("[fleet]\nlog_credentials_file = \"s\"", "credentials for a log, and no `log`"),
        (&format!("[fleet]\nnodes = [\"a=h:1\", \"b=h:2\"]\n{with_secret}"), "other users may read it"),
    ] {
        fs::write(&file, format!("node = \"a\"\n{text}\n")).unwrap();
        let output = crate::process::run(&home, &["config", "check", file.to_str().unwrap()]);
        let said = crate::process::errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success() && said.contains(told) && said.contains("help: "), "{text}: {said}");
    }
    assert!(refused(&home, &["config", "check", "none.toml"], 1).contains("none.toml"));
}
