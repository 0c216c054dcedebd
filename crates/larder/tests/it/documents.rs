//! Guards against an example that is copied from the documentation and does not work.

mod command_line;
mod compare;
mod console;
mod fences;
mod session;
mod standin;
mod status_fields;
mod steps;

use crate::process::{errors, run};
use fences::{Fence, fences};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A user and a password as `htpasswd -B` writes them.
const PASSWORDS: &str = "user:$2y$05$abcdefghijklmnopqrstuuO2xvmq6XxYH9vGnIxBDbEhMyZJZ3bC2\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns every document for readers, with its name.
fn documents() -> Vec<(String, String)> {
    let mut folders = vec![root().join("docs")];
    let mut files = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => files.push(path),
                _ => {}
            }
        }
    }
    files.into_iter().map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// Creates the files that the examples name, below `home`.
fn make_files(home: &TempDir) {
    let [etc, lib, log] = ["etc", "lib", "log"].map(|name| home.path().join(name));
    for folder in [&etc, &lib, &log] {
        fs::create_dir(folder).unwrap();
    }
    let made = run(home, &["ca", "init", "--dir", lib.join("ca").to_str().unwrap()]);
    assert!(made.status.success(), "{}", errors(&made));
    for (name, from) in [("example.pem", "ca.pem"), ("example.key", "ca.key"), ("origins.pem", "ca.pem")] {
        fs::copy(lib.join("ca").join(from), etc.join(name)).unwrap();
    }
    for (name, text) in [
        ("hosts", "0.0.0.0 ads.example\n"),
        ("allowed", "example.com\n"),
        ("school", "example.org\n"),
        ("passwords", PASSWORDS),
        ("tokens", "read 5d1f0c7be7a94a1f9a0e2c63b1f80d27\n"),
        ("fleet.secret", "0123456789abcdef0123456789abcdef\n"),
        ("tier-secret", "0123456789abcdef0123456789abcdef\n"),
    ] {
        fs::write(etc.join(name), text).unwrap();
        fs::set_permissions(etc.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn every_configuration_in_the_documentation_passes_config_check() {
    let home = TempDir::new().unwrap();
    make_files(&home);
    let file = home.path().join("larder.toml");
    let place = |folder: &str| format!("{}/{folder}/", home.path().display());
    let check = |name: &str, text: &str| {
        let here = text
            .replace("/etc/larder/", &place("etc"))
            .replace("/var/lib/larder/", &place("lib"))
            .replace("/var/cache/larder/", &place("lib"))
            .replace("\"/var/cache/larder\"", &format!("\"{}\"", place("lib")))
            .replace("/mnt/array/", &place("lib"))
            .replace("/dev/sdb", &format!("{}sdb", place("lib")))
            .replace("/var/log/larder/", &place("log"));
        // A node's folders have its name.
        let here = here.replace("/var/cache/larder-a/", &place("lib")).replace("/var/log/larder-a/", &place("log"));
        fs::write(&file, here).unwrap();
        // It may have a password.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let checked = run(&home, &["config", "check", file.to_str().unwrap()]);
        (!checked.status.success()).then(|| format!("{name}: {}", errors(&checked)))
    };
    let mut count = 0;
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        // A block with a file name belongs to a page whose commands use that file (see `console`).
        let is_here = |block: &&Fence| cfg!(feature = "tier-s3") || block.reason_to_ignore() != Some("tier-s3");
        let is_checked = |block: &&Fence| block.language == "toml" && block.file_name().is_none();
        for block in fences(&text).iter().filter(is_checked).filter(is_here) {
            wrong.extend(check(&format!("{name}:{}", block.line), &block.text()));
            count += 1;
        }
    }
    for name in ["packaging/larder.toml", "deploy/a.toml"] {
        wrong.extend(check(name, &fs::read_to_string(root().join(name)).unwrap()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 7, "the documentation has examples: {count}");
}
