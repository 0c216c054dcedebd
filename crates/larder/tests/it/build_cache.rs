//! Build caches of the program. Guards against a build that gets nothing after a restart, and a flag that opens the
//! cache to writers whom the file excludes.

use crate::process::{Larder, Response, refused};
use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt, path::Path, thread};
use tempfile::TempDir;

fn put(larder: &Larder, path: &str, fields: &str, body: &str) -> Response {
    let length = body.len();
    larder.send(&format!(
        "PUT {path} HTTP/1.1\r\nHost: {}\r\n{fields}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}",
        larder.address
    ))
}

fn write_own(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn results_are_there_after_a_restart() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("store.larder");
    let flags = ["--disk", store.to_str().unwrap(), "--size", "64MiB", "--memory-cache", "1MB", "--build-cache"];
    let larder = Larder::start(&home, &flags);
    let line = "  builds   /cache: writable for your programs on this machine\n";
    assert!(larder.start_lines.contains("forward proxy and build cache"), "{}", larder.start_lines);
    assert!(larder.start_lines.contains(line), "{}", larder.start_lines);
    let long = "0123456789".repeat(300_000);
    assert_eq!(put(&larder, "/cache/short", "", "short").status, 201);
    assert_eq!(put(&larder, "/cache/long", "", &long).status, 201);
    assert_eq!(larder.stop(), Some(0));
    let larder = Larder::start(&home, &flags);
    let short = larder.get("/cache/short");
    let found = larder.get("/cache/long");
    assert_eq!((short.body.as_str(), short.is_hit()), ("short", true));
    assert!(found.body == long && found.is_hit());
}

/// Guards against a build whose last results are gone although each was acknowledged.
#[test]
fn uploads_that_were_acknowledged_survive_a_kill() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("store.larder");
    let flags = ["--disk", store.to_str().unwrap(), "--size", "64MiB", "--memory-cache", "1MB", "--build-cache"];
    let larder = Larder::start(&home, &flags);
    let long = "0123456789".repeat(150_000);
    let body = |path: &str| if path.ends_with("/0") { long.clone() } else { path.repeat(200) };
    let paths: Vec<Vec<String>> =
        (0..4).map(|writer| (0..30).map(|number| format!("/cache/{writer}/{number}")).collect()).collect();
    thread::scope(|scope| {
        for paths in &paths {
            // The longest comes last, so that its chunks are the newest bytes.
            let send = |path: &String| assert_eq!(put(&larder, path, "", &body(path)).status, 201, "{path}");
            scope.spawn(move || paths.iter().rev().for_each(send));
        }
    });
    // SIGKILL, at once after the last response.
    drop(larder);
    let larder = Larder::start(&home, &flags);
    let lost: Vec<&String> = paths.iter().flatten().filter(|path| larder.get(path).body != body(path)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn flag_for_a_path_of_the_file_keeps_its_tokens() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("larder.toml");
    let tokens = home.path().join("tokens");
    write_own(&tokens, "write 0123456789abcdef\n");
    fs::write(&file, format!("[[build_cache]]\npath = \"/cache\"\ntokens = {tokens:?}\n")).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let more = ["--disk", "none", "--build-cache", "/cache", "--build-cache", "/other"];
    let larder = Larder::start(&home, &[&config[..], &more].concat());
    let refused_put = put(&larder, "/cache/x", "", "x");
    assert_eq!(refused_put.status, 401, "{}", refused_put.body);
    assert_eq!(put(&larder, "/cache/x", "Authorization: Bearer 0123456789abcdef\r\n", "x").status, 201);
    assert_eq!(put(&larder, "/other/x", "", "other").status, 201);
    let bodies = ["/cache/x", "/other/x"].map(|path| larder.get(path).body);
    assert_eq!(bodies, ["x", "other"]);
    drop(larder);
    // A file that others can read is no file of tokens.
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o644)).unwrap();
    for command in ["run", "config"] {
        let arguments: Vec<&str> = match command {
            "run" => [&["run"][..], &config].concat(),
            _ => vec!["config", "check", config[1]],
        };
        assert!(refused(&home, &arguments, 2).contains("other users may read it"), "{command}");
    }
}

#[test]
fn one_larder_reads_through_to_another() {
    let home = TempDir::new().unwrap();
    let other = TempDir::new().unwrap();
    let first = Larder::start(&home, &["--disk", "none", "--build-cache"]);
    let SocketAddr::V4(address) = first.address else { panic!("it listens on 127.0.0.1") };
    let file = other.path().join("larder.toml");
    fs::write(
        &file,
        format!("[[build_cache]]\npath = \"/near\"\nlocal_writers = true\norigin = \"http://{address}/cache\"\n"),
    )
    .unwrap();
    let second = Larder::start(&other, &["--config", file.to_str().unwrap(), "--disk", "none"]);
    assert_eq!(put(&first, "/cache/ac/1", "", "one").status, 201);
    for _ in 0..2 {
        assert_eq!(second.get("/near/ac/1").body, "one");
    }
    // The first may have replaced it meanwhile.
    assert_eq!(put(&first, "/cache/ac/1", "", "two").status, 204);
    assert_eq!(second.get("/near/ac/1").body, "two");
    assert_eq!((put(&second, "/near/ac/2", "", "near").status, first.get("/cache/ac/2").status), (201, 404));
    drop(first);
    assert_eq!((second.get("/near/ac/2").body.as_str(), second.get("/near/ac/3").status), ("near", 404));
}
