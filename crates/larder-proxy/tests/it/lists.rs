//! Lists of hosts: a listed host is refused whichever way a client requests it, and the lists are reloaded when they
//! change.

use larder_proxy::{HostLists, ProxyConfig};

use crate::support::{Fixture, Reply, eventually};

/// Starts a forward proxy with a list that names this host. Returns the list's file too.
fn listed(host: &str) -> (Fixture, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("list");
    std::fs::write(&file, format!("{host}\n")).unwrap();
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"),
        |config: &mut ProxyConfig| {
            (config.default_origin, config.forward) = (None, true);
            config.connect_ports = (1..=u16::MAX).collect();
            config.lists = HostLists { block: vec![file], ..HostLists::default() };
        },
    );
    (fixture, directory)
}

#[test]
fn host_on_a_list_is_refused_in_every_way() {
    let (fixture, _directory) = listed("127.0.0.1");
    let authority = fixture.origin.address.to_string();
    for (method, target) in
        [("GET", format!("http://{authority}/")), ("POST", format!("http://{authority}/")), ("CONNECT", authority)]
    {
        let refused = fixture.connect().request(method, &target, &[]);
        assert_eq!(refused.status, 403, "{method}");
        let told = "this site is blocked on this network: 127.0.0.1, because a block list names it. If you need it, ask \
                    the administrator of this network to allow it.\n";
        assert_eq!(refused.text(), told);
        assert_eq!(refused.field("proxy-status"), Some("larder;error=http_request_denied"), "{method}");
    }
    assert_eq!(fixture.origin.connections(), 0);
}

#[test]
fn list_is_read_again_and_counts_for_what_is_in_memory_too() {
    let (fixture, directory) = listed("other.example");
    let target = format!("http://{}/", fixture.origin.address);
    fixture.get_hit(&target, &[]);
    std::fs::write(directory.path().join("list"), "0.0.0.0 ads.example\n127.0.0.1\n").unwrap();
    eventually("the list is read again", || fixture.get(&target, &[]).status == 403);
    std::fs::write(directory.path().join("list"), "other.example\n").unwrap();
    eventually("the list is read again", || fixture.get(&target, &[]).is_hit());
}

#[test]
fn list_with_a_line_that_names_nothing_is_refused_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("list");
    std::fs::write(&file, "a.example\nno host\n").unwrap();
    let lists = HostLists { block: vec![file], ..HostLists::default() };
    let error = ProxyConfig { lists, ..ProxyConfig::default() }.check_files().unwrap_err();
    assert!(error.to_string().ends_with("list:2: `no host`"), "{error}");
}
