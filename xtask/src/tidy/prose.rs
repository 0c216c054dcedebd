//! Finds prose that breaks a pattern of the writing guide (CONTRIBUTING.md), and comments that are too wide.
//!
//! Owns: the exceptions. `texts` finds the prose, and `rules` has the patterns.

mod rules;
mod texts;

use super::{
    Finding,
    source::{Source, Tree},
};
use rules::Rules;

/// Sentences that are allowed to break a rule: the rule, a part of the sentence, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    ("two-whats", "^(?:By how|For how|Of what|", "a pattern of these rules"),
    ("told", r"told\btells? of\b", "a pattern of these rules"),
];

/// Widest line of a comment or document, in characters. Lines of tables and with links are exempt, because they cannot
/// be broken.
const COLUMNS_MAX: usize = 120;
const WIDE: &str = "a line of prose has at most 120 columns";

/// Maximum number of characters that a finding shows of a sentence.
const SHOWN_CHARS: usize = 140;

/// Returns the texts that break a rule for prose, and the lines that are too wide.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let rules = Rules::new();
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !is_test(&source.path)) {
        for prose in texts::of_source(source) {
            found.extend(broken(&rules, &prose, &source.path));
        }
        found.extend(wide_comments(source));
    }
    for page in &tree.pages {
        for prose in texts::of_page(page) {
            found.extend(broken(&rules, &prose, &page.path));
        }
    }
    for document in &tree.documents {
        for prose in texts::of_document(document) {
            found.extend(broken(&rules, &prose, &document.path));
        }
        let mut fenced = false;
        for (position, line) in document.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let breakable = !fenced && !line.starts_with(['|', '<', '[']) && line.contains(' ');
            if breakable && line.chars().count() > COLUMNS_MAX {
                found.push(Finding::new(&document.path, position + 1, WIDE));
            }
        }
    }
    found
}

fn broken(rules: &Rules, prose: &texts::Prose, path: &str) -> Vec<Finding> {
    let excepted =
        |rule: &str, sentence: &str| EXCEPTIONS.iter().any(|(of, part, _)| *of == rule && sentence.contains(part));
    let found = rules.broken_by(prose).into_iter().filter(|found| !excepted(found.rule, &found.sentence));
    let start = |sentence: &str| sentence.chars().take(SHOWN_CHARS).collect::<String>();
    found.map(|it| Finding::new(path, prose.line, format!("{}: {}", it.rule, start(&it.sentence)))).collect()
}

fn wide_comments(source: &Source) -> Vec<Finding> {
    let wide = |line: &crate::scan::Line| {
        let is_comment = line.code.trim().is_empty() && !line.comment.is_empty();
        is_comment && line.code.chars().count() > COLUMNS_MAX
    };
    let lines = source.lines.iter().enumerate().filter(|(_, line)| wide(line));
    lines.map(|(position, _)| Finding::new(&source.path, position + 1, WIDE)).collect()
}

/// Returns the name of the crate that a source belongs to.
pub(crate) fn crate_of(path: &str) -> &str {
    path.strip_prefix("crates/").unwrap_or(path).split('/').next().unwrap_or(path)
}

/// Returns whether a source is test, benchmark or fuzzing code.
fn is_test(path: &str) -> bool {
    ["tests", "benches", "fuzz"].iter().any(|folder| path.split('/').any(|part| part == *folder))
        || path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Text;

    /// Returns the place and the rule of a finding, without the sentence.
    fn rule_of(found: &Finding) -> String {
        let rule = found.problem.split(':').next().unwrap_or_default();
        format!("{}:{} {rule}", found.path, found.line)
    }

    #[test]
    fn sources_messages_and_documents_are_checked() {
        let wide = format!("// {}\n", "a ".repeat(60));
        let tree = Tree {
            sources: vec![
                Source::new(
                    "crates/a/src/b.rs",
                    &format!(
                        "//! What it is.\n/// What it does.\nfn b(c: &str) {{\n    d(\"e is told of f\");\n}}\n{wide}"
                    ),
                ),
                Source::new("crates/a/tests/b.rs", "//! Who asks.\n"),
            ],
            pages: vec![
                Text {
                    path: "crates/a/src/b.html".to_owned(),
                    text: "<p id=\"x\">The figures of late, shown here.</p>".to_owned(),
                },
                Text {
                    path: "crates/a/src/b.js".to_owned(),
                    text: "// Draws what is told of the figures.\nf(\"one\", `the rest, else it is lost`);".to_owned(),
                },
            ],
            documents: vec![Text {
                path: "docs/a.md".to_owned(),
                text: format!("{}\n\nThe parts, anew.\n", "a ".repeat(61)),
            }],
            ..Tree::default()
        };
        let mut found: Vec<_> = check(&tree).iter().map(rule_of).collect();
        found.sort();
        let expected = [
            "crates/a/src/b.html:1 beside-anew",
            "crates/a/src/b.js:1 told",
            "crates/a/src/b.js:2 beside-anew",
            "crates/a/src/b.rs:2 doc-opens-with-pronoun",
            "crates/a/src/b.rs:2 doc-opens-with-wh",
            "crates/a/src/b.rs:2 function-doc-without-verb",
            "crates/a/src/b.rs:4 told",
            "crates/a/src/b.rs:6 a line of prose has at most 120 columns",
            "docs/a.md:1 a line of prose has at most 120 columns",
            "docs/a.md:1 docs-over-35-words",
            "docs/a.md:3 beside-anew",
        ];
        assert_eq!(found, expected);
    }
}
