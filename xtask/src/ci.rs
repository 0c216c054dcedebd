//! The gate: the steps of `cargo xtask ci`, in the order that fails soonest.

use crate::tidy;
use std::{env, path::Path, process::Command, time::Instant};

/// A step runs cargo with these arguments and this extra environment.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: Option<(&'static str, &'static str)>,
}

const STEPS: [Step; 5] = [
    Step { name: "fmt", arguments: &["fmt", "--all", "--check"], environment: None },
    Step {
        name: "clippy",
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        environment: None,
    },
    Step {
        name: "rustdoc",
        arguments: &["doc", "--workspace", "--no-deps", "--locked"],
        environment: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
    Step { name: "test", arguments: &["test", "--workspace", "--locked"], environment: None },
    Step {
        name: "seeds",
        arguments: &["run", "--quiet", "--locked", "--package", "larder-torture", "--", "--seeds", "512"],
        environment: None,
    },
];

/// Runs every step and says how it went. Stops at the first failure.
pub(crate) fn run(root: &Path) -> bool {
    let start = Instant::now();
    let count = STEPS.len() + 1;
    println!("ci [1/{count}] tidy");
    let mut failed = (!tidy::run(root)).then_some("tidy");
    for (position, step) in STEPS.iter().enumerate() {
        if failed.is_some() {
            break;
        }
        println!("ci [{}/{count}] {}: cargo {}", position + 2, step.name, step.arguments.join(" "));
        failed = (!succeeds(root, step)).then_some(step.name);
    }
    let seconds = start.elapsed().as_secs();
    match failed {
        None => println!("ci: all {count} steps passed in {seconds} s"),
        Some(name) => eprintln!("ci: step {name} failed after {seconds} s"),
    }
    failed.is_none()
}

fn succeeds(root: &Path, step: &Step) -> bool {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(step.arguments).envs(step.environment);
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("ci: cannot run cargo: {error}");
            false
        }
    }
}
