//! At stake: that who loses the line can say so to the proxy that runs, and is told what is so.

use crate::{
    origin::Origin,
    process::{Larder, errors, run},
};
use std::net::TcpListener;
use tempfile::TempDir;

/// A proxy of this user, on the default store, in front of `origin`.
fn start(home: &TempDir, origin: &Origin, flags: &[&str]) -> Larder {
    let origin = format!("http://{}", origin.address);
    Larder::start(home, &[&["--size", "64MiB", "--origin", &origin], flags].concat())
}

#[test]
fn commands_find_the_proxy_that_runs_and_take_it_offline_and_back() {
    let (home, origin) = (TempDir::new().unwrap(), Origin::start());
    let larder = start(&home, &origin, &[]);
    assert_eq!(larder.get("/a").status, 200);
    let offline = |word: &str| {
        let output = run(&home, &["offline", word]);
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(offline("status"), "off: origins are asked\n");
    assert!(offline("on").starts_with("on: no origin is asked"));
    assert_eq!((larder.get("/a").status, larder.get("/b").status), (200, 504));
    let explained = run(&home, &["explain", "http://www.example.test/b"]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("answer   504"), "{}", errors(&explained));
    assert!(offline("off").starts_with("off: "));
    assert_eq!(larder.get("/b").status, 200);
    assert_eq!(origin.count(), 2);
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn it_starts_as_the_configuration_says_and_says_so() {
    let (home, origin) = (TempDir::new().unwrap(), Origin::start());
    let larder = start(&home, &origin, &["--offline", "on"]);
    assert!(larder.start_lines.contains("  offline  on: no origin is asked"), "{}", larder.start_lines);
    assert_eq!((larder.get("/a").status, origin.count()), (504, 0));
    let wrong = run(&home, &["run", "--offline", "sometimes"]);
    let told = errors(&wrong);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(told.contains("not when to be offline: `sometimes`") && told.contains("help: "), "{told}");
}

#[test]
fn without_a_proxy_it_is_said_what_to_do() {
    let home = TempDir::new().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let failed = run(&home, &["offline", "on", "--admin", &nobody]);
    let told = errors(&failed);
    assert_eq!(failed.status.code(), Some(1));
    assert!(told.contains(&format!("cannot ask the proxy: Connection refused (os error 111): {nobody}")), "{told}");
    assert!(told.contains("help: start the proxy with --admin"), "{told}");
}
