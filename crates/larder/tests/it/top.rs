//! Checks that `larder top` shows the proxy's activity, in a terminal or not, and also after a kill.

use crate::{
    origin::Origin,
    process::{Larder, errors, refused, run, said},
};
use std::{fs, net::TcpListener, time::Duration};
use tempfile::TempDir;

fn start(home: &TempDir, origin: &Origin, flags: &[&str]) -> Larder {
    let origin = format!("http://{}", origin.address);
    Larder::start(home, &[&["--size", "64MiB", "--origin", &origin], flags].concat())
}

#[test]
fn top_prints_one_frame_where_there_is_no_terminal() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &[]);
    let empty = said(&home, &["top"]);
    assert!(
        empty.starts_with("Larder ") && empty.contains("No requests yet") && empty.contains("curl http://"),
        "{empty}"
    );
    assert_eq!((larder.get("/a").status, larder.get("/a?secret").status), (200, 200));
    let mut frame = String::new();
    for _ in 0..1000 {
        frame = said(&home, &["top", "--once"]);
        if frame.contains("/a?...") {
            break;
        }
    }
    for words in [
        "working",
        "last minute",
        "Requests per second",
        "www.example.test",
        "/a?...",
        "store.larder",
        "healthy",
        "Memory: ",
    ] {
        assert!(frame.contains(words), "no {words} in {frame}");
    }
    assert!(!frame.contains("secret"), "{frame}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn top_says_what_to_do_without_a_proxy() {
    let home = TempDir::new().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let told = refused(&home, &["top", "--admin", &nobody], 1);
    assert!(
        told.contains("cannot connect to the admin listener") && told.contains("start the proxy with --admin"),
        "{told}"
    );
}

#[test]
fn figures_outlive_a_kill() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &[]);
    assert_eq!(larder.get("/a").status, 200);
    let kept = || {
        let folder = home.path().join("cache/larder");
        fs::read_to_string(folder.join("store.larder.figures")).is_ok_and(|text| text.contains("TCP_MISS"))
    };
    for _ in 0..3000 {
        if kept() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert!(kept(), "nothing was written down");
    // This kills it.
    drop(larder);
    let larder = start(&home, &origin, &[]);
    let frame = said(&home, &["top", "--once"]);
    let ever = frame.lines().find(|line| line.starts_with("in total")).unwrap();
    assert_eq!(ever.split_whitespace().nth(4), Some("1"), "{frame}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn a_log_is_written_in_the_form_that_is_asked_for() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let path = home.path().join("access.log");
    let log = path.to_str().unwrap();
    let form = "%m %U %s %{result}x \"%{User-Agent}i\"";
    let larder = start(&home, &origin, &["--access-log", log, "--log-format", form]);
    assert_eq!(larder.get("/a?token=secret").status, 200);
    assert_eq!(larder.stop(), Some(0));
    assert_eq!(fs::read_to_string(&path).unwrap(), "GET http://www.example.test/a? 200 miss \"-\"\n");
    let wrong = run(&home, &["run", "--access-log", log, "--log-format", "combine"]);
    let told = errors(&wrong);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(told.contains("unknown log format: `combine`") && told.contains("combined, json"), "{told}");
}
