//! Nodes whose clocks or rules differ. Guards against nodes that look for an entry at different nodes or under
//! different keys, and answer each other with what they should not, while nobody notices.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use larder_http::key_rules::KeyRule;
use ring::hmac;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
};

use crate::support::{
    Received, Reply, eventually,
    nodes::{NAMES, Nodes},
    relay::{Cut, relayed_nodes},
};

fn fresh(received: &Received, number: usize) -> Reply {
    Reply::ok(&["Cache-Control: max-age=600", "ETag: \"1\""], format!("{} {number}", received.target))
}

/// Returns how many requests a node has seen refused for this reason.
fn differences(nodes: &Nodes, node: usize, reason: &str) -> u64 {
    let figures = nodes.figures(node);
    let name = format!("larder_sibling_differences_total{{reason=\"{reason}\"}} ");
    figures.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// Guards against nodes that look for an entry at different nodes, or under different keys, while nobody notices.
#[test]
fn nodes_whose_rules_differ_say_so_and_do_without_each_other() {
    let nodes = Nodes::with(fresh, |config| {
        if config.fleet.node.as_deref() == Some("b") {
            config.fleet.piece_bytes = 8 << 20;
        }
    });
    let target = nodes.target_of(1, "differs");
    for node in [0, 2, 0] {
        let found = nodes.get(node, &target, &[]);
        assert_eq!((found.status, Nodes::member(&found, "b")), (200, None), "{node}");
    }
    for node in [0, 1, 2] {
        assert!(differences(&nodes, node, "rules") > 0, "{node}");
        assert_eq!(differences(&nodes, node, "clock"), 0, "{node}");
    }
    // The others still share.
    let target = nodes.target_of(2, "shared");
    assert!(Nodes::member(&nodes.get(0, &target, &[]), "c").is_some());
}

/// Guards against a difference that nobody sees until clients come.
#[test]
fn nodes_whose_rules_differ_say_so_at_their_start() {
    let nodes = Nodes::with(fresh, |config| {
        if config.fleet.node.as_deref() == Some("b") {
            config.policy.cache.http.key_rules.push(KeyRule::joining_blobs("http://site.example").unwrap());
        }
    });
    for node in [0, 1, 2] {
        eventually("it has noticed", || differences(&nodes, node, "rules") > 0);
        assert_eq!(differences(&nodes, node, "clock"), 0, "{node}");
    }
    assert_eq!(nodes.origin.count(), 0);
}

/// Changes the time in a node's request to another, and its code: the clock of node `a` is ahead of the others.
fn with_clock_of_a(request: &mut Vec<u8>) -> Option<Cut> {
    let text = String::from_utf8(request.clone()).ok()?;
    let target = text.split(' ').nth(1)?;
    let line = text.lines().find(|line| line.to_ascii_lowercase().starts_with("larder-peer: "))?;
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    let &[from, to, time, rules, nonce, mark, state, purges, _] = &words[..] else { panic!("{line}") };
    let time: i64 = time.parse().unwrap();
    let shift = 45 * (i64::from(from == "a") - i64::from(to == "a"));
    let time = (time + shift).to_string();
    let signed = ["sibling request", from, to, &time, rules, nonce, mark, state, purges, target];
    let joined: Vec<u8> =
        signed.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes(), part.as_bytes()].concat()).collect();
    let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef"), &joined);
    let code: String = code.as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
    let changed = format!("larder-peer: {from} {to} {time} {rules} {nonce} {mark} {state} {purges} {code}");
    *request = text.replace(line, &changed).into_bytes();
    None
}

/// The warnings of nodes that do not share entries because of their clocks, by the node that is warned of.
#[derive(Clone, Default)]
struct ClockWarnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for ClockWarnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Vec::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| fields.push((field.name(), format!("{value:?}"))));
        let of = |name: &str| fields.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        if of("why").contains("its clock differs by more than 30 s") {
            self.0.lock().unwrap().push(of("node").trim_matches('"').to_owned());
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Guards against a node with a wrong clock that answers with what it should not, or that nobody notices.
#[test]
fn nodes_whose_clocks_differ_log_it_once_count_it_and_do_without_each_other() {
    let warnings = ClockWarnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let (nodes, _relays) = relayed_nodes(fresh, with_clock_of_a, |_| {});
    for node in [0, 1, 2] {
        eventually("it has noticed", || differences(&nodes, node, "clock") > 0);
    }
    for (from, owner) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
        for kind in ["first", "second"] {
            let found = nodes.get(from, &nodes.target_of(owner, kind), &[]);
            assert_eq!((found.status, Nodes::member(&found, NAMES[owner])), (200, None), "{from} {owner}");
        }
    }
    // The others still share.
    let target = nodes.target_of(2, "shared");
    assert!(Nodes::member(&nodes.get(1, &target, &[]), "c").is_some());
    for node in [0, 1, 2] {
        assert_eq!(differences(&nodes, node, "rules"), 0, "{node}");
    }
    let mut warned = warnings.0.lock().unwrap().clone();
    warned.sort();
    // By nodes b and c of a, and by a of each of them.
    assert_eq!(warned, ["a", "a", "b", "c"]);
}
