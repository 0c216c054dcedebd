//! A parent: origins are contacted through another proxy, and its credentials are sent to no other server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use larder_http::{
    key::primary_key,
    owner::{OwnerNode, OwnerTable, slot_of},
};
use larder_proxy::{Balance, Direct, DirectFallback, Parent, Parents, Proxy, ProxyConfig, RunningProxy};

use crate::support::{Connection, Fixture, Origin, Received, Reply, eventually, request_text};

/// Answers with the request as received by a proxy or server, or, in a tunnel, with the bytes that arrive.
fn parent(received: &Received, _: usize) -> Reply {
    if received.field("proxy-authorization") != Some("Basic bWU6c2VjcmV0") {
        let challenge = "Proxy-Authenticate: Basic realm=\"parent\"";
        return Reply::status("407 Proxy Authentication Required", &[challenge], "");
    }
    match received.method.as_str() {
        "CONNECT" => Reply::head("200 OK", &[]).echo(),
        _ => Reply::ok(
            &["Cache-Control: max-age=60"],
            format!("{} for {}", received.target, received.field("host").unwrap()),
        ),
    }
}

/// Starts a forward proxy with this one as its parent.
fn below(parent: &Origin, user: &str, change: impl FnOnce(&mut ProxyConfig)) -> RunningProxy {
    let mut config = ProxyConfig { default_origin: None, forward: true, ..Fixture::config(parent) };
    let url = format!("http://{user}{}", parent.address);
    let except = vec![Direct::Hosts("127.0.0.1".parse().unwrap())];
    config.parents = Parents { except, ..url.parse::<Parent>().unwrap().into() };
    change(&mut config);
    Proxy::start(config, None).unwrap()
}

fn get(proxy: &RunningProxy, method: &str, target: &str) -> crate::support::Response {
    let mut connection = Connection::open(proxy.local_addrs()[0]);
    connection.send(request_text(method, target, &["Proxy-Authorization: Basic eDp5"]));
    connection.read_response(method)
}

#[test]
fn request_goes_to_the_parent_in_absolute_form_and_is_kept() {
    let origin = Origin::start(parent);
    let proxy = below(&origin, "me:secret@", |_| {});
    for _ in 0..2 {
        let answer = get(&proxy, "GET", "http://far.example/a?b");
        assert_eq!(answer.text(), "http://far.example:80/a?b for far.example");
    }
    let asked: Vec<_> = origin.received();
    assert!(
        asked.len() <= 2
            && asked.iter().all(|asked| asked.field("proxy-authorization").unwrap().ends_with("bWU6c2VjcmV0"))
    );
}

#[test]
fn tunnel_leads_through_the_parent() {
    let origin = Origin::start(parent);
    let proxy = below(&origin, "me:secret@", |_| {});
    let mut connection = Connection::open(proxy.local_addrs()[0]);
    connection.send("CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\n");
    assert_eq!(connection.read_head().status, 200);
    connection.send("hello");
    assert_eq!(connection.read_exact(5), b"hello");
    let asked = &origin.received()[0];
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("CONNECT", "far.example:443"));
}

#[test]
fn what_the_parent_says_of_us_is_not_said_to_clients() {
    let origin = Origin::start(parent);
    let proxy = below(&origin, "", |_| {});
    for (method, target) in [("GET", "http://far.example/"), ("CONNECT", "far.example:443")] {
        let failed = get(&proxy, method, target);
        assert_eq!((failed.status, failed.field("proxy-authenticate")), (502, None), "{method}");
        let status = failed.field("proxy-status").unwrap();
        assert!(status.contains("error=proxy_configuration_error"), "{status}");
        assert!(status.contains(&origin.address.to_string()), "{status}");
    }
}

#[test]
fn some_hosts_and_sites_are_asked_directly() {
    let over = Origin::start(parent);
    let direct = Origin::start(|received, _| Reply::ok(&[], received.target.clone()));
    let address = direct.address;
    let proxy =
        below(&over, "me:secret@", |config| config.default_origin = Some(format!("http://{address}").parse().unwrap()));
    assert_eq!(get(&proxy, "GET", &format!("http://{address}/a")).text(), "/a");
    assert_eq!(get(&proxy, "GET", "/b").text(), "/b");
    assert_eq!((direct.count(), over.count()), (2, 0));
    assert!(direct.received().iter().all(|received| received.field("proxy-authorization").is_none()));
}

#[test]
fn site_can_have_a_parent_of_its_own() {
    let over = Origin::start(parent);
    let url = format!("http://me:secret@{}", over.address);
    let fixture = Fixture::with(parent, |config| {
        let origin = config.default_origin.take().unwrap();
        config.default_origin = Some(origin.by_parent(url.parse().unwrap()));
    });
    let answer = fixture.get("/a", &[]);
    assert_eq!(answer.text(), format!("http://{}/a for site.example", fixture.origin.address));
    assert_eq!((fixture.origin.count(), over.count()), (0, 1));
}

#[test]
fn addresses_that_clients_may_not_reach_are_not_reached_through_a_parent() {
    let origin = Origin::start(parent);
    let proxy = below(&origin, "me:secret@", |config| {
        config.targets = larder_proxy::TargetRules::default();
        config.parents.except.clear();
    });
    for (method, target) in [("GET", "http://169.254.169.254/"), ("CONNECT", "10.0.0.1:443")] {
        assert_eq!(get(&proxy, method, target).status, 403, "{method}");
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn parent_that_is_not_there_is_named() {
    let gone = Origin::start(parent);
    let address = gone.address;
    let proxy = below(&gone, "me:secret@", |_| {});
    drop(gone);
    let failed = get(&proxy, "CONNECT", "far.example:443");
    let status = failed.field("proxy-status").unwrap();
    assert!(status.contains(&address.to_string()) && !status.contains("secret"), "{status}");
    assert!(matches!(failed.status, 502 | 504), "{}", failed.status);
}

#[test]
fn operator_is_told_which_parent_and_which_list_decide() {
    let origin = Origin::start(parent);
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    std::fs::write(&list, "ads.example\n").unwrap();
    let proxy = below(&origin, "me:secret@", |config| {
        config.admin = Some(([127, 0, 0, 1], 0).into());
        config.parents.except = vec![Direct::Network("10.0.0.0/8".parse().unwrap())];
        config.lists.block = vec![list];
    });
    let mut admin = Connection::open_admin(proxy.admin_addr().unwrap());
    let mut explain = |url: &str| admin.request("EXPLAIN", url, &[]).text();
    let through = format!("parent   {}", origin.address);
    let told = explain("http://far.example/");
    assert!(told.contains(&through) && !told.contains("list ") && !told.contains("secret"), "{told}");
    assert!(!explain("http://10.1.2.3/").contains("parent "));
    assert!(explain("http://www.ads.example/").contains("list     403, because a block list names the host"));
}

/// Starts a parent that accepts every client.
fn open_parent() -> Origin {
    Origin::start(|received, _| match received.method.as_str() {
        "CONNECT" => Reply::head("200 OK", &[]).echo(),
        _ => Reply::ok(&["Cache-Control: no-store"], format!("for {}", received.target)),
    })
}

fn nobody() -> std::net::SocketAddr {
    crate::support::ports::free_address()
}

/// Starts a forward proxy with these parents.
fn below_all(addresses: &[std::net::SocketAddr], change: impl FnOnce(&mut ProxyConfig)) -> RunningProxy {
    let some = Origin::start(|_, _| Reply::default());
    let mut config = ProxyConfig { default_origin: None, forward: true, ..Fixture::config(&some) };
    let parent = |address| (format!("http://{address}").parse().unwrap(), 1);
    config.parents.members = addresses.iter().map(parent).collect();
    change(&mut config);
    Proxy::start(config, None).unwrap()
}

/// One parent of several is down, or fails with requests in progress. With a single parent, each of these was a 502.
#[test]
fn nothing_fails_that_another_parent_can_answer() {
    let broken = Origin::start(|_, _| Reply::default().close());
    let well = open_parent();
    let proxy = below_all(&[nobody(), broken.address, well.address], |_| {});
    for number in 0..30 {
        let answer = get(&proxy, "GET", &format!("http://far.example/{number}"));
        assert_eq!((answer.status, answer.text()), (200, format!("for http://far.example:80/{number}")));
    }
    // After three consecutive failures, the parent is left out.
    assert_eq!(broken.count(), 3);
    let proxy = below_all(&[nobody(), well.address], |_| {});
    for _ in 0..6 {
        let mut connection = Connection::open(proxy.local_addrs()[0]);
        connection.send("CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\n");
        assert_eq!(connection.read_head().status, 200);
    }
}

/// Children that distribute keys by owner make each parent fetch only its own keys.
#[test]
fn key_goes_to_the_parent_that_owns_it_while_that_is_well() {
    let parents = [open_parent(), open_parent(), open_parent()];
    let addresses = parents.each_ref().map(|parent| parent.address);
    let proxy = below_all(&addresses, |config| config.parents.rules.balance = Balance::ConsistentHash);
    let names = addresses.map(|address| OwnerNode { name: address.to_string(), weight: 1 });
    let table = OwnerTable::new(&names).unwrap();
    let mut expected = [0; 3];
    for number in 0..20 {
        let key = primary_key("http", "far.example", &format!("/{number}")).unwrap();
        expected[table.owner(slot_of(&key))] += 3;
        for _ in 0..3 {
            assert_eq!(get(&proxy, "GET", &format!("http://far.example/{number}")).status, 200);
        }
        assert_eq!(parents.each_ref().map(Origin::count), expected, "{number}");
    }
}

#[test]
fn origins_are_contacted_directly_only_where_that_is_allowed_and_no_parent_is_there() {
    let direct = Origin::start(|received, _| Reply::ok(&["Cache-Control: no-store"], &received.target));
    let url = format!("http://{}/a", direct.address);
    let refusing = Origin::start(parent);
    let fallback = |config: &mut ProxyConfig| config.parents.direct = DirectFallback::OnFailure;
    assert_eq!(get(&below_all(&[nobody(), nobody()], |_| {}), "GET", &url).status, 502);
    let proxy = below_all(&[nobody(), nobody()], fallback);
    for _ in 0..6 {
        assert_eq!(get(&proxy, "GET", &url).text(), "/a");
    }
    // A parent that refuses a request is available, and may have good reasons to refuse.
    assert_eq!(get(&below_all(&[refusing.address], fallback), "GET", &url).status, 502);
    assert_eq!((refusing.count(), direct.count()), (1, 6));
    assert!(direct.received().iter().all(|received| received.field("proxy-authorization").is_none()));
}

#[test]
fn credentials_of_a_parent_that_failed_go_to_no_other() {
    let broken = Origin::start(|_, _| Reply::default().close());
    let well = open_parent();
    let proxy = below_all(&[broken.address, well.address], |config| {
        config.parents.members[0].0 = format!("http://me:secret@{}", broken.address).parse().unwrap();
    });
    for number in 0..4 {
        assert_eq!(get(&proxy, "GET", &format!("http://far.example/{number}")).status, 200);
    }
    assert!(broken.count() >= 1 && broken.received().iter().all(|it| it.field("proxy-authorization").is_some()));
    assert!(well.received().iter().all(|received| received.field("proxy-authorization").is_none()));
}

#[test]
fn parent_that_fails_its_checks_gets_no_requests() {
    let unwell = Origin::failing_checks("/-/ready");
    let well = open_parent();
    let proxy = below_all(&[unwell.address, well.address], |config| {
        config.parents.rules.check = Some(("/-/ready".into(), Duration::from_millis(20)));
    });
    let checks = |origin: &Origin| origin.count_of("/-/ready");
    eventually("both were checked twice", || checks(&unwell) >= 2 && checks(&well) >= 2);
    for number in 0..6 {
        assert_eq!(get(&proxy, "GET", &format!("http://far.example/{number}")).status, 200);
    }
    assert!(unwell.received().iter().all(|received| received.target == "/-/ready"), "{:?}", unwell.received());
}

/// Starts a forward proxy, and a proxy that contacts a scripted origin through it.
fn below_a_cache(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> (Fixture, RunningProxy) {
    let parent = Fixture::proxy_to("127.0.0.1:9".parse().unwrap(), |config| {
        config.default_origin = None;
        config.forward = true;
        config.pseudonym = Some("parent".into());
        config.add_cache_status = false;
    });
    let url = format!("http://{}", parent.local_addrs()[0]);
    let child = Fixture::with(handle, |config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
        let origin = config.default_origin.take().unwrap();
        config.default_origin = Some(origin.by_parent(url.parse().unwrap()));
    });
    (child, parent)
}

fn purge(child: &Fixture, target: &str, fields: &[&str]) {
    let mut admin = Connection::open_admin(child.proxy.admin_addr().unwrap());
    assert_eq!(admin.request("PURGE", target, fields).status, 200);
}

/// The scopes of purges that concern `/page`, whose tag is `k`.
const SCOPES: [(&str, &[&str]); 5] = [
    ("http://site.example/page", &[]),
    ("http://site.example/p*", &[]),
    ("http://site.example/", &["Purge-Scope: site"]),
    ("/", &["Surrogate-Key: k"]),
    ("/", &["Purge-Scope: all"]),
];

/// Guards against a purged page that comes back from the cache of the parent.
#[test]
fn nothing_that_was_purged_here_comes_back_from_a_parent() {
    let version = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&version);
    let (child, _parent) = below_a_cache(move |_, _| {
        let tag = format!("ETag: \"{}\"", current.load(SeqCst));
        Reply::ok(&["Cache-Control: max-age=600", "Surrogate-Key: k", &tag], current.load(SeqCst).to_string())
    });
    child.get_hit("/page", &[]);
    let mut old_count = 0;
    for round in 0..1000 {
        let (target, fields) = SCOPES[round % SCOPES.len()];
        let mode: &[&str] = if round % 2 == 0 { &[] } else { &["Purge-Mode: soft"] };
        version.store(round + 1, SeqCst);
        purge(&child, target, &[fields, mode].concat());
        old_count += usize::from(child.get("/page", &[]).text() != (round + 1).to_string());
    }
    assert_eq!(old_count, 0);
}

#[test]
fn only_requests_that_a_purge_may_concern_limit_the_age_at_a_parent() {
    let over = Origin::start(parent);
    let url = format!("http://me:secret@{}", over.address);
    let child = Fixture::with(parent, |config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
        let origin = config.default_origin.take().unwrap();
        config.default_origin = Some(origin.by_parent(url.parse().unwrap()));
    });
    let limit = |target: &str, fields: &[&str]| {
        child.get(target, fields);
        over.received().last().unwrap().field("cache-control").map(str::to_owned)
    };
    assert_eq!(limit("/page", &[]), None);
    for (target, fields) in &SCOPES[..2] {
        purge(&child, target, fields);
        assert_eq!(limit("/page", &[]).as_deref(), Some("max-age=0"), "{target}");
        assert_eq!(limit("/other", &["Cache-Control: no-cache"]).as_deref(), Some("no-cache"), "{target}");
    }
    purge(&child, "http://elsewhere.example/", &["Purge-Scope: site"]);
    assert_eq!(limit("/new", &[]), None);
    purge(&child, "/", &["Surrogate-Key: unknown"]);
    let limited = limit("/newer", &["Cache-Control: max-age=90, no-cache"]);
    assert_eq!(limited.as_deref(), Some("no-cache"), "a second line has the limit");
}

/// Guards against a purge by a tag that the origin's 304 brought, which does not reach the copy of a child.
#[test]
fn whole_304_of_the_origin_reaches_the_cache_below() {
    let (child, _parent) = below_a_cache(|received, _| match received.field("if-none-match") {
        Some(_) => {
            let fields = ["Cache-Control: max-age=600", "ETag: \"1\"", "Surrogate-Key: new", "X-Also: changed"];
            Reply::status("304 Not Modified", &fields, "")
        }
        None => Reply::ok(&["Cache-Control: no-cache", "ETag: \"1\"", "Surrogate-Key: old"], "page"),
    });
    child.get("/page", &[]);
    eventually("it is validated", || {
        let validated = child.get("/page", &[]);
        validated.text() == "page" && validated.field("surrogate-key") == Some("new")
    });
    let hit = child.get_hit("/page", &[]);
    assert_eq!((hit.field("x-also"), hit.field("surrogate-key")), (Some("changed"), Some("new")));
    // A client that is no cache gets the fields that help it.
    let own = child.get("/page", &["If-None-Match: \"1\""]);
    assert_eq!((own.status, own.field("surrogate-key"), own.field("etag")), (304, None, Some("\"1\"")));
    purge(&child, "/", &["Surrogate-Key: new"]);
    assert!(!child.get("/page", &[]).is_hit());
}
