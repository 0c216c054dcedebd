//! What people look at: figures over time, and over restarts.

use larder_proxy::{Overview, ProxyConfig};

use crate::support::{Connection, Fixture, Reply, eventually};

fn with_admin(config: &mut ProxyConfig) {
    config.admin = Some("127.0.0.1:0".parse().unwrap());
}

fn overview(fixture: &Fixture) -> Overview {
    let mut admin = Connection::open(fixture.proxy.admin_addr().unwrap());
    admin.send("GET /overview.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let response = admin.read_response("GET");
    assert_eq!((response.status, response.field("content-type")), (200, Some("application/json")));
    serde_json::from_str(&response.text()).unwrap()
}

#[test]
fn figures_count_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("store");
    let keep = |config: &mut ProxyConfig| {
        with_admin(config);
        config.state_base = Some(base.clone());
    };
    let fixture = Fixture::with(
        |received, _| match received.target.as_str() {
            "/no" => Reply::ok(&["Cache-Control: no-store"], "12345"),
            _ => Reply::ok(&["Cache-Control: max-age=60"], "0123456789"),
        },
        keep,
    );
    fixture.get("/no", &[]);
    fixture.get_hit("/yes", &[]);
    let mut before = Overview::default();
    eventually("all is counted", || {
        before = overview(&fixture);
        before.ever.hits >= 1 && before.ever.client_bytes >= 25
    });
    assert_eq!((before.today, before.minute), (before.ever, before.ever));
    assert_eq!(before.ever.saved_bytes, before.ever.hits * 10);
    assert_eq!(before.by_second.iter().map(|second| second.hits).sum::<u64>(), before.ever.hits);
    let why: Vec<_> = before.misses_ever.iter().map(|reason| (reason.name.as_str(), reason.count)).collect();
    assert!(why.contains(&("no-store", 1)) && why.iter().any(|(name, _)| *name == "uri-miss"), "{why:?}");

    let fixture = fixture.restart_with(keep);
    let after = overview(&fixture);
    assert_eq!((after.ever, after.since_s), (before.ever, before.since_s));
    assert_eq!(after.misses_ever, before.misses_ever);
    assert_eq!(after.minute.hits, 0, "the last minute is this run's");
    fixture.get_hit("/yes", &[]);
    eventually("it counts on", || overview(&fixture).ever.hits > before.ever.hits);
    let mut admin = Connection::open(fixture.proxy.admin_addr().unwrap());
    let metrics = admin.request("GET", "/metrics", &[]).text();
    let line =
        |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse::<u64>().unwrap();
    assert!(line("larder_lifetime_hits_total") > line("larder_hits_total"));
}

#[test]
fn pages_of_other_sites_get_no_overview() {
    let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), with_admin);
    let mut admin = Connection::open(fixture.proxy.admin_addr().unwrap());
    admin.send("GET /overview.json HTTP/1.1\r\nHost: evil.example:3180\r\n\r\n");
    assert_eq!(admin.read_response("GET").status, 421);
}
