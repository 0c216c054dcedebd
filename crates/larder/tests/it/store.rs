//! Guards against a store destroyed by a command that should only read it, or damage that is not reported.

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

/// Runs `larder store`. Returns the exit code, and the output on one line.
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

/// Returns the number of entries that the command reports.
#[track_caller]
fn entries(home: &TempDir, arguments: &[&str]) -> u64 {
    let (_, said) = store(home, arguments);
    let (_, rest) = said.split_once("entries ").unwrap_or_else(|| panic!("no entries: {said}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn info_and_check_without_a_path_look_at_the_default_store() {
    let home = TempDir::new().unwrap();
    for command in ["info", "check"] {
        check(&home, &[command], 1, &["there is no such default store: ", "cache/larder/store.larder", "larder run"]);
    }
    assert_eq!(Larder::start(&home, &["--size", "64MiB"]).stop(), Some(0));
    for command in ["info", "check"] {
        check(&home, &[command], 0, &["cache/larder/store.larder", "entries 0 "]);
    }
}

#[test]
fn a_formatted_store_is_used_as_it_is() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let path = home.path().join("store.larder");
    let shown = path.to_str().unwrap();
    check(
        &home,
        &["format", shown, "--size", "80MiB", "--policy", "log"],
        0,
        &["an empty store of 83.9 MB, policy log"],
    );
    check(
        &home,
        &["info", shown],
        0,
        &["policy log: ", "size 83.9 MB", "format 4, with probation", "entries 0 (room for about 10,240 of 8.19 kB)"],
    );
    let address = format!("http://{}", origin.address);
    let larder = Larder::start(&home, &["--disk", shown, "--origin", &address]);
    assert!(larder.start_lines.contains(": 83.9 MB on "), "{}", larder.start_lines);
    assert!(larder.start_lines.contains(", policy log\n"), "{}", larder.start_lines);
    // An empty store has no entries to divide by.
    assert!(!larder.start_lines.contains("bits per entry"), "{}", larder.start_lines);
    for number in 0..20 {
        assert_eq!(larder.get(&format!("/{number}")).status, 200);
    }
    check(&home, &["check", shown], 1, &["in use by another process"]);
    assert_eq!(larder.stop(), Some(0));
    // On a busy machine, the proxy may have skipped storing.
    let entries = entries(&home, &["info", shown]);
    assert!((10..=20).contains(&entries), "{entries}");
    check(&home, &["check", shown], 0, &[&format!("entries {entries} whole"), "damaged nothing"]);
}

#[test]
fn formatting_names_what_it_would_destroy_and_wants_to_be_told_twice() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("store.larder");
    let letter = home.path().join("letter");
    let shown = path.to_str().unwrap();
    check(&home, &["format", shown, "--size", "64MiB"], 0, &[]);
    let before = fs::read(&path).unwrap();
    check(&home, &["format", shown], 1, &["holds a store of 67.1 MB, policy log", "add --force"]);
    assert!(fs::read(&path).unwrap() == before);
    check(&home, &["format", shown, "--force"], 0, &["destroyed a store of 67.1 MB", "an empty store of 67.1 MB"]);
    assert!(fs::read(&path).unwrap() != before, "it is another store");
    fs::write(&letter, "dear").unwrap();
    check(&home, &["format", letter.to_str().unwrap(), "--force"], 1, &["is not a Larder store"]);
    assert_eq!(fs::read(&letter).unwrap(), b"dear");
    check(&home, &["info", letter.to_str().unwrap()], 1, &["is not a Larder store"]);
    let missing = home.path().join("none");
    check(&home, &["check", missing.to_str().unwrap()], 1, &[missing.to_str().unwrap()]);
}

#[test]
fn check_finds_damage_and_its_exit_code_says_so() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = Larder::start_reverse(&home, origin.address);
    for number in 0..5 {
        larder.get(&format!("/{number}"));
    }
    assert_eq!(larder.stop(), Some(0));
    let path = home.path().join("store.larder");
    let bytes = fs::read(&path).unwrap();
    let record = (0..bytes.len()).step_by(8).find(|at| bytes[*at..].starts_with(b"LDRr")).unwrap() as u64;
    let flipped = bytes[record as usize + 9] ^ 0xFF;
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[flipped], record + 9).unwrap();
    let place = format!("a record's head at byte {record}");
    check(&home, &["check", path.to_str().unwrap()], 1, &[&place, "1 damaged place in"]);
}

/// Guards against a policy that is in the table but does not work in the program.
#[test]
fn every_policy_proxies_and_remembers() {
    let origin = Origin::start();
    let address = format!("http://{}", origin.address);
    for policy in larder_store::Policy::all() {
        let home = TempDir::new().unwrap();
        let path = home.path().join("store");
        let shown = path.to_str().unwrap();
        let flags = ["--disk", shown, "--size", "64MiB", "--memory-cache", "1MB", "--origin", &address];
        let larder = Larder::start(&home, &[&flags[..], &["--policy", policy.name]].concat());
        assert!(larder.start_lines.contains(&format!(", policy {policy}\n")), "{}", larder.start_lines);
        for number in 0..10 {
            let page = format!("/{policy}/{number}");
            assert_eq!((larder.get(&page).body, larder.get(&page).body), (page.clone(), page));
        }
        assert_eq!(larder.stop(), Some(0));
        // The responses are in the store.
        let larder = Larder::start(&home, &["--disk", shown, "--memory-cache", "1MB", "--origin", &address]);
        assert!(larder.start_lines.contains(&format!(", policy {policy}\n")), "{}", larder.start_lines);
        assert_eq!(larder.get(&format!("/{policy}/0")).body, format!("/{policy}/0"));
        assert_eq!(larder.stop(), Some(0));
        check(&home, &["check", shown], 0, &["damaged nothing"]);
        check(&home, &["info", shown], 0, &[&format!("policy {policy}: ")]);
    }
}

#[test]
fn several_disks_are_one_store() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
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

/// Returns a command line of `larder run` with these disks.
fn run_with<'a>(disks: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let disks = disks.iter().flat_map(|disk| ["--disk", disk]);
    ["run", "--listen", "127.0.0.1:0"].into_iter().chain(disks).chain(more.iter().copied()).collect()
}

/// Runs larder, which must fail with 1, print all of `expected`, and create nothing in `home`.
#[track_caller]
fn check_refused(home: &TempDir, arguments: &[&str], expected: &[&str]) {
    let names = || {
        let entries = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let before = names();
    let Output { status, stderr, .. } = run(home, arguments);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
    let words = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    for text in expected {
        assert!(words.contains(text), "{arguments:?}: {text:?} is not in {said}");
    }
    assert_eq!(names(), before, "{arguments:?} made something");
}

#[test]
fn of_several_disks_the_one_that_is_wrong_is_named_and_the_good_one_left_alone() {
    let home = TempDir::new().unwrap();
    let paths = ["good", "garbage", "new"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    let [good, garbage, new] = paths.each_ref().map(String::as_str);
    check(&home, &["format", good, "--size", "64MiB"], 0, &[]);
    fs::write(garbage, vec![7; 64 << 20]).unwrap();
    let named = format!("cannot use {garbage} as the store: it exists and is not a Larder store");
    let help = format!("help: nothing was changed; give another --disk path, or move {garbage} away");
    check_refused(&home, &run_with(&[good, garbage], &[]), &[&named, &help]);
    check_refused(&home, &run_with(&[new, garbage], &["--size", "64MiB"]), &[&named, &help]);
    let named = format!("cannot use {good} as the store: it is a store of 67.1 MB (67108864 bytes), not 134 MB (");
    check_refused(&home, &run_with(&[new, good], &["--size", "64MiB", "--size", "128MiB"]), &[&named]);
    std::os::unix::fs::symlink(good, new).unwrap();
    let twice = run(&home, &run_with(&[good, new], &[]));
    let named = format!("a disk is given twice: {new} is {good}");
    assert!(String::from_utf8_lossy(&twice.stderr).contains(&named), "{twice:?}");
    assert_eq!(twice.status.code(), Some(2));
}

#[test]
fn a_store_of_another_policy_gets_no_second_store_inside() {
    let home = TempDir::new().unwrap();
    let paths = ["files", "folder"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    let [files, folder] = paths.each_ref().map(String::as_str);
    let keeps_files = larder_store::Policy::all().iter().find(|policy| policy.layout.keeps_files()).unwrap();
    check(&home, &["format", files, "--policy", keeps_files.name, "--size", "64MiB"], 0, &[]);
    let named = format!("as the store: it is a store of policy {keeps_files}, not log");
    check_refused(&home, &run_with(&[files], &["--policy", "log"]), &[&named, "start without --policy"]);
    assert!(!home.path().join("files/store.larder").exists());
    fs::create_dir(folder).unwrap();
    let inner = home.path().join("folder/store.larder");
    check(&home, &["format", inner.to_str().unwrap(), "--size", "64MiB"], 0, &[]);
    let named = format!("it is a store of policy log, not {keeps_files}");
    check_refused(&home, &run_with(&[folder], &["--policy", keeps_files.name]), &[&named]);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    check(&home, &["info", folder], 0, &["policy log: "]);
}

#[test]
fn a_missing_disk_is_gone_without_and_named_and_nothing_is_made_in_its_place() {
    let home = TempDir::new().unwrap();
    let paths = ["there", "gone"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    let [there, gone] = paths.each_ref().map(String::as_str);
    check(&home, &["format", there, "--size", "64MiB"], 0, &[]);
    for (missing, why) in [(gone, "there is no store; mount the disk, or"), ("/dev/fd/disk", "no such device")] {
        let larder = Larder::start(&home, &["--disk", there, "--disk", missing]);
        let warning = format!("  warning  {missing}: not in use, its share of the keys misses: {why}");
        assert!(larder.start_lines.contains(&warning), "{}", larder.start_lines);
        assert_eq!(larder.stop(), Some(0));
        assert!(!fs::exists(missing).unwrap());
    }
    let alone = ["run", "--listen", "127.0.0.1:0", "--disk", "/dev/fd/disk"];
    check_refused(&home, &alone, &["cannot use /dev/fd/disk as the store: no such device", "lsblk"]);
    assert!(!fs::exists("/dev/fd/disk").unwrap());
}

#[test]
fn what_is_not_there_is_told_by_the_commands_that_look() {
    let home = TempDir::new().unwrap();
    let gone = home.path().join("gone");
    for command in ["info", "check"] {
        check(&home, &[command, gone.to_str().unwrap()], 1, &["no such file: ", "as for --disk"]);
    }
}

/// Guards against a cache that is lost to a command that should improve it.
#[test]
fn upgrade_says_first_what_it_loses_and_ends_with_the_newest_format() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("store.larder");
    let shown = path.to_str().unwrap();
    // A fixture has the non-zero sectors of a closed store, each preceded by its number.
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/format-1/log.sectors");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).unwrap();
    for piece in fs::read(fixture).unwrap().chunks_exact(4 + 512) {
        let (number, sector) = piece.split_first_chunk().unwrap();
        file.write_all_at(sector, u64::from(u32::from_le_bytes(*number)) * 512).unwrap();
    }
    let entries_before = entries(&home, &["info", shown]);
    assert!(entries_before > 0);
    check(&home, &["info", shown], 0, &["format 1 "]);
    let lost = format!("all its {entries_before} entries");
    check(&home, &["upgrade", shown], 1, &[&lost, "would be lost", "nothing was changed", "--yes"]);
    check(&home, &["info", shown], 0, &["format 1 "]);
    assert_eq!(entries(&home, &["info", shown]), entries_before);
    check(&home, &["upgrade", shown, "--yes"], 0, &["from format 1 to 4", &lost, "upgraded to format 4"]);
    check(&home, &["upgrade", shown], 0, &["format 4 is the newest one of its policy; nothing to do"]);
    let other = home.path().join("other.larder");
    let shown = other.to_str().unwrap();
    check(
        &home,
        &["format", shown, "--size", "64MiB", "--policy", "stream", "--tune", "map_journal=off"],
        0,
        &["an empty store"],
    );
    let before = fs::read(&other).unwrap();
    check(&home, &["upgrade", shown], 1, &["all its 0 entries would be lost", "nothing was changed", "--yes"]);
    assert!(fs::read(&other).unwrap() == before);
    check(&home, &["upgrade", shown, "--yes"], 0, &["from format 1 to 2", "upgraded to format 2"]);
    check(&home, &["upgrade"], 1, &["there is no such default store"]);
}

#[test]
fn info_names_a_mean_size_of_entries_only_where_the_index_assumes_one() {
    let home = TempDir::new().unwrap();
    for (policy, names_mean) in [("log", false), ("hashcache-log", true)] {
        let path = home.path().join(policy);
        let shown = path.to_str().unwrap();
        check(&home, &["format", shown, "--size", "64MiB", "--policy", policy], 0, &[]);
        let (_, said) = store(&home, &["info", shown]);
        assert_eq!(said.contains("on average"), names_mean, "{said}");
    }
}
