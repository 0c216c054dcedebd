//! Generates docs/internals/conformance.md: the requirements of the RFCs, Larder's behavior, and the tests.
//!
//! Owns: the page's text, which is generated from two lists next to the tests of larder-http, and the threshold: every
//! requirement and at least 95% of the options must have tests. Invariant: the page equals the output of these
//! functions, which tidy checks, so it is never edited by hand.

use crate::tidy::{Finding, source::Tree, test_names};
use std::{collections::HashSet, fmt::Write as _, fs, path::Path};

/// The list of the RFCs' requirements, by section.
pub(crate) const REQUIREMENTS: &str = "crates/larder-http/tests/requirements.txt";
/// The list of differences between Larder and the crate that its tests compare it with.
pub(crate) const DIFFERENCES: &str = "crates/larder-http/tests/differences.txt";
/// The generated page.
pub(crate) const PAGE: &str = "docs/internals/conformance.md";

/// Writes the page. Returns false if it cannot be read or written, or if the lists are incomplete.
pub(crate) fn run(root: &Path) -> bool {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("conformance: {error}");
            return false;
        }
    };
    let (page, findings) = page(&tree);
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    if let Err(error) = fs::write(root.join(PAGE), page) {
        eprintln!("conformance: {error}");
        return false;
    }
    println!("conformance: {PAGE} written, {} findings", findings.len());
    findings.is_empty()
}

/// Returns the faults in the lists, and whether the page differs from the generated one.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    if tree.text(REQUIREMENTS).is_none() {
        return Vec::new();
    }
    let (page, mut findings) = page(tree);
    if tree.document(PAGE) != Some(page.as_str()) {
        findings.push(Finding::new(PAGE, 1, "is not what `cargo xtask conformance` writes"));
    }
    findings
}

/// A line of the list of requirements.
struct Requirement<'a> {
    level: &'a str,
    clause: &'a str,
    does: &'a str,
    tests: Vec<&'a str>,
}

/// Number of requirements of one level, and how many of them have tests.
#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    tested: usize,
}

fn page(tree: &Tree) -> (String, Vec<Finding>) {
    let known = test_names::of(tree);
    let mut body = String::new();
    let mut findings = Vec::new();
    let mut counts = [("R", Count::default()), ("O", Count::default()), ("C", Count::default())];
    for (position, line) in tree.text(REQUIREMENTS).unwrap_or_default().lines().enumerate() {
        let mut add = |problem: String| findings.push(Finding::new(REQUIREMENTS, position + 1, problem));
        if let Some(title) = line.strip_prefix("## ") {
            write_line(
                &mut body,
                &format!("\n## {title}\n\n| clause | | what Larder does | tests |\n|---|---|---|---|"),
            );
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(requirement) = Requirement::parse(line) else {
            add("is not `level | clause | what Larder does | tests`".to_owned());
            continue;
        };
        let Some((_, count)) = counts.iter_mut().find(|(level, _)| *level == requirement.level) else {
            add(format!("no level is called {}", requirement.level));
            continue;
        };
        count.all += 1;
        count.tested += usize::from(!requirement.tests.is_empty());
        requirement.unknown(&known).for_each(|name| add(format!("no test is called `{name}`")));
        if requirement.level == "R" && requirement.tests.is_empty() {
            add("a requirement has no test".to_owned());
        }
        write_line(&mut body, &requirement.row());
    }
    let [_, (_, options), _] = counts;
    if options.tested * 100 < options.all * OPTIONS_TESTED_PERCENT_MIN {
        findings.push(Finding::new(
            REQUIREMENTS,
            1,
            format!("tests for {} of {} options", options.tested, options.all),
        ));
    }
    (format!("{INTRODUCTION}{}{body}{}", summary(&counts), differences(tree)), findings)
}

impl<'a> Requirement<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.split(" | ");
        let level = parts.next()?;
        let clause = parts.next()?;
        let does = parts.next()?;
        let tests = parts.next()?;
        let tests = if tests == "-" { Vec::new() } else { tests.split(", ").collect() };
        parts.next().is_none().then_some(Self { level, clause, does, tests })
    }

    fn unknown(&self, known: &HashSet<&str>) -> impl Iterator<Item = &'a str> {
        self.tests.iter().copied().filter(|name| !known.contains(name))
    }

    fn row(&self) -> String {
        let tests: Vec<_> = self.tests.iter().map(|name| format!("`{name}`")).collect();
        let tests = if tests.is_empty() { "not done".to_owned() } else { tests.join(", ") };
        format!("| {} | {} | {} | {tests} |", self.clause, self.level, self.does)
    }
}

fn summary(counts: &[(&str, Count)]) -> String {
    let mut text = String::from("\n| level | lines | done and tested |\n|---|---|---|\n");
    for (level, Count { all, tested }) in counts {
        write_line(&mut text, &format!("| {level} | {all} | {tested} |"));
    }
    text
}

fn differences(tree: &Tree) -> String {
    let mut text = String::from(DIFFERENCES_INTRODUCTION);
    for line in tree.text(DIFFERENCES).unwrap_or_default().lines() {
        if !line.is_empty() && !line.starts_with('#') {
            write_line(&mut text, &format!("| {line} |"));
        }
    }
    text
}

fn write_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}

/// Smallest percentage of optional requirements that must have tests.
const OPTIONS_TESTED_PERCENT_MIN: usize = 95;

const INTRODUCTION: &str = "\
# Conformance

This page lists the clauses of the RFCs about shared caches, Larder's behavior, and the tests for it. `cargo xtask
conformance` writes it from the lists in `crates/larder-http/tests`. `cargo xtask tidy` fails if the page differs from
the lists, if a test does not exist, or if a requirement has no test.

**R**: the clause requires it. **O**: the clause allows it, and users gain by it. **C**: the clause leaves a choice; the
line says which one Larder makes.
";

const DIFFERENCES_INTRODUCTION: &str = "
## Another reading

The test `larder_and_the_oracle_agree_but_for_the_listed_differences` gives random exchanges to Larder and to the crate
`http-cache-semantics` 3.0. Both agree in all cases except for the following differences.

| difference | clause | Larder | http-cache-semantics | why |
|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::{Source, Text};

    fn tree(requirements: &str) -> Tree {
        let text = Text { path: REQUIREMENTS.to_owned(), text: requirements.to_owned() };
        let source = Source::new("crates/a/tests/it/b.rs", "#[test]\nfn the_rule_is_kept() {}\n");
        Tree { texts: vec![text], sources: vec![source], ..Tree::default() }
    }

    fn problems(requirements: &str) -> Vec<String> {
        page(&tree(requirements)).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_that_is_whole_makes_a_page() {
        let list = "## A\nR | RFC 1 2 | Does it. | the_rule_is_kept\n";
        assert_eq!(problems(list), [""; 0]);
        let (page, _) = page(&tree(list));
        assert!(page.contains("| RFC 1 2 | R | Does it. | `the_rule_is_kept` |"), "{page}");
        assert!(page.contains("| R | 1 | 1 |"), "{page}");
    }

    #[test]
    fn missing_tests_and_malformed_lines_are_found() {
        assert!(problems("R | RFC 1 2 | Does it. | some_other_rule_is_kept\n")[0].contains("no test is called"));
        assert!(problems("R | RFC 1 2 | Does it. | -\n")[0].contains("has no test"));
        assert!(problems("O | RFC 1 2 | Leaves it. | -\n")[0].contains("0 of 1 options"));
        assert!(problems("R | RFC 1 2\n")[0].contains("is not `level"));
        assert!(problems("X | RFC 1 2 | Does it. | the_rule_is_kept\n")[0].contains("no level"));
    }

    #[test]
    fn page_that_was_edited_by_hand_is_found() {
        let found = check(&tree("R | RFC 1 2 | Does it. | the_rule_is_kept\n"));
        assert_eq!(found[0].to_string(), format!("{PAGE}:1: is not what `cargo xtask conformance` writes"));
    }
}
