//! Protects the key of the local CA, with which its holder can impersonate any `https://` site, and trust that is shown
//! and can be revoked.

use crate::process::{command, run};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Output,
};
use tempfile::TempDir;

fn directory(home: &TempDir) -> PathBuf {
    home.path().join("data/larder/ca")
}

/// Runs `larder ca` with the usual directory in `home`.
fn ca(home: &TempDir, arguments: &[&str]) -> Output {
    command(home.path()).env("XDG_DATA_HOME", home.path().join("data")).arg("ca").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn refused(output: &Output, code: i32, told: &str) {
    let errors = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(told) && errors.contains("help:"), "{told:?} is not in {errors}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn authority_is_made_once_for_its_owner_alone_and_its_key_is_never_printed() {
    let home = TempDir::new().unwrap();
    refused(&ca(&home, &["show"]), 1, "larder ca init");
    let made = ca(&home, &["init", "--host", "pypi.org", "--host", "*.debian.org"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let key = directory(&home).join("ca.key");
    let certificate = directory(&home).join("ca.pem");
    assert_eq!((mode(&directory(&home)), mode(&key)), (0o700, 0o600));
    let secret = fs::read_to_string(&key).unwrap();
    let shown = ca(&home, &["show"]);
    let exported = ca(&home, &["export"]);
    for output in [&made, &shown, &exported] {
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(!printed.contains("PRIVATE") && !printed.contains(secret.lines().nth(1).unwrap()), "{printed}");
    }
    assert_eq!(text(&exported.stdout), fs::read_to_string(&certificate).unwrap());
    let shown = text(&shown.stdout);
    assert!(shown.contains("hosts     pypi.org, debian.org and their subdomains only\n"), "{shown}");
    assert!(shown.contains("expires   in 729 days\n"), "{shown}");
    assert!(!text(&made.stderr).contains("warning"), "{}", text(&made.stderr));
    refused(&ca(&home, &["init"]), 1, "a CA already exists");
    assert_eq!(fs::read_to_string(&key).unwrap(), secret);
}

/// Guards against a key that, once it is stolen, opens everything that its clients read.
#[test]
fn authority_for_every_name_is_made_with_a_warning() {
    let home = TempDir::new().unwrap();
    let made = ca(&home, &["init"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stderr).contains("warning: this CA can sign for any host"), "{}", text(&made.stderr));
    let narrower = ca(&home, &["rotate", "--host", "pypi.org"]);
    assert!(narrower.status.success() && !text(&narrower.stderr).contains("warning"), "{}", text(&narrower.stderr));
}

#[test]
fn rotation_of_no_authority_makes_none() {
    let home = TempDir::new().unwrap();
    for flags in [&["rotate"][..], &["rotate", "--host", "pypi.org"]] {
        refused(&ca(&home, flags), 1, "create one with larder ca init");
        assert!(!home.path().join("data").exists(), "{flags:?}");
    }
}

#[test]
fn rotation_makes_another_for_the_same_hosts() {
    let home = TempDir::new().unwrap();
    let print =
        |output: Output| text(&output.stdout).lines().find(|line| line.starts_with("sha256")).map(str::to_owned);
    let first = print(ca(&home, &["init", "--host", "pypi.org"]));
    let second = ca(&home, &["rotate"]);
    assert!(text(&second.stdout).contains("hosts     pypi.org and their subdomains"), "{}", text(&second.stdout));
    let second = print(second);
    assert!(first.is_some() && second.is_some() && first != second);
    assert!(
        text(&ca(&home, &["rotate", "--host", "crates.io"]).stdout)
            .contains("hosts     crates.io and their subdomains")
    );
    assert_eq!(mode(&directory(&home).join("ca.key")), 0o600);
}

#[test]
fn key_that_is_not_ours_alone_or_not_the_authoritys_is_not_used() {
    let home = TempDir::new().unwrap();
    let kept = directory(&home).display().to_string();
    let config = home.path().join("larder.toml");
    fs::write(&config, format!("[intercept]\nhosts = [\"pypi.org\"]\nca_dir = \"{kept}\"\n")).unwrap();
    let start = || run(&home, &["config", "check", config.to_str().unwrap()]);
    refused(&start(), 1, "larder ca init --dir");
    assert!(ca(&home, &["init", "--host", "pypi.org"]).status.success());
    assert!(start().status.success());
    let key = directory(&home).join("ca.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    refused(&start(), 1, "other users may read the CA's key");
    refused(&ca(&home, &["show"]), 1, "chmod 600");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let other = TempDir::new().unwrap();
    assert!(ca(&other, &["init"]).status.success());
    fs::copy(directory(&other).join("ca.key"), &key).unwrap();
    refused(&start(), 1, "does not match the private key");
    fs::write(&key, "nothing").unwrap();
    refused(&start(), 1, "the private key is not");
    assert!(
        ca(&home, &["rotate", "--host", "crates.io"]).status.success(),
        "what cannot be used is what rotating is for"
    );
    refused(&start(), 2, "may not sign for a host to intercept: pypi.org");
}

#[test]
fn trust_says_what_it_did_and_is_taken_back() {
    let home = TempDir::new().unwrap();
    let programs = TempDir::new().unwrap();
    let store = home.path().join("system");
    fs::create_dir(&store).unwrap();
    let program = |name: &str, text: &str| {
        let path = programs.path().join(name);
        fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> {}/calls\n{text}\n", programs.path().display()))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let trust = |more: &[&str]| {
        let mut command = command(home.path());
        command.env("XDG_DATA_HOME", home.path().join("data")).env("PATH", programs.path());
        command.args(["ca", "trust", "--system-store", store.to_str().unwrap()]).args(more).output().unwrap()
    };
    refused(&trust(&[]), 1, "larder ca init");
    assert!(ca(&home, &["init"]).status.success());
    refused(&trust(&[]), 1, "no trust store was changed");
    fs::remove_file(store.join("larder-local-ca.crt")).unwrap();
    program("update-ca-certificates", "");
    program("certutil", "exit 0");
    let told = text(&trust(&[]).stdout);
    let file = store.join("larder-local-ca.crt");
    assert_eq!(fs::read(&file).unwrap(), fs::read(directory(&home).join("ca.pem")).unwrap());
    for expected in
        [&format!("system   added {}", file.display()), "nss      added to sql:", "undo     larder ca trust --undo"]
    {
        assert!(told.contains(expected), "{expected:?} is not in {told}");
    }
    let undone = trust(&["--undo"]);
    assert!(undone.status.success() && !file.exists(), "{}", text(&undone.stdout));
    let calls = fs::read_to_string(programs.path().join("calls")).unwrap();
    assert_eq!(calls.matches("update-ca-certificates").count(), 2, "{calls}");
    assert!(calls.contains("-A -n Larder local CA -t C,, -i") && calls.contains("-D -n Larder"), "{calls}");
}
