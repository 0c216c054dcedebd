//! A parent: origins are asked through another proxy, and what it wants to know of us is told to nobody else.

use larder_proxy::{Direct, Parents, Proxy, ProxyConfig, RunningProxy};

use crate::support::{Connection, Fixture, Origin, Received, Reply, request_text};

/// Answers with what it was asked for, as a proxy or a server gets it; of a tunnel, with what comes through it.
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

/// A forward proxy with this one as its parent.
fn below(parent: &Origin, user: &str, change: impl FnOnce(&mut ProxyConfig)) -> RunningProxy {
    let mut config = ProxyConfig { default_origin: None, forward: true, ..Fixture::config(parent) };
    let url = format!("http://{user}{}", parent.address);
    config.parents =
        Parents { parent: Some(url.parse().unwrap()), except: vec![Direct::Hosts("127.0.0.1".parse().unwrap())] };
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
    let (over, direct) = (Origin::start(parent), Origin::start(|received, _| Reply::ok(&[], received.target.clone())));
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
    assert!(explain("http://www.ads.example/").contains("list     403, for a list of block_lists names the host"));
}
