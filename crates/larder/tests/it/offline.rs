//! Checks that an operator without an uplink can switch the running proxy to offline mode and see its state.

use crate::{
    origin::Origin,
    process::{Larder, errors, refused, run, said},
};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};
use tempfile::TempDir;

/// Starts a proxy of this user, on the default store, in front of `origin`.
fn start(home: &TempDir, origin: &Origin, flags: &[&str]) -> Larder {
    let origin = format!("http://{}", origin.address);
    Larder::start(home, &[&["--size", "64MiB", "--origin", &origin], flags].concat())
}

#[test]
fn commands_find_the_proxy_that_runs_and_take_it_offline_and_back() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &[]);
    assert_eq!(larder.get("/a").status, 200);
    let offline = |word: &str| {
        let output = run(&home, &["offline", word]);
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(offline("status"), "off: origins are contacted\n");
    assert!(offline("on").starts_with("on: no origin is contacted"));
    assert_eq!((larder.get("/a").status, larder.get("/b").status), (200, 504));
    let explained = run(&home, &["explain", "http://www.example.test/b"]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("outcome  504"), "{}", errors(&explained));
    assert!(offline("off").starts_with("off: "));
    assert_eq!(larder.get("/b").status, 200);
    assert_eq!(origin.count(), 2);
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn it_starts_as_the_configuration_says_and_says_so() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--offline", "on"]);
    assert!(larder.start_lines.contains("  offline  on: no origin is contacted"), "{}", larder.start_lines);
    assert_eq!((larder.get("/a").status, origin.count()), (504, 0));
    let wrong = run(&home, &["run", "--offline", "sometimes"]);
    let told = errors(&wrong);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(told.contains("unknown offline mode: `sometimes`") && told.contains("help: "), "{told}");
}

#[test]
fn without_a_proxy_it_is_said_what_to_do() {
    let home = TempDir::new().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let failed = run(&home, &["offline", "on", "--admin", &nobody]);
    let told = errors(&failed);
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        told.contains(&format!("cannot connect to the admin listener: Connection refused (os error 111): {nobody}")),
        "{told}"
    );
    assert!(told.contains("help: start the proxy with --admin"), "{told}");
}

/// Guards against a list of requested resources that is lost after days offline, or that is fetched but not served.
#[test]
fn what_was_missing_while_offline_is_known_after_a_restart_and_fetched_when_the_line_is_back() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--offline", "on"]);
    for path in ["/a", "/b", "/a"] {
        assert_eq!(larder.get(path).status, 504);
    }
    assert_eq!(larder.stop(), Some(0));
    let list = home.path().join("cache/larder/store.larder.missing");
    assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
    let larder = start(&home, &origin, &["--offline", "on"]);
    let [a, b] = ["/a", "/b"].map(|path| format!("http://www.example.test{path}"));
    assert_eq!(said(&home, &["missing"]), format!("     2  {a}\n     1  {b}\n"));
    let json = said(&home, &["missing", "--json"]);
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((first["url"].as_str(), first["count"].as_u64()), (Some(&*a), Some(2)));
    let early = run(&home, &["warm", "--missing"]);
    assert_eq!(early.status.code(), Some(1));
    assert!(errors(&early).contains("it is offline") && errors(&early).contains("help: "), "{}", errors(&early));
    said(&home, &["offline", "off"]);
    assert_eq!(
        said(&home, &["warm", "--missing"]),
        "2 fetched and stored (4 B), 0 already stored, 0 not stored, 0 failed\n"
    );
    assert_eq!((said(&home, &["missing"]).as_str(), origin.count()), ("", 2));
    assert!(larder.get("/a").is_hit());
    said(&home, &["offline", "on"]);
    assert_eq!(larder.get("/c").status, 504);
    assert_eq!(said(&home, &["missing", "--clear"]), "the list is empty\n");
    assert_eq!(said(&home, &["missing"]), "");
}

/// Guards against a user who repeats a command although the URLs that failed are no longer in its list.
#[test]
fn missing_url_that_the_origin_does_not_have_leaves_the_list_and_the_command_says_so() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--offline", "on"]);
    assert_eq!(larder.get("/gone/a").status, 504);
    said(&home, &["offline", "off"]);
    let warmed = run(&home, &["warm", "--missing"]);
    assert_eq!(warmed.status.code(), Some(1));
    assert!(errors(&warmed).contains("1 is no longer in the list of missing URLs"), "{}", errors(&warmed));
    assert_eq!(said(&home, &["missing"]), "");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn warming_fetches_what_lists_name_and_goes_on_where_it_was() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &[]);
    let list = home.path().join("urls.txt");
    fs::write(&list, "# pages\nhttp://a.example/1\n\nhttp://a.example/2#top\nhttp://a.example/1\n").unwrap();
    let list = list.to_str().unwrap();
    let told = said(&home, &["warm", "--jobs", "2", "http://a.example/0", list]);
    assert_eq!(told, "3 fetched and stored (6 B), 0 already stored, 0 not stored, 0 failed\n");
    let again = said(&home, &["warm", "--json", "--rate", "1MB", list, "http://a.example/3"]);
    let told: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((told["there"].as_u64(), told["fetched"].as_u64(), origin.count()), (Some(2), Some(1), 4));
    let through = larder.address.to_string();
    assert!(said(&home, &["warm", "--proxy", &through, list]).contains("2 already stored"));
    // The origin answers every request with its path, which is not a sitemap.
    let wrong = run(&home, &["warm", "--sitemap", "http://a.example/sitemap.xml"]);
    assert!(
        errors(&wrong).contains("not a sitemap: http://a.example/sitemap.xml: it begins with neither"),
        "{}",
        errors(&wrong)
    );
    assert_eq!(wrong.status.code(), Some(1));
}

#[test]
fn warming_says_what_is_wrong_with_what_it_is_given() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let failed = |arguments: &[&str], code: i32, told: &str| {
        let output = run(&home, &[&["warm"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        assert!(
            errors(&output).contains(told) && errors(&output).contains("help: "),
            "{arguments:?}: {}",
            errors(&output)
        );
    };
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    failed(
        &["--proxy", &nobody, "http://a.example/"],
        1,
        &format!("cannot fetch through {nobody}: Connection refused"),
    );
    let _larder = start(&home, &origin, &[]);
    failed(&["--disk", "store", "http://a.example/"], 2, "a larder of yours is running");
    failed(&[], 2, "missing: ");
    failed(&["http://"], 2, "not a URL, because it has no host: `http://`");
    let missing = home.path().join("none").to_str().unwrap().to_owned();
    failed(&[&missing], 1, &format!("cannot read the list {missing}: No such file"));
    let list = home.path().join("list");
    fs::write(&list, "http://a.example/\nftp://a.example/\n").unwrap();
    failed(&[list.to_str().unwrap()], 2, "list, line 2: not a URL, because it does not begin with http:// or https://");
    fs::write(&list, "# nothing\n").unwrap();
    failed(&[list.to_str().unwrap()], 2, "nothing to fetch");
    fs::write(&list, b"\xff\xfe").unwrap();
    failed(&[list.to_str().unwrap()], 1, "cannot read the list");
    failed(&["--jobs", "0", "http://a.example/"], 2, "--jobs");
    assert_eq!(origin.count(), 0);
}

/// Guards against a list of missing resources that can be read only while the proxy runs, or a cache that can be filled
/// only then.
#[test]
fn missing_and_warm_work_on_a_store_whose_proxy_does_not_run() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let store = home.path().join("other.larder");
    let disk = ["--disk", store.to_str().unwrap()];
    let allowed = ["--allow-target", "127.0.0.0/8"];
    let urls = ["/a", "/b"].map(|path| format!("http://{}{path}", origin.address));
    for flags in [&[][..], &disk] {
        let larder = Larder::start(
            &home,
            &[&["--size", "64MiB", "--offline", "on", "--allow-target", "127.0.0.0/8"], flags].concat(),
        );
        for url in [&urls[0], &urls[1], &urls[0]] {
            assert_eq!(larder.get(url).status, 504);
        }
        assert_eq!(larder.stop(), Some(0));
        assert_eq!(said(&home, &[&["missing"], flags].concat()), format!("     2  {}\n     1  {}\n", urls[0], urls[1]));
        let before = origin.count();
        let fetched = "2 fetched and stored (4 B), 0 already stored, 0 not stored, 0 failed\n";
        let refused = run(&home, &[&["warm", "--missing"], flags].concat());
        assert!(errors(&refused).contains("destination_ip_prohibited") && errors(&refused).contains("--allow-target"));
        assert_eq!(said(&home, &[&["warm", "--missing"], &allowed[..], flags].concat()), fetched);
        assert_eq!(origin.count(), before + 2);
        assert_eq!(said(&home, &[&["missing"], flags].concat()), "", "what was fetched left the list");
        let there = "0 fetched and stored (0 B), 1 already stored, 0 not stored, 0 failed\n";
        assert_eq!(said(&home, &[&["warm", &urls[0]], flags].concat()), there);
        let larder = Larder::start(&home, &[&["--offline", "on", "--allow-target", "127.0.0.0/8"], flags].concat());
        assert_eq!((larder.get(&urls[1]).status, larder.get("http://a.example/c").status), (200, 504));
        assert_eq!(larder.stop(), Some(0));
        assert_eq!(said(&home, &[&["missing", "--clear"], flags].concat()), "the list is empty\n");
        assert_eq!(said(&home, &[&["missing"], flags].concat()), "");
    }
    let missing = home.path().join("none").to_str().unwrap().to_owned();
    let told = refused(&home, &["missing", "--disk", &missing], 1);
    assert!(told.contains(&format!("no such store: {missing}")), "{told}");
}
