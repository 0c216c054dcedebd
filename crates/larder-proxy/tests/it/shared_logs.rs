//! Purges over a stream of Redis or NATS. Guards against a response that was reported purged and is served by a node
//! that was away, or after the program that keeps the stream lost some of it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use larder_proxy::LogSystem;

use crate::support::{Received, Reply, Response, eventually, nodes::Nodes, stream_server::StreamServer};

const SYSTEMS: [LogSystem; 2] = [LogSystem::Redis, LogSystem::Nats];

fn tagged(received: &Received, number: usize) -> Reply {
    let tag = received.target.split('/').nth(1).unwrap();
    let fields = ["Cache-Control: max-age=600", "ETag: \"1\"", &format!("Surrogate-Key: {tag}")];
    Reply::ok(&fields, format!("{} {number}", received.target))
}

fn nodes_on(server: &StreamServer) -> Nodes {
    let url = server.url();
    Nodes::with(tagged, move |config| {
        config.fleet.log = Some(url.parse().unwrap());
        config.fleet.shares_entries = false;
        // No test waits for it: what the nodes do not know must show at once.
        config.fleet.node_timeout = Duration::from_secs(60);
    })
}

fn targets(tag: &str) -> Vec<String> {
    (0..10).map(|number| format!("/{tag}/{number}")).collect()
}

fn is_hit(response: &Response) -> bool {
    response.field("cache-status").is_some_and(|status| status.contains("; hit"))
}

fn hits(nodes: &Nodes, node: usize, tag: &str) -> usize {
    targets(tag).iter().filter(|target| is_hit(&nodes.get(node, target, &[]))).count()
}

fn store(nodes: &Nodes, node: usize, tags: &[&str]) {
    tags.iter().for_each(|tag| eventually("all is stored", || hits(nodes, node, tag) == 10));
}

fn purge(nodes: &Nodes, node: usize, tag: &str) -> Response {
    let field = format!("Surrogate-Key: {tag}");
    nodes.admin(node).request("PURGE", "http://site.example/", &[&field])
}

/// Waits until nothing with this tag is served without a request to the origin.
fn until_gone(nodes: &Nodes, node: usize, tag: &str) {
    let targets = targets(tag);
    eventually("the purge is applied", || !is_hit(&nodes.get(node, &targets[0], &[])));
    let hits = targets[1..].iter().filter(|target| is_hit(&nodes.get(node, target, &[]))).count();
    assert_eq!(hits, 0, "{tag}");
}

#[test]
fn node_that_was_away_serves_nothing_that_was_purged_meanwhile() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let mut nodes = nodes_on(&server);
        (0..3).for_each(|node| store(&nodes, node, &["first", "second", "kept"]));
        nodes.stop(2);
        let begun = Instant::now();
        assert_eq!(purge(&nodes, 0, "first").status, 200);
        assert_eq!(hits(&nodes, 0, "first"), 0);
        until_gone(&nodes, 1, "first");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(purge(&nodes, 1, "second").status, 200);
        nodes.start(2);
        assert_eq!((hits(&nodes, 2, "first"), hits(&nodes, 2, "second")), (0, 0), "{system:?}");
        nodes.until_sure(2);
        assert_eq!(hits(&nodes, 2, "kept"), 10, "{system:?}");
        // A restarted node does not apply its own purges again.
        store(&nodes, 1, &["second"]);
        nodes.stop(1);
        nodes.start(1);
        nodes.until_sure(1);
        assert_eq!(hits(&nodes, 1, "second"), 10, "{system:?}");
        assert_eq!((server.count("purges"), server.count("unknown")), (2, 0));
    }
}

/// Guards against a purge that is acknowledged although only one node knows it.
#[test]
fn purge_during_an_outage_of_the_log_is_not_acknowledged_and_arrives_later() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let mut nodes = nodes_on(&server);
        (0..2).for_each(|node| store(&nodes, node, &["x", "kept"]));
        server.stop();
        let refused = purge(&nodes, 0, "x");
        let text = refused.text();
        assert_eq!(refused.status, 503, "{text}");
        assert!(text.contains("on this node only") && text.contains(&server.url()), "{text}");
        assert_eq!((hits(&nodes, 0, "x"), hits(&nodes, 1, "kept")), (0, 10));
        // A crash of the node in between does not lose it.
        nodes.stop(0);
        nodes.start(0);
        assert!(nodes.figures(0).contains("larder_fleet_purges_unsynced 1"));
        server.resume();
        until_gone(&nodes, 1, "x");
        (0..2).for_each(|node| nodes.until_sure(node));
        assert_eq!(server.count("purges"), 1);
        assert_eq!((hits(&nodes, 1, "kept"), server.count("unknown")), (10, 0), "{system:?}");
        assert_eq!(purge(&nodes, 1, "kept").status, 200);
    }
}

/// Guards against a program that loses its last entries, and a node that cannot know of them.
#[test]
fn lost_end_of_the_log_is_noticed_by_nodes_that_had_read_it_and_told_to_others() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let mut nodes = nodes_on(&server);
        (0..3).for_each(|node| store(&nodes, node, &["x", "kept"]));
        assert_eq!(purge(&nodes, 0, "before").status, 200);
        nodes.until_read(2, server.position());
        nodes.stop(2);
        assert_eq!(purge(&nodes, 0, "x").status, 200);
        server.stop();
        server.lose_last(1);
        server.resume();
        eventually("a node has noticed", || server.count("unknown") > 0);
        nodes.start(2);
        nodes.until_sure(2);
        assert_eq!((hits(&nodes, 2, "x"), hits(&nodes, 2, "kept")), (0, 0), "{system:?}");
        // What it has validated is used again.
        store(&nodes, 2, &["x", "kept"]);
    }
}

#[test]
fn node_whose_position_was_dropped_validates_all_and_keeps_others_from_nothing() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let mut nodes = nodes_on(&server);
        (0..3).for_each(|node| store(&nodes, node, &["x", "kept"]));
        nodes.stop(2);
        for tag in ["x", "y", "z"] {
            assert_eq!(purge(&nodes, 0, tag).status, 200);
        }
        nodes.until_read(1, server.position());
        server.trim(1);
        nodes.start(2);
        nodes.until_sure(2);
        assert_eq!((hits(&nodes, 2, "x"), hits(&nodes, 2, "kept")), (0, 0), "{system:?}");
        assert_eq!((hits(&nodes, 1, "kept"), server.count("unknown")), (10, 0), "{system:?}");
        // The program loses everything.
        store(&nodes, 2, &["kept"]);
        nodes.stop(2);
        server.stop();
        server.trim(0);
        server.lose_last(0);
        server.resume();
        nodes.start(2);
        nodes.until_sure(2);
        assert_eq!(hits(&nodes, 2, "kept"), 0, "{system:?}");
        eventually("others have noticed", || hits(&nodes, 1, "kept") == 10 && server.count("start") > 0);
    }
}

/// Guards against an entry that hides a purge because this node cannot read it.
#[test]
fn entry_of_a_stranger_purges_nothing_and_makes_all_nodes_validate() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let nodes = nodes_on(&server);
        store(&nodes, 1, &["x"]);
        nodes.until_read(1, server.position());
        let before = nodes.origin.count();
        server.add(b"larder shared log 1\npurges a 00000000000000ab 8 00\n8 hard 0 tag x\n0000");
        until_gone(&nodes, 1, "x");
        assert!(nodes.origin.received()[before..].iter().all(|it| it.field("if-none-match").is_some()), "{system:?}");
        assert_eq!(purge(&nodes, 0, "x").status, 200);
    }
}

fn skipped(nodes: &Nodes, node: usize) -> u64 {
    let figures = nodes.figures(node);
    let line = figures.lines().find_map(|line| line.strip_prefix("larder_fleet_log_skipped_total "));
    line.unwrap().parse().unwrap()
}

/// Guards against a stranger who may write to the stream, and repeats the purges of others as often as they like.
#[test]
fn entry_that_is_appended_again_purges_nothing_also_after_a_restart() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let mut nodes = nodes_on(&server);
        store(&nodes, 1, &["x"]);
        assert_eq!(purge(&nodes, 0, "x").status, 200);
        until_gone(&nodes, 1, "x");
        store(&nodes, 1, &["x"]);
        let recorded = server.last("purges");
        server.add(&recorded);
        nodes.until_read(1, server.position());
        assert_eq!((hits(&nodes, 1, "x"), skipped(&nodes, 1)), (10, 1), "{system:?}");
        nodes.stop(1);
        server.add(&recorded);
        nodes.start(1);
        nodes.until_sure(1);
        nodes.until_read(1, server.position());
        assert_eq!((hits(&nodes, 1, "x"), skipped(&nodes, 1)), (10, 1), "{system:?}");
        assert_eq!(purge(&nodes, 0, "x").status, 200);
        until_gone(&nodes, 1, "x");
    }
}

/// Guards against one entry that no node can read, after which none serves without validation any more.
#[test]
fn long_entry_of_a_stranger_is_skipped_and_counted() {
    for system in SYSTEMS {
        let server = StreamServer::start(system);
        let nodes = nodes_on(&server);
        store(&nodes, 1, &["x", "kept"]);
        server.add(&vec![b'x'; 5_000_000]);
        nodes.until_read(1, server.position());
        assert_eq!((hits(&nodes, 1, "x"), skipped(&nodes, 1)), (10, 1), "{system:?}");
        assert!(nodes.figures(1).contains("larder_fleet_purges_unsynced 0"), "{system:?}");
        assert_eq!(purge(&nodes, 0, "x").status, 200);
        until_gone(&nodes, 1, "x");
        assert_eq!(hits(&nodes, 1, "kept"), 10, "{system:?}");
    }
}

#[test]
fn credentials_are_sent_and_wrong_ones_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    for system in SYSTEMS {
        for (text, is_right) in [("right horse", true), ("user:right horse", true), ("wrong", false)] {
            let server = StreamServer::with_password(system, Some("right horse"));
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            let url = server.url();
            let path = file.clone();
            let change = move |config: &mut larder_proxy::ProxyConfig| {
                config.fleet.log = Some(url.parse().unwrap());
                config.fleet.log_credentials_file = Some(path.clone());
            };
            let nodes = Nodes::started(tagged, change);
            if is_right {
                nodes.until_sure(0);
                assert_eq!(purge(&nodes, 0, "x").status, 200, "{text}");
                continue;
            }
            let told = purge(&nodes, 0, "x").text();
            assert!(told.contains("refuses") && !told.contains("horse"), "{told}");
        }
    }
}
