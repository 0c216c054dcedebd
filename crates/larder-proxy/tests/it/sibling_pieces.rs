//! Long bodies whose pieces have owners of their own. Guards against a body put together from wrong parts, an origin
//! that has to send the same bytes to several nodes, and a node that alone bears the load of a popular body.

use std::{net::TcpListener, thread};

use crate::support::{Connection, Received, Reply, body, nodes::Nodes};

const PIECE: usize = 1 << 20;
const LEN: usize = 8 * PIECE + 12_345;

/// Nodes that divide bodies into pieces of 1 MiB.
fn nodes_with_pieces(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Nodes {
    Nodes::with(handle, |config| config.fleet.piece_bytes = PIECE as u64)
}

/// Sends the requested part of a body.
fn part_of(body: &[u8], received: &Received, fields: &[&str]) -> Reply {
    let range = received.field("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = range else { return Reply::ok(fields, body) };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap_or(body.len() - 1));
    let last = last.min(body.len() - 1);
    let content_range = format!("Content-Range: bytes {first}-{last}/{}", body.len());
    Reply::status("206 Partial Content", &[fields, &[&content_range]].concat(), &body[first..=last])
}

const DIVISIBLE: &[&str] = &["Cache-Control: max-age=600", "ETag: \"1\"", "Accept-Ranges: bytes"];

fn figure(nodes: &Nodes, node: usize, name: &str) -> u64 {
    let figures = nodes.figures(node);
    let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is not in the figures"))
}

fn fetched(nodes: &Nodes) -> [u64; 3] {
    [0, 1, 2].map(|node| figure(nodes, node, "larder_origin_bytes_total"))
}

#[test]
fn each_node_fetches_and_stores_its_pieces_of_a_long_body() {
    let sent = body(LEN);
    let nodes = nodes_with_pieces(move |received, _| part_of(&sent, received, DIVISIBLE));
    let whole = body(LEN);
    let target = nodes.target_of(1, "long");
    let first = nodes.get(0, &target, &[]);
    assert!((first.status, first.complete) == (200, true) && first.body == whole, "{:?}", first.fields);
    let before = fetched(&nodes);
    assert!(before.iter().all(|bytes| *bytes > PIECE as u64 / 2), "each has pieces: {before:?}");
    // What was under way when a part was enough is fetched again.
    assert!(before.iter().sum::<u64>() < 2 * LEN as u64, "{before:?}");
    for node in [1, 2, 0] {
        let again = nodes.get(node, &target, &[]);
        assert!(again.status == 200 && again.body == whole, "{node} {:?}", again.fields);
        for start in [0, PIECE - 5, 3 * PIECE, LEN - 10] {
            let end = (start + 9).min(LEN - 1);
            let part = nodes.get(node, &target, &[&format!("Range: bytes={start}-{end}")]);
            assert!(part.status == 206 && part.body == whole[start..=end], "{node} {start}");
        }
    }
    assert_eq!(fetched(&nodes), before, "all pieces are stored by their owners");
}

#[test]
fn clients_of_all_nodes_at_once_cost_the_origin_a_long_body_once() {
    let sent = body(LEN);
    let nodes = nodes_with_pieces(move |received, _| part_of(&sent, received, DIVISIBLE));
    let target = nodes.target_of(1, "long");
    let whole = body(LEN);
    thread::scope(|scope| {
        for number in 0..6 {
            let address = nodes.addresses[number % 3];
            let target = &target;
            let whole = &whole;
            let client = move || Connection::open_from([127, 0, 0, 2].into(), address);
            scope.spawn(move || assert!(client().request("GET", target, &[]).body == *whole, "{number}"));
        }
    });
    // Pieces that two nodes request before either has them are fetched twice.
    let fetched: u64 = fetched(&nodes).iter().sum();
    assert!(fetched < 3 * LEN as u64, "{fetched}");
}

#[test]
fn node_that_fails_within_a_long_body_costs_no_client_its_response() {
    let sent = body(LEN);
    let mut nodes = nodes_with_pieces(move |received, _| part_of(&sent, received, DIVISIBLE));
    let whole = body(LEN);
    let target = nodes.target_of(1, "long");
    assert!(nodes.get(0, &target, &[]).body == whole);
    nodes.stop(2);
    // Something accepts the connections of the third node, reads requests and breaks off.
    let listener = TcpListener::bind(nodes.addresses[2]).unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let _ = std::io::Read::read(&mut socket, &mut [0; 4096]);
        }
    });
    for node in [0, 1] {
        let response = nodes.get(node, &target, &[]);
        assert!(response.complete && response.body == whole, "{node} {:?}", response.fields);
    }
}

/// Guards against an origin that is asked for each piece, sends the whole body each time, and so sends it many times
/// over.
#[test]
fn origin_that_ignores_ranges_sends_a_long_body_a_few_times_at_most() {
    let sent = body(LEN);
    let nodes = nodes_with_pieces(move |_, _| Reply::ok(DIVISIBLE, &sent));
    let target = nodes.target_of(1, "long");
    let whole = body(LEN);
    for node in [0, 1, 2, 0, 1, 2] {
        assert!(nodes.get(node, &target, &[]).body == whole, "{node}");
    }
    assert!(nodes.origin.count() <= 9, "{}", nodes.origin.count());
}

#[test]
fn body_that_changed_is_never_mixed_with_the_old_one() {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };
    let version = Arc::new(AtomicUsize::new(1));
    let current = Arc::clone(&version);
    let nodes = nodes_with_pieces(move |received, _| {
        let number = current.load(SeqCst);
        let tag = format!("ETag: \"{number}\"");
        let sent = vec![b'0' + number as u8; LEN];
        let fields = ["Cache-Control: max-age=600", "Accept-Ranges: bytes", &tag];
        match received.field("if-range") {
            Some(wanted) if !tag.ends_with(wanted) => Reply::ok(&fields, &sent),
            _ => part_of(&sent, received, &fields),
        }
    });
    let target = nodes.target_of(1, "long");
    assert!(nodes.get(0, &target, &[]).body == vec![b'1'; LEN]);
    version.store(2, SeqCst);
    // One node gets the new one, and the others still have the old one, which is fresh.
    let reload = nodes.get(2, &target, &["Cache-Control: no-cache"]);
    assert!(reload.complete && reload.body == vec![b'2'; LEN], "{:?}", reload.fields);
    for node in [0, 1, 2, 0, 1, 2] {
        let response = nodes.get(node, &target, &[]);
        assert!(response.body.iter().all(|byte| *byte == response.body[0]), "{node}");
        assert!(!response.complete || response.body.len() == LEN, "{node}");
    }
    let last = nodes.get(2, &target, &[]);
    assert!(last.complete && last.body == vec![b'2'; LEN], "{:?}", last.fields);
}

#[test]
fn purge_removes_all_pieces() {
    let nodes = nodes_with_pieces(|received, _| part_of(&body(LEN), received, DIVISIBLE));
    let target = nodes.target_of(1, "long");
    assert!(nodes.get(0, &target, &[]).body == body(LEN));
    let before = fetched(&nodes);
    nodes.purge(2, &target);
    assert!(nodes.get(2, &target, &[]).body == body(LEN));
    let new: u64 = fetched(&nodes).iter().zip(before).map(|(now, before)| now - before).sum();
    assert!(new >= LEN as u64, "nothing of the old response was used: {new}");
}
