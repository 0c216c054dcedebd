//! The hints that the store receives with a response: its site and its group.

use std::{net::IpAddr, time::Duration};

use larder_store::Hints;

use crate::support::{Connection, Fixture, Received, Reply, eventually};

#[test]
fn page_and_what_it_brings_in_are_one_group_of_one_client() {
    let fixture = fixture(Duration::from_secs(60));
    let one = view(&fixture, "/one", client(1));
    let other = view(&fixture, "/other", client(2));
    assert_ne!(one, other);
    // Another view of the same page by the same client, within the window.
    let again = fetch(&fixture, "/one/late.png", client(1), "/one/page.html");
    assert_eq!(again.group, one);
    // The same by another client, which received the page from the cache.
    let foreign = fetch(&fixture, "/one/foreign.png", client(2), "/one/page.html");
    assert!(foreign.group != 0 && foreign.group != one && foreign.group != other);
}

#[test]
fn group_ends_with_its_window() {
    let fixture = fixture(Duration::from_millis(1));
    let first = fetch(&fixture, "/0.png", client(1), "/page.html").group;
    let mut number = 0;
    eventually("another group has begun", || {
        number += 1;
        fetch(&fixture, &format!("/{number}.png"), client(1), "/page.html").group != first
    });
}

#[test]
fn response_that_nothing_refers_to_is_in_no_group() {
    let fixture = fixture(Duration::from_secs(60));
    assert_eq!(fetch(&fixture, "/alone.png", client(1), "").group, 0);
    assert_ne!(fetch(&fixture, "/alone.html", client(1), "").group, 0);
    let off = self::fixture(Duration::ZERO);
    assert_eq!(fetch(&off, "/a.html", client(1), "").group, 0);
    assert_eq!(fetch(&off, "/a.png", client(1), "/a.html").group, 0);
}

#[test]
fn validated_response_joins_the_page_it_was_validated_for() {
    let fixture = Fixture::with(
        |received, _| match received.field("if-none-match") {
            Some(_) => Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "ETag: \"1\""], ""),
            None => Reply::ok(&["Cache-Control: max-age=0", "ETag: \"1\""], "image"),
        },
        |config| config.policy.cache.group_window = Duration::from_secs(60),
    );
    let before = fetch(&fixture, "/a.png", client(1), "/one.html").group;
    let mut after = before;
    eventually("the new head is stored", || {
        after = fetch(&fixture, "/a.png", client(1), "/two.html").group;
        after != before
    });
    let mate = fetch(&fixture, "/b.png", client(1), "/two.html").group;
    assert_eq!(after, mate);
}

#[test]
fn site_is_the_host_for_heads_markers_and_chunks_alike() {
    let fixture = Fixture::new(|received, _| match received.target.as_str() {
        "/long" => Reply::ok(&["Cache-Control: max-age=60"], vec![b'x'; 3 << 20]),
        "/varies" => Reply::ok(&["Cache-Control: max-age=60", "Vary: Accept-Language"], "x"),
        _ => Reply::ok(&["Cache-Control: max-age=60"], "x"),
    });
    let sites: Vec<u64> =
        ["/", "/long", "/varies"].into_iter().map(|target| fetch(&fixture, target, client(1), "").site).collect();
    assert!(sites[0] != 0 && sites.iter().all(|site| *site == sites[0]), "{sites:?}");
}

/// Starts a fixture in which every response is storable, and a path that ends in `.html` is a page.
fn fixture(window: Duration) -> Fixture {
    let answer = |received: &Received, _: usize| {
        let kind = if received.target.ends_with(".html") { "text/html; charset=utf-8" } else { "image/png" };
        Reply::ok(&["Cache-Control: max-age=60", &format!("Content-Type: {kind}")], &received.target)
    };
    Fixture::with(answer, |config| config.policy.cache.group_window = window)
}

fn client(number: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, number])
}

/// Requests a page with a style sheet's picture and two other objects. Checks that all are in one group, and returns
/// it.
fn view(fixture: &Fixture, directory: &str, client: IpAddr) -> u64 {
    let page = format!("{directory}/page.html");
    let group = fetch(fixture, &page, client, "").group;
    assert_ne!(group, 0);
    for name in ["1.png", "2.png", "frame.html"] {
        assert_eq!(fetch(fixture, &format!("{directory}/{name}"), client, &page).group, group, "{name}");
    }
    let inner = fetch(fixture, &format!("{directory}/inner.png"), client, &format!("{directory}/frame.html"));
    assert_eq!(inner.group, group);
    group
}

/// Requests `target` on its own connection, and returns the hints that the store received.
fn fetch(fixture: &Fixture, target: &str, client: IpAddr, referer: &str) -> Hints {
    let mut connection = Connection::open_from(client, fixture.proxy.local_addrs()[0]);
    let referer = format!("Referer: http://site.example{referer}");
    let fields = [referer.as_str()];
    let fields: &[&str] = if referer.ends_with("example") { &[] } else { &fields };
    assert_eq!(connection.request("GET", target, fields).status, 200);
    let key = fixture.key(target);
    let store = fixture.store.as_ref().unwrap();
    let mut hints = None;
    eventually("the response is stored", || {
        hints = wait(store.get(&key)).unwrap().map(|reader| reader.hints());
        hints.is_some()
    });
    hints.unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
