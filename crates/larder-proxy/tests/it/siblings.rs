//! Nodes that share what they store. Guards against two nodes that fetch the same resource, a failed node that takes
//! requests with it, and a purged response that comes back from another node.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use larder_proxy::Mirror;

use crate::support::{Connection, Gate, Received, Reply, eventually, gate::PATIENCE, nodes::Nodes};

fn fresh(received: &Received, number: usize) -> Reply {
    Reply::ok(&["Cache-Control: max-age=600", "ETag: \"1\""], format!("{} {number}", received.target))
}

#[test]
fn each_resource_is_fetched_once_and_stored_by_its_owner() {
    let nodes = Nodes::new(fresh);
    let targets: Vec<String> = (0..60).map(|number| format!("/{number}")).collect();
    for target in &targets {
        let first = nodes.get(0, target, &[]);
        for node in [1, 2, 0] {
            let found = nodes.get(node, target, &[]);
            assert_eq!((found.status, &found.body), (200, &first.body), "{target}");
            assert_eq!(found.field("larder-peer"), None);
        }
    }
    assert_eq!(nodes.origin.count(), targets.len());
    assert!(nodes.origin.received().iter().all(|received| received.field("larder-peer").is_none()));
    let target = nodes.target_of(1, "own");
    let asked = nodes.get(0, &target, &[]);
    assert!(Nodes::member(&asked, "a").unwrap().starts_with("fwd=uri-miss; fwd-status=200"), "{:?}", asked.fields);
    assert!(!Nodes::member(&asked, "a").unwrap().contains("stored"), "{:?}", asked.fields);
    assert!(Nodes::member(&asked, "b").unwrap().contains("stored"), "{:?}", asked.fields);
    assert!(Nodes::member(&nodes.get(2, &target, &[]), "b").unwrap().starts_with("hit"));
    // The node that is asked again has it in memory.
    assert!(Nodes::member(&nodes.get(0, &target, &[]), "a").unwrap().starts_with("hit"));
}

#[test]
fn misses_of_all_nodes_at_once_are_one_fetch_however_slow_the_origin() {
    let gate = Gate::default();
    let held = gate.clone();
    let nodes = Nodes::new(move |_, _| {
        let head = Reply::default().wait(&held);
        head.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\n\r\nslow")
    });
    let target = nodes.target_of(1, "slow");
    let addresses = nodes.addresses.clone();
    let started = Instant::now();
    let asking = (0..9).map(|number| {
        let address = addresses[number % 3];
        let target = target.clone();
        thread::spawn(move || Connection::open(address).request("GET", &target, &[]))
    });
    let asking: Vec<_> = asking.collect();
    // Much longer than a sibling may be silent.
    eventually("all have waited", || nodes.origin.count() == 1 && started.elapsed() > Duration::from_millis(300));
    gate.open();
    asking.into_iter().for_each(|one| assert_eq!(one.join().unwrap().text(), "slow"));
    assert_eq!(nodes.origin.count(), 1);
}

#[test]
fn node_that_is_gone_costs_no_request_and_its_entries_are_there_when_it_is_back() {
    let mut nodes = Nodes::new(fresh);
    let targets: Vec<String> = (0..60).map(|number| format!("/{number}")).collect();
    targets.iter().for_each(|target| drop(nodes.get(0, target, &[])));
    let before = nodes.origin.count();
    nodes.stop(1);
    for target in &targets {
        for node in [2, 0] {
            assert_eq!(nodes.get(node, target, &[]).status, 200, "{target}");
        }
    }
    // Only what the lost node owned was fetched again, and only once.
    let lost = targets.iter().filter(|target| nodes.owner_of(target) == 1).count();
    assert!(nodes.origin.count() - before <= lost, "{} of {lost}", nodes.origin.count() - before);
    let new = nodes.target_of(1, "new");
    assert_eq!(nodes.get(0, &new, &[]).text(), nodes.get(2, &new, &[]).text());
    let before = nodes.origin.count();
    nodes.start(1);
    nodes.until_sure(1);
    targets.iter().for_each(|target| assert_eq!(nodes.get(1, target, &[]).status, 200));
    assert_eq!(nodes.origin.count(), before, "its entries are still there");
    let target = nodes.target_of(1, "later");
    eventually("it is asked again", || {
        let number = nodes.origin.count();
        Nodes::member(&nodes.get(0, &format!("{target}?{number}"), &[]), "b").is_some()
            || Nodes::member(&nodes.get(0, &nodes.target_of(1, &format!("later{number}")), &[]), "b").is_some()
    });
}

#[test]
fn node_that_is_silent_is_passed_by() {
    let mut nodes = Nodes::with(fresh, |config| config.fleet.sibling_patience = Duration::from_millis(50));
    nodes.stop(1);
    // Something accepts its connections and says nothing.
    let silent = TcpListener::bind(nodes.addresses[1]).unwrap();
    let target = nodes.target_of(1, "silent");
    let started = Instant::now();
    assert_eq!(nodes.get(0, &target, &[]).status, 200);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(silent);
}

/// Accepts the connections of a node in its place, and returns the heads of their requests, to which it says `answer`.
fn stand_in(nodes: &Nodes, node: usize, answer: &'static str) -> (mpsc::Receiver<Vec<u8>>, impl FnOnce()) {
    let address = nodes.addresses[node];
    let listener = TcpListener::bind(address).unwrap();
    let (heads, received) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let serving = thread::spawn(move || {
        let mut open = Vec::new();
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            if ends.load(SeqCst) {
                return;
            }
            let mut head = vec![0; 16 << 10];
            let len = socket.read(&mut head).unwrap_or(0);
            head.truncate(len);
            // Whoever waits for the head may have left, and the node may have closed the connection.
            let _ = heads.send(head);
            let _ = socket.write_all(answer.as_bytes());
            open.push(socket);
        }
    });
    let end = move || {
        is_over.store(true, SeqCst);
        drop(TcpStream::connect(address));
        serving.join().unwrap();
    };
    (received, end)
}

/// Guards against a stranger who records a node's request, and with it reads what is stored.
#[test]
fn recorded_request_serves_nobody_who_is_neither_a_client_nor_a_node() {
    let mut nodes = Nodes::with(fresh, |config| {
        config.clients.push("127.0.0.2/32".parse().unwrap());
        config.fleet.sibling_patience = Duration::from_millis(50);
    });
    let target = nodes.target_of(1, "recorded");
    nodes.stop(1);
    let (heads, end) = stand_in(&nodes, 1, "");
    assert_eq!(nodes.get(0, &target, &[]).status, 200);
    let recorded = loop {
        let head = heads.recv_timeout(PATIENCE).unwrap();
        if String::from_utf8_lossy(&head).to_ascii_lowercase().contains("larder-peer: a b ") {
            break head;
        }
    };
    end();
    nodes.start(1);
    nodes.until_sure(1);
    for (from, expected) in [([127, 0, 0, 3], 403), ([127, 0, 0, 1], 200)] {
        let mut connection = Connection::open_from(from.into(), nodes.addresses[1]);
        connection.send(&recorded);
        let mut response = connection.read_head();
        while response.status < 200 {
            response = connection.read_head();
        }
        assert_eq!(response.status, expected, "{from:?}");
    }
}

/// Guards against clients that get another number of interim responses, depending on the node that owns the resource.
#[test]
fn interim_responses_of_the_origin_come_through_another_node() {
    let nodes = Nodes::new(|_, _| {
        let interim = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        Reply::default().send(format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    });
    let target = nodes.target_of(1, "interim");
    let (interim, response) = Connection::open(nodes.addresses[0]).request_with_interim("GET", &target, &[]);
    assert_eq!(interim.iter().map(|head| head.status).collect::<Vec<_>>(), [102, 103]);
    assert_eq!(response.text(), "ok");
    assert!(interim.iter().all(|head| head.field("larder-peer").is_none()));
}

/// Guards against requests that wait for a node that is frozen after it has shown that it is alive.
#[test]
fn frozen_node_holds_no_request_for_long_and_is_not_asked_for_a_while() {
    let mut nodes = Nodes::with(fresh, |config| config.fleet.sibling_patience = Duration::from_millis(50));
    let targets: Vec<String> = (0..4).map(|number| nodes.target_of(1, &format!("frozen{number}"))).collect();
    nodes.stop(1);
    let (heads, end) = stand_in(&nodes, 1, "HTTP/1.1 102 Processing\r\nLarder-Peer: alive\r\n\r\n");
    let started = Instant::now();
    let address = nodes.addresses[0];
    let asking = targets[..2].iter().cloned().map(|target| {
        thread::spawn(move || Connection::open_from([127, 0, 0, 2].into(), address).request("GET", &target, &[]).status)
    });
    asking.collect::<Vec<_>>().into_iter().for_each(|asking| assert_eq!(asking.join().unwrap(), 200));
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    // The node's log of purges is requested, too.
    let is_asked = |head: &Vec<u8>| String::from_utf8_lossy(head).to_ascii_lowercase().contains("larder-peer:");
    let asked = heads.try_iter().filter(is_asked).count();
    targets[2..].iter().for_each(|target| assert_eq!(nodes.get(0, target, &[]).status, 200));
    assert_eq!((asked, heads.try_iter().filter(is_asked).count()), (2, 0));
    end();
}

#[test]
fn answer_of_anybody_else_is_not_taken() {
    let mut nodes = Nodes::new(fresh);
    nodes.stop(1);
    let listener = TcpListener::bind(nodes.addresses[1]).unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let mut request = [0; 4096];
            let _ = std::io::Read::read(&mut socket, &mut request);
            let text =
                b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nLarder-Peer: 00\r\nContent-Length: 5\r\n\r\nwrong";
            let _ = std::io::Write::write_all(&mut socket, text);
        }
    });
    let target = nodes.target_of(1, "wrong");
    for node in [0, 2, 0] {
        assert!(nodes.get(node, &target, &[]).text().starts_with(&target));
    }
}

#[test]
fn only_a_node_with_the_secret_passes_for_one() {
    let nodes = Nodes::with(fresh, |config| config.clients.push("127.0.0.2/32".parse().unwrap()));
    let target = nodes.target_of(1, "x");
    assert!(Nodes::member(&nodes.get(0, &target, &[]), "b").is_some(), "nodes are no clients");
    let count = nodes.origin.count();
    let field = format!("Larder-Peer: b a 00 - a:0:0 {}", "0".repeat(64));
    let url = format!("http://site.example{target}");
    for field in [&*field, "Larder-Peer: b a", "Larder-Peer:"] {
        assert_eq!(Connection::open(nodes.addresses[0]).request("GET", &url, &[field]).status, 403, "{field}");
        // A client's field goes nowhere.
        assert_eq!(nodes.get(0, "/y", &[field]).field("larder-peer"), None);
    }
    assert!(nodes.origin.received()[count..].iter().all(|received| received.field("larder-peer").is_none()));
}

#[test]
fn purged_response_does_not_come_back_from_another_node() {
    let nodes = Nodes::new(fresh);
    for round in 0..5 {
        for owner in 0..3 {
            let target = nodes.target_of(owner, &format!("purged{round}"));
            let old = nodes.get((owner + 1) % 3, &target, &[]).text();
            nodes.purge((owner + 2) % 3, &target);
            // At once, perhaps before the owner knows.
            let new = nodes.get((owner + 2) % 3, &target, &[]).text();
            assert_ne!(old, new, "{target}");
        }
    }
}

#[test]
fn private_responses_and_those_to_credentials_go_past_the_other_nodes() {
    let nodes = Nodes::new(|received, number| {
        let text = format!("{} {number}", received.field("authorization").unwrap_or("-"));
        match received.target.starts_with("/private") {
            true => Reply::ok(&["Cache-Control: private"], text),
            false => Reply::ok(&["Cache-Control: max-age=600"], text),
        }
    });
    let target = nodes.target_of(1, "private");
    let texts: Vec<String> = (0..4).map(|_| nodes.get(0, &target, &[]).text()).collect();
    assert_eq!(texts.iter().collect::<std::collections::HashSet<_>>().len(), 4, "{texts:?}");
    let target = nodes.target_of(1, "credentials");
    let asked = nodes.get(0, &target, &["Authorization: Bearer x"]);
    assert!(asked.text().starts_with("Bearer x") && Nodes::member(&asked, "b").is_none(), "{:?}", asked.fields);
}

#[test]
fn long_bodies_and_parts_of_them_come_from_the_owner() {
    let body = crate::support::body(3_000_000);
    let sent = body.clone();
    let nodes = Nodes::new(move |_, _| Reply::ok(&["Cache-Control: max-age=600", "ETag: \"1\""], &sent));
    let target = nodes.target_of(1, "long");
    assert!(nodes.get(0, &target, &[]).body == body);
    for node in [2, 0, 1] {
        assert!(nodes.get(node, &target, &[]).body == body, "{node}");
        let part = nodes.get(node, &target, &["Range: bytes=1500000-1500009"]);
        assert_eq!((part.status, part.body.as_slice()), (206, &body[1_500_000..1_500_010]), "{node}");
    }
    assert_eq!(nodes.origin.count(), 1);
}

#[test]
fn forward_requests_and_mirrors_go_to_the_owner_too() {
    let nodes = Nodes::with(
        |received, number| {
            let text = format!("{}/link {number}", received.field("host").unwrap());
            Reply::ok(&["Cache-Control: max-age=600", "Content-Type: text/html"], format!("http://{text}"))
        },
        |config| {
            let origin = config.default_origin.take().unwrap();
            let link = larder_proxy::MirrorLink { url: origin.to_short_string(), path: "/m".to_owned() };
            let mirror = Mirror::of_files("/m", origin);
            config.mirrors.push(Mirror { documents: vec!["text/html".to_owned()], links: vec![link], ..mirror });
            config.forward = true;
        },
    );
    let url = |number: usize| format!("http://{}/f/{number}", nodes.origin.address);
    for number in 0..20 {
        let texts: Vec<String> = (0..3).map(|node| nodes.get(node, &url(number), &[]).text()).collect();
        assert!(texts.iter().all(|text| text == &texts[0]), "{texts:?}");
        // The mirror of the same server has the same entry, with its links rewritten by the node that the client asked.
        for node in 0..3 {
            let mirrored = nodes.get(node, &format!("/m/f/{number}"), &[]).text();
            assert!(mirrored.starts_with("http://site.example/m/link"), "{mirrored}");
        }
    }
    assert_eq!(nodes.origin.count(), 20);
}

/// Guards against a client that changes a resource and then gets the old one from another node's store.
#[test]
fn resource_that_was_changed_through_a_node_is_not_served_from_what_its_owner_stored() {
    let nodes = Nodes::new(fresh);
    for owner in 0..3 {
        let target = nodes.target_of(owner, "changed");
        for node in 0..3 {
            let old = nodes.get(node, &target, &[]).text();
            let changed = Connection::open(nodes.addresses[node]).request("POST", &target, &["Content-Length: 0"]);
            assert_eq!(changed.status, 200);
            let new = nodes.get(node, &target, &[]).text();
            assert_ne!(old, new, "{target} through {node}");
            // The owner has the new one.
            assert_eq!(nodes.get(owner, &target, &[]).text(), new);
        }
    }
}

/// Guards against a purge by a tag that the origin's 304 brought, which leaves the copy of another node.
#[test]
fn whole_304_of_the_origin_reaches_the_other_nodes() {
    let nodes = Nodes::new(|received, _| match received.field("if-none-match") {
        Some(_) => Reply::status(
            "304 Not Modified",
            &["Cache-Control: max-age=600", "ETag: \"1\"", "Cache-Tag: new", "X-Also: changed"],
            "",
        ),
        None => Reply::ok(&["Cache-Control: no-cache", "ETag: \"1\"", "Cache-Tag: old"], "page"),
    });
    let target = nodes.target_of(1, "tagged");
    let is_hit = || Nodes::member(&nodes.get(0, &target, &[]), "a").is_some_and(|member| member.starts_with("hit"));
    eventually("node a has the confirmed response", is_hit);
    let hit = nodes.get(0, &target, &[]);
    assert_eq!((hit.field("cache-tag"), hit.field("x-also")), (Some("new"), Some("changed")));
    assert_eq!(nodes.admin(1).request("PURGE", "/", &["Cache-Tag: new"]).status, 200);
    eventually("node a has read the purge", || !is_hit());
}
