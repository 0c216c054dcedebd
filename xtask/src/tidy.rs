//! Checks the house rules that neither the compiler nor clippy checks. Each finding is reported as `file:line: what is
//! wrong`.
//!
//! Owns: the list of rules, and the output of findings. Each rule is a function from sources to findings, in its own
//! file. No file is changed.

mod code;
mod documents;
mod files;
mod imports;
mod manifests;
mod names;
mod parameters;
mod policy_arms;
mod prose;
pub(crate) mod questions;
mod rings;
pub(crate) mod source;
mod test_bounds;
pub(crate) mod test_names;

use crate::{conformance, figures};
use source::Tree;
use std::{fmt, path::Path};

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    problem: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, problem: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, problem: problem.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.problem)
    }
}

/// Checks the tree under `root`. Prints the findings and a final line on standard error.
pub(crate) fn run(root: &Path) -> bool {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {error}");
            return false;
        }
    };
    let mut findings = findings(&tree);
    findings.extend(figures::changed_scripts(root, &tree));
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if let Some(warning) = figures::warning(&tree) {
        println!("tidy: warning: {warning}");
    }
    let sources = tree.sources.len();
    let manifests = tree.manifests.len();
    let documents = tree.documents.len();
    let largest = rings::largest(&tree.sources).into_iter().max_by_key(|(_, ring)| ring.len());
    if let Some((name, ring)) = largest {
        println!("tidy: the largest ring is in {name}, {} modules: {}", ring.len(), ring.join(", "));
    }
    println!("tidy: {sources} sources, {manifests} manifests, {documents} documents, {} findings", findings.len());
    findings.is_empty()
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        findings.extend(files::check(source));
        findings.extend(code::check(source));
        findings.extend(imports::check(source));
        findings.extend(policy_arms::check(source));
    }
    findings.extend(imports::check_reexported(&tree.sources));
    findings.extend(rings::check(&tree.sources));
    findings.extend(manifests::check(&tree.manifests));
    findings.extend(documents::check(tree));
    findings.extend(questions::check(tree));
    findings.extend(test_bounds::check(tree));
    findings.extend(conformance::check(tree));
    findings.extend(figures::check(tree));
    findings.extend(prose::check(tree));
    findings.extend(names::check(tree));
    findings.extend(parameters::check(&tree.sources));
    findings
}
