//! Copies of other nodes' responses on this node's disk. Guards against copies that displace the node's own entries,
//! and a copy that survives a purge.

use crate::support::{Received, Reply, Response, body, nodes::Nodes};

/// A node of which nothing stays in memory, so that each hit is from its disk.
fn nodes_without_memory(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Nodes {
    Nodes::with(handle, |config| config.hot_bytes = 0)
}

fn sized(received: &Received, number: usize) -> Reply {
    let len = received.target.rsplit('-').next().and_then(|len| len.parse().ok()).unwrap_or(100);
    let text = [format!("{} {number} ", received.target).into_bytes(), body(len)].concat();
    Reply::ok(&["Cache-Control: max-age=600", "ETag: \"1\""], text)
}

/// Targets whose bodies have this length, which the node owns.
fn targets_of(nodes: &Nodes, node: usize, len: usize) -> impl Iterator<Item = String> {
    let targets = (0..).map(move |number| format!("/{number}-{len}"));
    targets.filter(move |target| nodes.owner_of(target) == node)
}

/// Lets a node store 3 MB of its own, which is credit for 150 KB of copies.
fn store_own(nodes: &Nodes, node: usize) {
    targets_of(nodes, node, 100_000).take(30).for_each(|target| drop(nodes.get(node, &target, &[])));
}

fn is_hit(response: &Response) -> bool {
    Nodes::member(response, "a").is_some_and(|member| member.starts_with("hit"))
}

fn is_stored(response: &Response) -> bool {
    Nodes::member(response, "a").is_some_and(|member| member.contains("stored"))
}

#[test]
fn popular_response_of_another_node_is_stored_too_if_its_share_of_the_disk_allows() {
    let nodes = nodes_without_memory(sized);
    let popular = targets_of(&nodes, 1, 50_000).next().unwrap();
    let asked: Vec<Response> = (0..3).map(|_| nodes.get(0, &popular, &[])).collect();
    assert!(!asked.iter().any(|response| is_hit(response) || is_stored(response)), "nothing is written yet");
    store_own(&nodes, 0);
    let once = targets_of(&nodes, 1, 50_001).next().unwrap();
    assert!(!is_stored(&nodes.get(0, &once, &[])), "requested once");
    let stored = nodes.get(0, &popular, &[]);
    assert!(is_stored(&stored), "{:?}", stored.fields);
    let hit = nodes.get(0, &popular, &[]);
    assert!(is_hit(&hit) && hit.body == asked[0].body, "{:?}", hit.fields);
    // Another 150 KB would be more than its share.
    let large = targets_of(&nodes, 2, 150_000).next().unwrap();
    for _ in 0..4 {
        let response = nodes.get(0, &large, &[]);
        assert!(response.status == 200 && !is_stored(&response) && !is_hit(&response), "{:?}", response.fields);
    }
    let copied = format!("larder_sibling_copy_bytes_total {}\n", hit.body.len());
    assert!(nodes.figures(0).contains(&copied), "{copied}");
}

#[test]
fn purge_removes_copies_on_the_disk_of_each_node() {
    let mut nodes = nodes_without_memory(sized);
    store_own(&nodes, 0);
    let targets: Vec<String> = targets_of(&nodes, 1, 1_000).take(2).collect();
    let old: Vec<String> = targets.iter().map(|target| nodes.get(0, target, &[]).text()).collect();
    targets.iter().for_each(|target| assert!(is_stored(&nodes.get(0, target, &[])), "{target}"));
    nodes.purge(2, &targets[0]);
    crate::support::eventually("the purge is known", || nodes.get(0, &targets[0], &[]).text() != old[0]);
    // A copy whose node was away when it was purged.
    nodes.stop(0);
    nodes.purge(2, &targets[1]);
    nodes.start(0);
    nodes.until_sure(0);
    assert_ne!(nodes.get(0, &targets[1], &[]).text(), old[1]);
}

/// Guards against chunks of a long body that fill the disk of a node that passes them on.
#[test]
fn parts_of_long_bodies_of_another_node_are_stored_by_it_alone() {
    let nodes = nodes_without_memory(sized);
    let target = targets_of(&nodes, 1, 3_000_000).next().unwrap();
    let whole = nodes.get(1, &target, &[]).body;
    for start in [0, 1_500_000, 2_500_000, 1_500_000] {
        let part = nodes.get(0, &target, &[&format!("Range: bytes={start}-{}", start + 400_000)]);
        assert!(part.status == 206 && part.body == whole[start..=start + 400_000], "{start}");
        assert!(!is_stored(&part) && !is_hit(&part), "{:?}", part.fields);
    }
    assert!(nodes.figures(0).contains("larder_sibling_copy_bytes_total 0\n"));
    assert_eq!(nodes.origin.count(), 1);
}
