//! Project chores: `cargo xtask ci` is the gate that every change passes, `cargo xtask quick` a quick check during
//! work, `cargo xtask tidy` the house rules alone, `cargo xtask sim` the engine under faults, `cargo xtask shuttle` its
//! threads in many interleavings.
//!
//! Owns: the command line and the exit code (0 passed, 1 something failed, 2 usage). It installs nothing, and only
//! `audit` uses the network. On request it writes docs/internals/conformance.md; other results are below
//! `target`. Its only dependency is a crate for regular expressions, so that it builds in seconds.

mod audit;
mod cargo;
mod ci;
mod conformance;
mod dist;
mod figures;
mod mutants;
mod publish;
mod quick;
mod scan;
mod shuttle;
mod sim;
mod tidy;

use std::{env, path::Path, process::ExitCode};

const USAGE: &str = "\
usage: cargo xtask <chore>

chores:
  ci           fmt, tidy, clippy, rustdoc, tests (2,310 seeds among them) and interleavings, with warnings denied; stops at the first failure
  quick [CRATE..]  fmt, tidy, and clippy and unit tests of these crates, or of those with uncommitted changes
  audit        vulnerabilities, licenses and sources of the dependencies, by cargo-deny
  dist [TARGET..]  audits, and makes what is released: static program, archive, Debian package, container, components, checksums
  conformance  writes docs/internals/conformance.md from the lists next to the tests of larder-http
  figures      lists the runs of docs/figures.toml, and fails if one is older than 30 days or stale
  publish      packages the libraries and compiles them as a registry would; nothing is uploaded
  msrv         checks the libraries with the oldest toolchain that they promise, if rustup has it
  semver REVISION  compares the interfaces of the libraries with those of a revision, by cargo-semver-checks
  tidy         the house rules a compiler does not check (see CONTRIBUTING.md)
  mutants [--seeds N] [NAME..]  puts known bugs into a copy of the sources, and tells which ones torture and tests find
  shuttle [N]  tries N (2,000) interleavings of threads for each scene, row and scheduler of the engine's tests
  sim          schedules of operations, faults and crashes by seed; `cargo xtask sim --help` says what can be chosen";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ci"] => exit(ci::run(root)),
        ["quick", crates @ ..] => exit(quick::run(root, crates)),
        ["audit"] => exit(audit::run(root)),
        ["dist", further @ ..] => exit(dist::run(root, further)),
        ["conformance"] => exit(conformance::run(root)),
        ["figures"] => exit(figures::run(root)),
        ["publish"] => exit(publish::dry_run(root)),
        ["msrv"] => exit(publish::oldest_toolchain(root)),
        ["semver", revision] => exit(publish::semver(root, revision)),
        ["tidy"] => exit(tidy::run(root)),
        ["mutants", chosen @ ..] => exit(mutants::run(root, chosen)),
        ["shuttle"] => exit(shuttle::run(root, "2000")),
        ["shuttle", iterations] if iterations.parse::<u32>().is_ok() => exit(shuttle::run(root, iterations)),
        ["sim", chosen @ ..] => exit(sim::run(root, chosen)),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn exit(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
