//! Runs the gate: the steps of `cargo xtask ci`, in the order in which failures show soonest.

use crate::{cargo, shuttle, tidy};
use std::{path::Path, time::Instant};

/// A step of the gate: cargo with these arguments.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
}

/// The steps after tidy. Clippy compiles the examples, so the step `test` leaves them out.
const STEPS: [Step; 6] = [
    Step { name: "fmt", arguments: &["fmt", "--all", "--check"] },
    Step { name: "clippy", arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"] },
    Step { name: "rustdoc", arguments: &["doc", "--workspace", "--no-deps", "--locked"] },
    Step { name: "test", arguments: &["test", "--workspace", "--locked", "--lib", "--bins", "--tests"] },
    Step { name: "doctest", arguments: &["test", "--workspace", "--locked", "--doc"] },
    Step { name: "shuttle", arguments: &shuttle::ARGUMENTS },
];

/// Returns the environment variables that every step gets.
fn environment(root: &Path) -> Vec<(&'static str, String)> {
    // Tests of servers mostly wait, so more of them than cores run at a time.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) * TEST_THREADS_PER_CORE;
    let mut environment = vec![("RUSTDOCFLAGS", "-D warnings".to_owned()), ("RUST_TEST_THREADS", threads.to_string())];
    // A build from scratch is faster without the data for incremental builds.
    if !root.join("target/debug/incremental").exists() {
        environment.push(("CARGO_INCREMENTAL", "0".to_owned()));
    }
    environment
}

const TEST_THREADS_PER_CORE: usize = 4;

/// Runs every step and reports its result. Stops at the first failure.
pub(crate) fn run(root: &Path) -> bool {
    let start = Instant::now();
    let environment = environment(root);
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let count = STEPS.len() + 1;
    println!("ci [1/{count}] tidy");
    let mut failed = (!tidy::run(root)).then_some("tidy");
    let mut took = vec![format!("tidy {}", start.elapsed().as_secs())];
    for (position, step) in STEPS.iter().enumerate() {
        if failed.is_some() {
            break;
        }
        println!("ci [{}/{count}] {}: cargo {}", position + 2, step.name, step.arguments.join(" "));
        let step_start = Instant::now();
        failed = (!cargo::succeeds(root, step.arguments, &environment)).then_some(step.name);
        took.push(format!("{} {}", step.name, step_start.elapsed().as_secs()));
    }
    let seconds = start.elapsed().as_secs();
    println!("ci: seconds: {}", took.join(", "));
    match failed {
        None => println!("ci: all {count} steps passed in {seconds} s"),
        Some(name) => eprintln!("ci: step {name} failed after {seconds} s"),
    }
    failed.is_none()
}
