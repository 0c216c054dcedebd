//! Sites by host, path and listener: the origin of each request, and the settings for its response.

use std::sync::Arc;

use larder_http::coding::{Compression, ContentCoding};
use larder_proxy::{OriginUrl, Proxy, ProxyConfig, Site, SitePolicy};

use crate::support::{Connection, Fixture, Origin, Received, Reply};

fn named(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn at(origin: &Origin) -> Option<Arc<larder_proxy::Origins>> {
    let url: OriginUrl = format!("http://{}", origin.address).parse().unwrap();
    Some(Arc::new(url.into()))
}

fn telling(name: &'static str) -> Origin {
    Origin::start(move |received, _| Reply::ok(&["Cache-Control: max-age=60"], format!("{name} {}", received.target)))
}

/// Returns settings that disable heuristic lifetimes.
fn without_guesses() -> Option<SitePolicy> {
    policy(|own| own.cache.http.heuristic_fraction = 0.0)
}

fn policy(change: impl FnOnce(&mut SitePolicy)) -> Option<SitePolicy> {
    let mut own = SitePolicy::default();
    change(&mut own);
    Some(own)
}

fn old(_: &Received, _: usize) -> Reply {
    Reply::ok(&["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"], "x")
}

#[test]
fn requests_go_to_the_origin_of_the_first_site_that_names_them() {
    let app = telling("app");
    let below = telling("below");
    let whole = telling("whole");
    let fixture = Fixture::with(
        |received, _| Reply::ok(&[], format!("default {}", received.target)),
        |config| {
            let settings = Site { paths: named(&["/"]), policy: without_guesses(), ..Site::default() };
            let of_path = Site { paths: named(&["/app/", "/v2"]), ..Site::of_host("a.example", at(&app).unwrap()) };
            let of_all_below = Site { hosts: named(&["*.Example"]), origins: at(&below), ..Site::default() };
            config.sites = vec![settings, of_path, Site::of_host("A.example", at(&whole).unwrap()), of_all_below];
        },
    );
    for (host, path, expected) in [
        ("a.example", "/app", "app /app"),
        ("a.example", "/app/x?y", "app /app/x?y"),
        ("A.Example:80", "/v2/", "app /v2/"),
        ("a.example", "/apple", "whole /apple"),
        ("a.example", "/", "whole /"),
        ("b.example", "/app", "below /app"),
        ("c.b.EXAMPLE", "/", "below /"),
        ("example", "/app", "default /app"),
        ("elsewhere", "/app", "default /app"),
    ] {
        for _ in 0..2 {
            let mut connection = fixture.connect();
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(connection.read_response("GET").text(), expected, "{host}{path}");
        }
    }
}

#[test]
fn site_has_settings_of_its_own() {
    let fixture = Fixture::with(old, |config| {
        let live = Site { name: "live".into(), paths: named(&["/live"]), policy: without_guesses(), ..Site::default() };
        let small = policy(|own| own.cache.entry_bytes_max = 0);
        let small = Site { paths: named(&["/small"]), policy: small, ..Site::default() };
        (config.sites, config.admin) = (vec![live, small], Some(([127, 0, 0, 1], 0).into()));
    });
    for (path, is_kept) in [("/live/a", false), ("/lives", true), ("/small", false), ("/", true)] {
        fixture.get(path, &[]);
        if is_kept {
            fixture.get_hit(path, &[]);
        } else {
            assert!(!fixture.get(path, &[]).is_hit(), "{path}");
        }
    }
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    let mut site_of = |path: &str| {
        let told = admin.request("EXPLAIN", &format!("http://site.example{path}"), &[]).text();
        told.lines().find_map(|line| line.strip_prefix("site     ").map(str::to_owned))
    };
    assert_eq!((site_of("/live/a").as_deref(), site_of("/lives")), (Some("live"), None));
}

#[test]
fn origin_and_settings_and_key_are_those_of_the_host_in_the_target() {
    let dated = |name: &'static str| {
        Origin::start(move |_, _| Reply::ok(&["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"], name))
    };
    let live = dated("live");
    let kept = dated("kept");
    let fixture = Fixture::with(
        |_, _| Reply::ok(&[], "default"),
        |config| {
            let of_live = Site { policy: without_guesses(), ..Site::of_host("live.example", at(&live).unwrap()) };
            config.sites = vec![of_live, Site::of_host("kept.example", at(&kept).unwrap())];
            config.forward = true;
        },
    );
    for (number, (name, other)) in [("live", "kept"), ("kept", "live")].into_iter().enumerate() {
        let path = |form: &str| format!("/{number}/{form}");
        for (target, host) in [
            (format!("http://{name}.example{}", path("whole")), other),
            (format!("http://{}.example:80{}", name.to_uppercase(), path("spelled")), other),
            (path("bare"), name),
        ] {
            for turn in 0..2 {
                let mut connection = fixture.connect();
                // A Connection field names Host, which all decisions still see.
                connection.send(format!("GET {target} HTTP/1.1\r\nHost: {host}.example\r\nConnection: host\r\n\r\n"));
                let response = connection.read_response("GET");
                assert_eq!(response.text(), name, "{target} {host}");
                assert_eq!(response.is_hit(), turn == 1 && name == "kept", "{target} {host}");
            }
        }
    }
}

#[test]
fn settings_go_by_the_listener_too_and_what_is_stored_is_everybodys() {
    let text = || "some text that repeats itself, ".repeat(200);
    let address: std::net::SocketAddr = "127.0.0.2:0".parse().unwrap();
    let fixture = Fixture::with(
        move |_, _| Reply::ok(&["Content-Type: text/html", "Cache-Control: max-age=60"], text()),
        |config| {
            config.listeners.push(larder_proxy::Listener::plain(address));
            let coded = Compression { codings: vec![ContentCoding::Gzip], ..Compression::default() };
            let policy = policy(|own| own.cache.http.compression = coded);
            config.sites = vec![Site { listeners: vec![address], policy, ..Site::default() }];
        },
    );
    fixture.get_hit("/", &[]);
    for (number, coding) in [(0, None), (1, Some("gzip"))] {
        let mut connection = Connection::open(fixture.proxy.local_addrs()[number]);
        for target in ["/", "/other"] {
            let response = connection.request("GET", target, &["Accept-Encoding: gzip"]);
            assert_eq!(response.field("content-encoding"), coding, "{number} {target}");
        }
    }
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn sites_of_which_nothing_can_come_are_refused() {
    let origin = telling("x");
    let url: OriginUrl = "http://127.0.0.1:1".parse().unwrap();
    let listed = ProxyConfig::default().listeners[0].address;
    let otherwise = policy(|own| own.cache.http.targets = larder_http::TargetList::new(Vec::new()));
    let long = policy(|own| own.cache.group_window = std::time::Duration::from_secs(61));
    for (site, why) in [
        (Site { policy: without_guesses(), ..Site::default() }, "needs a host, a path or a listener"),
        (Site { listeners: vec![listed], ..Site::of_host("a", at(&origin).unwrap()) }, "cannot have an origin"),
        (Site { listeners: vec![([127, 0, 0, 1], 9).into()], ..Site::default() }, "an unknown listener"),
        (Site { listeners: vec![listed], policy: otherwise, ..Site::default() }, "cannot have its own targeted fields"),
        (Site { paths: named(&["app"]), ..Site::default() }, "a site's path must begin with a slash"),
        (Site { paths: named(&["/a"]), policy: long, ..Site::default() }, "group window must be at most 60 s"),
    ] {
        let config = ProxyConfig { sites: vec![site], default_origin: Some(url.clone()), ..ProxyConfig::default() };
        let refused = Proxy::start(config, None).err().expect(why);
        assert!(refused.to_string().contains(why), "{refused}");
    }
}
