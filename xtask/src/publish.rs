//! Checks the crates that others can use: `cargo xtask publish` packages and compiles them as a registry would, and
//! `cargo xtask msrv` checks them with the oldest toolchain that they promise, and `cargo xtask semver` compares their
//! interfaces with earlier ones.
//!
//! Owns: the list of these crates. Nothing is uploaded. `cargo publish` finds the order in which the crates must be
//! uploaded by itself, and compiles each package with the packages of the others. larder-pingora is a workspace of its
//! own, and cargo takes only packages of one workspace together. So its package is compiled once larder-cache is in the
//! registry; until then, its list of files and its manifest are checked.

use crate::cargo;
use std::{env, fs, path::Path, process::Command};

/// The published crates of the workspace.
const CRATES: [&str; 6] =
    ["larder-device", "larder-http", "larder-store", "larder-cache", "larder-tower", "larder-reqwest"];
/// The optional features of these crates that programs use. The feature `shuttle` of larder-store is for tests only.
const FEATURES: &str = "larder-store/serde,larder-cache/serde,larder-cache/http";
/// The manifest of larder-pingora, which is a workspace of its own.
const APART: &str = "crates/larder-pingora/Cargo.toml";

/// Packages each crate and compiles it from its package.
pub(crate) fn dry_run(root: &Path) -> bool {
    // A folder of its own, so that other builds need not wait for these.
    let mut arguments = vec!["publish", "--dry-run", "--locked", "--allow-dirty", "--target-dir", "target/publish"];
    CRATES.iter().for_each(|name| arguments.extend(["--package", name]));
    // A package does not have the workspace's profiles, and nobody debugs this build.
    let passed = cargo::succeeds(root, &arguments, &[("CARGO_PROFILE_DEV_DEBUG", "0")])
        && cargo::succeeds(root, &["package", "--list", "--allow-dirty", "--manifest-path", APART], &[]);
    if passed {
        println!("publish: {} packages compile: {}", CRATES.len(), CRATES.join(", "));
        println!(
            "publish: larder-pingora was not compiled from its package: larder-cache must be in the registry first"
        );
    } else {
        eprintln!("publish: failed, as cargo says above; it needs crates.io's index and the crates of Cargo.lock");
    }
    passed
}

/// Checks each crate with its [`FEATURES`], with the oldest toolchain that the workspace supports, if rustup has that
/// toolchain.
pub(crate) fn oldest_toolchain(root: &Path) -> bool {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let Some(version) = rust_version(&manifest) else {
        eprintln!("xtask: Cargo.toml has no rust-version");
        return false;
    };
    let Some(toolchain) = installed(version) else {
        eprintln!(
            "xtask: the toolchain {version} is not installed; install it with `rustup toolchain install {version}`"
        );
        return false;
    };
    println!("msrv: checking with {toolchain}");
    let mut command = Command::new("rustup");
    command.args(["run", &toolchain, "cargo", "check", "--locked", "--target-dir", "target/msrv"]).current_dir(root);
    CRATES.iter().for_each(|name| _ = command.args(["--package", name]));
    command.args(["--features", FEATURES]);
    // cargo sets these for the toolchain that runs xtask.
    command.env_remove("RUSTC").env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    let passed = command.status().is_ok_and(|status| status.success());
    if passed {
        println!("msrv: {} crates compile with {toolchain}: {}", CRATES.len(), CRATES.join(", "));
    } else {
        eprintln!("msrv: failed with {toolchain}; raise `rust-version` in Cargo.toml, or use what {version} has");
    }
    passed
}

/// Compares the interface of each crate with that at `revision`, and requires that its version has changed accordingly.
pub(crate) fn semver(root: &Path, revision: &str) -> bool {
    let mut arguments = vec!["semver-checks", "--baseline-rev", revision];
    CRATES.iter().for_each(|name| arguments.extend(["--package", name]));
    let passed = cargo::succeeds(root, &arguments, &[("CARGO_TARGET_DIR", "target/semver")]);
    if !passed {
        eprintln!(
            "semver: failed, as cargo says above; `cargo install --locked cargo-semver-checks` installs the command"
        );
    }
    passed
}

/// Returns the version in the first line `rust-version = "X.Y"`.
fn rust_version(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(line.trim().trim_matches('"'))
}

/// Returns the name of the installed toolchain of `version`.
fn installed(version: &str) -> Option<String> {
    let rustup = env::var_os("RUSTUP").unwrap_or_else(|| "rustup".into());
    let listed = Command::new(rustup).args(["toolchain", "list"]).output().ok()?;
    let listed = String::from_utf8(listed.stdout).ok()?;
    let is_it = |name: &&str| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-']));
    listed.lines().filter_map(|line| line.split_whitespace().next()).find(is_it).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_one_of_the_workspace() {
        assert_eq!(rust_version("[workspace.package]\nrust-version = \"1.95\"\n"), Some("1.95"));
        assert_eq!(rust_version("rust-version.workspace = true"), None);
    }

    /// Guards against a new library that is published without a check.
    #[test]
    fn every_crate_that_is_published_is_in_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
        let mut published = Vec::new();
        for entry in fs::read_dir(root.join("crates")).expect("there are crates") {
            let folder = entry.expect("a folder").path();
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a crate has a manifest");
            let has_workspace = manifest.lines().any(|line| line == "[workspace]");
            if manifest.lines().any(|line| line == "publish = true") && !has_workspace {
                let name = folder.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
                assert!(folder.join("README.md").exists() && folder.join("LICENSE-MIT").exists(), "{name}");
                published.push(name);
            }
        }
        published.sort_unstable();
        let mut listed = CRATES.to_vec();
        listed.sort_unstable();
        assert_eq!(published, listed);
    }
}
