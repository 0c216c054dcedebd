//! Guards against a response that `larder purge` reported purged and that returns after a kill, and against a `larder
//! ls` or `larder show` that describes something other than what is served.

use crate::{
    origin::Origin,
    process::{Larder, errors, refused, run, said},
    serving::admin_of,
};
use rustix::process::Signal;
use tempfile::TempDir;

const SITE: &str = "http://www.example.test";
const ADMIN: [&str; 2] = ["--admin", "127.0.0.1:0"];

fn start(home: &TempDir, origin: &Origin, flags: &[&str]) -> Larder {
    let origin = format!("http://{}", origin.address);
    Larder::start(home, &[&["--memory-cache", "1MB", "--origin", &origin], flags].concat())
}

fn paths(tag: &str) -> Vec<String> {
    let short = (0..10).map(|number| format!("/tagged/{tag}/{number}?bytes={}", 100 + 3_000 * number));
    short.chain([format!("/tagged/{tag}/film?bytes=2500000")]).collect()
}

#[test]
fn acknowledged_purges_hold_after_a_kill() {
    for disk_count in [1, 2] {
        let home = TempDir::new().unwrap();
        let origin = Origin::start();
        let disks: Vec<String> =
            (0..disk_count).map(|number| home.path().join(format!("{number}.larder")).display().to_string()).collect();
        let flags: Vec<&str> =
            disks.iter().flat_map(|disk| ["--disk", disk.as_str(), "--size", "64MiB"]).chain(ADMIN).collect();
        let larder = start(&home, &origin, &flags);
        let tags = ["a", "b", "c", "d"];
        let flushed: Vec<String> = (0..20).map(|number| format!("/flushed/{number}")).collect();
        for path in tags.iter().flat_map(|tag| paths(tag)).chain(flushed.clone()) {
            assert_eq!(larder.get(&path).status, 200);
        }
        // The removal of a URL is written together with all dirty data of its disk.
        let admin = admin_of(&larder).to_string();
        let purge = |what: &[&str]| said(&home, &[&["purge", "--admin", &admin], what].concat());
        flushed.iter().for_each(|path| drop(purge(&[&format!("{SITE}{path}")])));
        assert_eq!(purge(&["--tag", "a", "none"]), "purged: a\npurged: none\n");
        let prefix = format!("{SITE}/tagged/b");
        assert_eq!(purge(&["--prefix", &prefix]), format!("purged: {prefix}\n"));
        assert_eq!(purge(&["--soft", "--tag", "C"]), "made stale: C\n");
        larder.signal(Signal::KILL);
        drop(larder);
        let larder = start(&home, &origin, &flags);
        for (tag, is_kept) in tags.iter().zip([false, false, false, true]) {
            for path in paths(tag) {
                assert_eq!(larder.get(&path).is_hit(), is_kept, "{disk_count} disks: {path}");
            }
        }
        assert_eq!(larder.stop(), Some(0));
    }
}

#[test]
fn purges_of_hundreds_of_sites_hold_after_a_kill_and_purge_no_other_site() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--size", "64MiB"]);
    let kept = "GET /tagged/a/1 HTTP/1.1\r\nHost: kept.example.test\r\nConnection: close\r\n\r\n";
    let path = "/tagged/a/2";
    assert!((0..3).any(|_| larder.get(path).is_hit()) && (0..3).any(|_| larder.send(kept).is_hit()));
    let sites: Vec<String> = (0..256).map(|number| format!("http://s{number}.example/")).collect();
    let sites: Vec<&str> = sites.iter().map(String::as_str).chain([SITE]).collect();
    let told = said(&home, &[&["purge", "--site"], &sites[..]].concat());
    assert_eq!(told.lines().count(), 257);
    assert!(told.ends_with(&format!("purged: {SITE}\n")), "{told}");
    assert!(larder.send(kept).is_hit());
    larder.signal(Signal::KILL);
    drop(larder);
    let larder = start(&home, &origin, &["--size", "64MiB"]);
    assert!(!larder.get(path).is_hit(), "it is still purged");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn purge_takes_what_it_says_and_tells_what_is_wrong() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--size", "64MiB"]);
    let path = "/tagged/a/1";
    for flags in [
        &["--tag", "a"][..],
        &["--prefix", "www.example.test/tag"],
        &["--soft", "--site", SITE],
        &["--soft", &format!("{SITE}{path}")],
        &["--soft", "--all"],
    ] {
        assert!((0..3).any(|_| larder.get(path).is_hit()));
        said(&home, &[&["purge"], flags].concat());
        assert!(!larder.get(path).is_hit(), "{flags:?}");
    }
    assert_eq!(
        said(&home, &["purge", "--prefix", "a.example/x"]),
        "purged: http://a.example/x\npurged: https://a.example/x\n"
    );
    for (flags, told) in [
        (&["--tag", "a b"][..], "not a tag"),
        (&["--tag", "a,b"], "not a tag"),
        (&["--prefix", "ftp://a.example/"], "not a URL"),
        (&["--tag", "--prefix", "a"], "cannot be used with"),
        (&["--tag"], "missing: <URL|TAG>"),
        (&["http://a.example/x", "--tag", "a"], "a URL among the tags"),
        (&["--tag", "a", "https://a.example/x"], "a URL among the tags"),
    ] {
        let found = refused(&home, &[&["purge"], flags].concat(), 2);
        assert!(found.contains(told), "{flags:?}: {found}");
    }
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn ls_and_show_tell_what_is_stored() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &["--size", "64MiB"]);
    for path in paths("a").iter().chain(&paths("b")) {
        assert_eq!(larder.get(path).status, 200);
    }
    let request = "GET /vary/x HTTP/1.1\r\nHost: www.example.test\r\nAccept-Language: de\r\nConnection: close\r\n\r\n";
    assert_eq!(larder.send(request).status, 200);
    let listed = said(&home, &["ls"]);
    assert!(listed.ends_with("23 responses, 5.27 MB\n"), "{listed}");
    assert!(listed.contains(&format!("{SITE}/vary/x  (accept-language: de)")), "{listed}");
    let longest = said(&home, &["ls", &format!("{SITE}/tagged/a/"), "--sort", "size", "--limit", "2"]);
    let lines: Vec<&str> = longest.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["size", "age", "fresh", "hits", "status", "URL"]);
    assert!(lines[1].ends_with("200  http://www.example.test/tagged/a/film?bytes=2500000"), "{longest}");
    assert_eq!(lines[0].find("URL"), lines[1].find("http://"), "{longest}");
    assert!(lines[2].contains("/9?bytes=27100") && lines.len() == 4, "{longest}");
    assert_eq!(said(&home, &["ls", "other.example"]), "0 responses, 0 B\n");
    for (flags, told) in [
        (&["--limit", "2"][..], "listed 2 of 23; --limit 0 lists all"),
        (&["--limit", "2", "--json"], "listed 2 of 23"),
        (&["--limit", "23"], ""),
    ] {
        let errors = errors(&run(&home, &[&["ls"], flags].concat()));
        assert!(errors.contains(told) && errors.is_empty() == told.is_empty(), "{flags:?}: {errors}");
    }
    let json = said(&home, &["ls", "www.example.test", "--sort", "age", "--json", "--limit", "1"]);
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[0]["status"].as_u64(), lines[1]["responses"].as_u64()), (2, Some(200), Some(23)));
    let film = format!("{SITE}{}", paths("a")[10]);
    let shown = said(&home, &["show", &film]);
    for told in [
        "outcome  from the cache (lifetime)",
        "tags     all, a",
        "chunks   3 of 3 stored, 1 MiB each",
        "store.larder (policy log)",
        "evicted  when the store needs its space",
        "field    surrogate-key: all a",
    ] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    said(&home, &["purge", "--soft", "--tag", "a"]);
    let shown = said(&home, &["show", &film]);
    assert!(shown.contains("purged   softly") && shown.contains("outcome  fetched again"), "{shown}");
    said(&home, &["purge", "--tag", "a"]);
    let shown = said(&home, &["explain", &film]);
    assert!(shown.contains("stored   nothing") && shown.contains("purged   the stored response was purged"), "{shown}");
    assert!(said(&home, &["ls"]).ends_with("12 responses, 2.64 MB\n"));
    assert!(refused(&home, &["show", "/a"], 2).contains("not a URL"));
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn store_that_cannot_tell_its_keys_says_so() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let store = home.path().join("squid").display().to_string();
    let larder = start(&home, &origin, &["--policy", "squid", "--disk", &store, "--size", "64MiB", ADMIN[0], ADMIN[1]]);
    let told = refused(&home, &["ls", "--admin", &admin_of(&larder).to_string()], 1);
    assert!(told.contains("cannot list its entries while it is in use") && told.contains("larder show URL"), "{told}");
    assert_eq!(larder.stop(), Some(0));
}
