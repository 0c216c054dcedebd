//! The gate: the steps of `cargo xtask ci`, in the order that fails soonest.

use crate::{cargo, shuttle, tidy};
use std::{path::Path, time::Instant};

/// A step runs cargo with these arguments and this extra environment.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const STEPS: [Step; 5] = [
    Step { name: "fmt", arguments: &["fmt", "--all", "--check"], environment: &[] },
    Step {
        name: "clippy",
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        environment: &[],
    },
    Step {
        name: "rustdoc",
        arguments: &["doc", "--workspace", "--no-deps", "--locked"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    Step { name: "test", arguments: &["test", "--workspace", "--locked"], environment: &[] },
    Step { name: "shuttle", arguments: &shuttle::ARGUMENTS, environment: &[] },
];

/// Runs every step and says how it went. Stops at the first failure.
pub(crate) fn run(root: &Path) -> bool {
    let start = Instant::now();
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
        failed = (!cargo::succeeds(root, step.arguments, step.environment)).then_some(step.name);
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
