//! At stake: a Larder that runs, and commands that claim that none does, or that talk to another one than was meant.

use crate::process::{Larder, command, errors, refused, said};
use std::fs;
use tempfile::TempDir;

/// Asks the Larder that is found in this environment whether it is offline; gives whether one is found, and what is said.
fn status(home: &TempDir, environment: &[(&str, &str)]) -> (bool, String) {
    let output = command(home.path()).envs(environment.iter().copied()).args(["offline", "status"]).output().unwrap();
    (output.status.success(), errors(&output))
}

#[test]
fn proxy_on_a_disk_of_its_own_is_found_without_a_runtime_directory() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("my.store");
    let larder = Larder::start(&home, &["--disk", store.to_str().unwrap(), "--size", "64MiB"]);
    assert!(!larder.start_lines.contains("warning"), "{}", larder.start_lines);
    said(&home, &["reload"]);
    assert_eq!(larder.stop(), Some(0));
    refused(&home, &["reload"], 1);
}

#[test]
fn socket_is_in_the_temporary_directory_where_there_is_no_better_place() {
    let home = TempDir::new().unwrap();
    let (file, temporary) = (home.path().join("file"), home.path().join("tmp"));
    fs::write(&file, "").unwrap();
    fs::create_dir(&temporary).unwrap();
    let (cache, temporary) = (file.to_str().unwrap(), temporary.to_str().unwrap());
    let environment = [("XDG_CACHE_HOME", cache), ("TMPDIR", temporary)];
    let larder = Larder::start_in(&home, &environment, &["--disk", "none"]);
    assert!(!larder.start_lines.contains("warning"), "{}", larder.start_lines);
    assert!(status(&home, &environment).0);
    assert_eq!(larder.stop(), Some(0));
    assert!(!status(&home, &environment).0);
}

#[test]
fn start_warns_with_the_path_where_no_socket_can_be_made() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let place = file.to_str().unwrap();
    let larder = Larder::start_in(&home, &[("XDG_CACHE_HOME", place), ("TMPDIR", place)], &["--disk", "none"]);
    let warning = larder.start_lines.lines().find(|line| line.starts_with("  warning ")).unwrap_or_default();
    assert!(warning.contains("do not find this proxy") && warning.contains(&format!("{place}/larder-")), "{warning}");
    assert_eq!(larder.stop(), Some(0));
}

#[test]
fn several_larders_are_listed_and_one_is_chosen() {
    let home = TempDir::new().unwrap();
    let [first, second] = [(); 2].map(|()| Larder::start(&home, &["--disk", "none"]));
    let socket = home.path().join(format!("cache/larder/control-{}.sock", second.id()));
    let (is_found, told) = status(&home, &[]);
    assert!(!is_found && told.contains("several larders run: ") && told.contains("LARDER_CONTROL="), "{told}");
    for larder in [&first, &second] {
        assert!(told.contains(&format!("(listens on {})", larder.address)), "{told}");
    }
    let chosen = ("LARDER_CONTROL", socket.to_str().unwrap());
    assert!(status(&home, &[chosen]).0);
    assert_eq!(second.stop(), Some(0));
    let (is_found, told) = status(&home, &[chosen]);
    assert!(!is_found && told.contains("no larder listens where LARDER_CONTROL says"), "{told}");
    assert!(status(&home, &[]).0, "one is left");
    assert_eq!(first.stop(), Some(0));
}
