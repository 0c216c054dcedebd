//! At stake: a store destroyed by a command that was only to look, or damage that nobody is told of.

use crate::{
    origin::Origin,
    process::{Larder, run},
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    process::Output,
};
use tempfile::TempDir;

/// Runs `larder store`; gives the exit code and everything it says, on one line.
fn store(home: &TempDir, arguments: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = run(home, &[&["store"], arguments].concat());
    let said = [stdout, stderr].concat();
    let words = String::from_utf8(said).unwrap();
    let words = words.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    (status.code().unwrap(), words)
}

#[track_caller]
fn check(home: &TempDir, arguments: &[&str], code: i32, expected: &[&str]) {
    let (found, said) = store(home, arguments);
    assert_eq!(found, code, "{arguments:?}: {said}");
    for text in expected {
        assert!(said.contains(text), "{arguments:?}: {text:?} is not in {said}");
    }
}

/// How many entries the command says there are.
#[track_caller]
fn entries(home: &TempDir, arguments: &[&str]) -> u64 {
    let (_, said) = store(home, arguments);
    let (_, rest) = said.split_once("entries ").unwrap_or_else(|| panic!("no entries: {said}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_formatted_store_is_used_as_it_is() {
    let (home, origin) = (TempDir::new().unwrap(), Origin::start());
    let path = home.path().join("store.larder");
    let shown = path.to_str().unwrap();
    check(
        &home,
        &["format", shown, "--size", "80MiB", "--policy", "log"],
        0,
        &["an empty store of 83.9 MB, policy log"],
    );
    check(&home, &["info", shown], 0, &["policy log: ", "size 83.9 MB", "entries 0 of at most"]);
    let address = format!("http://{}", origin.address);
    let larder = Larder::start(&home, &["--disk", shown, "--origin", &address]);
    assert!(larder.start_lines.contains(": 83.9 MB on "), "{}", larder.start_lines);
    assert!(larder.start_lines.contains(", policy log\n"), "{}", larder.start_lines);
    assert!(larder.start_lines.contains(" bits an entry\n"), "{}", larder.start_lines);
    for number in 0..20 {
        assert_eq!(larder.get(&format!("/{number}")).status, 200);
    }
    check(&home, &["check", shown], 1, &["in use by another process"]);
    assert_eq!(larder.stop(), Some(0));
    // On a machine that is busy elsewhere the proxy may go without storing.
    let entries = entries(&home, &["info", shown]);
    assert!((10..=20).contains(&entries), "{entries}");
    check(&home, &["check", shown], 0, &[&format!("entries {entries} whole"), "damaged nothing"]);
}

#[test]
fn formatting_names_what_it_would_destroy_and_wants_to_be_told_twice() {
    let home = TempDir::new().unwrap();
    let (path, letter) = (home.path().join("store.larder"), home.path().join("letter"));
    let shown = path.to_str().unwrap();
    check(&home, &["format", shown, "--size", "64MiB"], 0, &[]);
    let before = fs::read(&path).unwrap();
    check(&home, &["format", shown], 1, &["holds a store of 67.1 MB, policy log", "add --force"]);
    assert!(fs::read(&path).unwrap() == before);
    check(&home, &["format", shown, "--force"], 0, &["destroyed a store of 67.1 MB", "an empty store of 67.1 MB"]);
    assert!(fs::read(&path).unwrap() != before, "it is another store");
    fs::write(&letter, "dear").unwrap();
    check(&home, &["format", letter.to_str().unwrap(), "--force"], 1, &["something that is no store"]);
    assert_eq!(fs::read(&letter).unwrap(), b"dear");
    check(&home, &["info", letter.to_str().unwrap()], 1, &["is no larder store"]);
    check(&home, &["check", "/nonexistent/store"], 1, &["/nonexistent/store"]);
}

#[test]
fn check_finds_damage_and_its_exit_code_says_so() {
    let (home, origin) = (TempDir::new().unwrap(), Origin::start());
    let larder = Larder::start_reverse(&home, origin.address);
    for number in 0..5 {
        larder.get(&format!("/{number}"));
    }
    assert_eq!(larder.stop(), Some(0));
    let path = home.path().join("store.larder");
    let bytes = fs::read(&path).unwrap();
    let record = (0..bytes.len()).step_by(512).find(|at| bytes[*at..].starts_with(b"LDRr")).unwrap() as u64;
    let flipped = bytes[record as usize + 9] ^ 0xFF;
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[flipped], record + 9).unwrap();
    let place = format!("a record's head at byte {record}");
    check(&home, &["check", path.to_str().unwrap()], 1, &[&place, "1 damaged places"]);
}

/// At stake: a policy that exists in the table and not in the program.
#[test]
fn every_policy_proxies_and_remembers() {
    let origin = Origin::start();
    let address = format!("http://{}", origin.address);
    for policy in larder_store::Policy::all() {
        let home = TempDir::new().unwrap();
        let path = home.path().join("store");
        let shown = path.to_str().unwrap();
        let flags = ["--disk", shown, "--size", "64MiB", "--memory", "1MB", "--origin", &address];
        let larder = Larder::start(&home, &[&flags[..], &["--policy", policy.name]].concat());
        assert!(larder.start_lines.contains(&format!(", policy {policy}\n")), "{}", larder.start_lines);
        for number in 0..10 {
            let page = format!("/{policy}/{number}");
            assert_eq!((larder.get(&page).body, larder.get(&page).body), (page.clone(), page));
        }
        assert_eq!(larder.stop(), Some(0));
        // What was said is in the store.
        let larder = Larder::start(&home, &["--disk", shown, "--memory", "1MB", "--origin", &address]);
        assert!(larder.start_lines.contains(&format!(", policy {policy}\n")), "{}", larder.start_lines);
        assert_eq!(larder.get(&format!("/{policy}/0")).body, format!("/{policy}/0"));
        assert_eq!(larder.stop(), Some(0));
        check(&home, &["check", shown], 0, &["damaged nothing"]);
        check(&home, &["info", shown], 0, &[&format!("policy {policy}: ")]);
    }
}

#[test]
fn several_disks_are_one_store() {
    let (home, origin) = (TempDir::new().unwrap(), Origin::start());
    let paths = ["a", "b"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    let address = format!("http://{}", origin.address);
    let flags = ["--disk", &paths[0], "--disk", &paths[1], "--size", "64MiB", "--size", "128MiB", "--origin", &address];
    let larder = Larder::start(&home, &flags);
    for number in 0..200 {
        larder.get(&format!("/{number}"));
    }
    assert!(larder.start_lines.contains("/a: 67.1 MB on ") && larder.start_lines.contains("/b: 134 MB on "));
    assert_eq!(larder.stop(), Some(0));
    let counts = paths.each_ref().map(|path| entries(&home, &["check", path]));
    assert!((190..=200).contains(&counts.iter().sum::<u64>()), "{counts:?}");
    assert!(counts[0] > 0 && counts[1] > counts[0], "each takes a share by its size: {counts:?}");
}
