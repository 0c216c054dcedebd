//! Several origins of one site: shares, failures, and requests that go to another origin.

use std::{sync::Arc, time::Duration};

use larder_http::{
    key_rules::{KeyRule, KeyRules},
    owner::{OwnerTable, slot_of},
};
use larder_proxy::{Balance, GroupRules, OriginUrl, Origins, Site};

use crate::support::{Fixture, Origin, Reply, eventually};

fn url(address: std::net::SocketAddr) -> OriginUrl {
    format!("http://{address}").parse().unwrap()
}

/// Starts a proxy for a site with origins at these addresses.
fn fixture(addresses: &[std::net::SocketAddr], change: impl FnOnce(&mut Origins)) -> Fixture {
    let members = addresses.iter().map(|address| (url(*address), 1)).collect();
    let mut origins = Origins { members, ..url(addresses[0]).into() };
    change(&mut origins);
    let site = Site::of_host("site.example", Arc::new(origins));
    Fixture::with(|_, _| Reply::default(), |config| config.sites.push(site))
}

fn good() -> Origin {
    Origin::start(|received, _| Reply::ok(&["Cache-Control: no-store"], &received.target))
}

fn nobody() -> std::net::SocketAddr {
    crate::support::ports::free_address()
}

#[test]
fn origins_take_turns() {
    let [a, b] = [good(), good()];
    let fixture = fixture(&[a.address, b.address], |_| {});
    for number in 0..10 {
        assert_eq!(fixture.get(&format!("/{number}"), &[]).status, 200);
    }
    assert_eq!((a.count(), b.count()), (5, 5));
}

/// A load balancer that hashes the raw path sends each spelling to another origin, and each of those fetches the
/// resource.
#[test]
fn spellings_of_one_key_go_to_the_owner_that_others_name_too() {
    let origins = [good(), good(), good()];
    let members = origins.iter().map(|origin| (url(origin.address), 1)).collect();
    let rules = GroupRules { balance: Balance::ConsistentHash, ..GroupRules::default() };
    let group = Origins { members, rules };
    let table = OwnerTable::new(&group.nodes()).unwrap();
    let urls = ["http://site.example".to_owned()];
    let rules = KeyRules::new(vec![KeyRule::new(&urls, &["utm_*".to_owned()], None).unwrap()]);
    let site = Site::of_host("site.example", Arc::new(group));
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.sites.push(site);
            config.policy.cache.http.key_rules = rules.clone();
        },
    );
    let mut expected = [0; 3];
    for number in 0..20 {
        let key = rules.key("http", "site.example", &format!("/{number}")).unwrap();
        expected[table.owner(slot_of(&key))] += 5;
        for spelling in 0..5 {
            assert_eq!(fixture.get(&format!("/{number}?utm_source={spelling}"), &[]).status, 200);
        }
        assert_eq!(origins.each_ref().map(Origin::count), expected, "{number}");
    }
    assert!(expected.iter().all(|count| *count > 0), "{expected:?}");
}

#[test]
fn nothing_fails_that_another_origin_can_answer() {
    let broken = Origin::start(|_, _| Reply::default().close());
    let well = good();
    let fixture = fixture(&[nobody(), broken.address, well.address], |_| {});
    for number in 0..30 {
        assert_eq!(fixture.get(&format!("/{number}"), &[]).status, 200, "{number}");
    }
    // After three consecutive failures, the origin is left out.
    assert_eq!(broken.count(), 3);
}

#[test]
fn request_with_a_body_goes_to_another_origin_only_if_it_was_not_sent() {
    let well = good();
    let unreachable = fixture(&[nobody(), well.address], |_| {});
    for _ in 0..2 {
        let mut client = unreachable.connect();
        client.send("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.read_response("POST").status, 200);
    }
    assert!(well.received().iter().all(|received| received.body == b"hi"));
    let broken = Origin::start(|_, _| Reply::default().close());
    let fixture = fixture(&[broken.address, well.address], |_| {});
    let mut statuses = [0, 1].map(|_| {
        let mut client = fixture.connect();
        client.send("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: 2\r\n\r\nhi");
        client.read_response("POST").status
    });
    // The order of the first requests does not matter.
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502]);
}

#[test]
fn origin_that_fails_its_checks_gets_no_requests() {
    let unwell = Origin::failing_checks("/health");
    let well = good();
    let fixture = fixture(&[unwell.address, well.address], |origins| {
        origins.rules.check = Some(("/health".into(), Duration::from_millis(20)));
    });
    let checks = |origin: &Origin| origin.count_of("/health");
    let asked = |origin: &Origin| origin.received().iter().filter(|received| received.target != "/health").count();
    eventually("both were checked twice", || checks(&unwell) >= 2 && checks(&well) >= 2);
    for number in 0..6 {
        assert_eq!(fixture.get(&format!("/{number}"), &[]).status, 200);
    }
    assert_eq!((asked(&unwell), asked(&well)), (0, 6));
}

#[test]
fn origins_that_make_no_group_are_refused() {
    let member = |url: &str, weight| (url.parse::<OriginUrl>().unwrap(), weight);
    for members in [vec![], vec![member("http://a/x", 1), member("http://b/y", 1)], vec![member("http://a", 0)]] {
        let origins = Arc::new(Origins { members, ..url(nobody()).into() });
        let site = Site::of_host("a", origins);
        let config = larder_proxy::ProxyConfig { sites: vec![site], ..Default::default() };
        assert!(larder_proxy::Proxy::start(config, None).is_err());
    }
}
