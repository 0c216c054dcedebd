//! Counts how often the tree's prose breaks a pattern of the writing guide (CONTRIBUTING.md), or a comment is too wide.
//!
//! Owns: the areas of the prose, and the exceptions. `texts` finds the prose, `rules` has the patterns, and `ratchet`
//! compares the counts with the allowed ones.

mod rules;
mod texts;

use super::{
    ratchet::Counted,
    source::{Source, Tree},
};
use rules::Rules;
use texts::Place;

/// Sentences that are allowed to break a rule: the rule, a part of the sentence, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    ("two-whats", "^(?:By how|For how|Of what|", "a pattern of these rules"),
    ("told", r"told\btells? of\b", "a pattern of these rules"),
];

/// Widest line of a comment or document, in characters. Lines of tables and with links are exempt, because they cannot
/// be broken.
const COLUMNS_MAX: usize = 120;

/// Returns every place that breaks a rule.
pub(crate) fn count(tree: &Tree) -> Vec<Counted> {
    let rules = Rules::new();
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| !is_test(&source.path)) {
        for prose in texts::of_source(source) {
            let area = area_of(&source.path, prose.place);
            found.extend(broken(&rules, &prose, &area, &source.path));
        }
        found.extend(wide_comments(source));
    }
    for document in &tree.documents {
        for prose in texts::of_document(document) {
            found.extend(broken(&rules, &prose, "documents", &document.path));
        }
        let mut fenced = false;
        for (position, line) in document.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let breakable = !fenced && !line.starts_with(['|', '<', '[']) && line.contains(' ');
            if breakable && line.chars().count() > COLUMNS_MAX {
                found.push(Counted::new("documents", "line-over-120", &document.path, position + 1, line));
            }
        }
    }
    found
}

fn broken(rules: &Rules, prose: &texts::Prose, area: &str, path: &str) -> Vec<Counted> {
    let excepted =
        |rule: &str, sentence: &str| EXCEPTIONS.iter().any(|(of, part, _)| *of == rule && sentence.contains(part));
    let found = rules.broken_by(prose).into_iter().filter(|found| !excepted(found.rule, &found.sentence));
    found.map(|found| Counted::new(area, found.rule, path, prose.line, &found.sentence)).collect()
}

fn wide_comments(source: &Source) -> Vec<Counted> {
    let wide = |line: &crate::scan::Line| {
        let is_comment = line.code.trim().is_empty() && !line.comment.is_empty();
        is_comment && line.code.chars().count() > COLUMNS_MAX
    };
    let lines = source.lines.iter().enumerate().filter(|(_, line)| wide(line));
    let area = crate_of(&source.path);
    lines
        .map(|(position, line)| Counted::new(area, "line-over-120", &source.path, position + 1, &line.comment))
        .collect()
}

/// Returns the area of the ratchet that prose in a source belongs to: the crate, with messages apart.
fn area_of(path: &str, place: Place) -> String {
    let name = crate_of(path);
    if place == Place::Message { format!("{name}/messages") } else { name.to_owned() }
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

    #[test]
    fn each_crate_its_messages_and_the_documents_are_areas() {
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
            documents: vec![Text {
                path: "docs/a.md".to_owned(),
                text: format!("{}\n\nThe parts, anew.\n", "a ".repeat(61)),
            }],
            ..Tree::default()
        };
        let mut found: Vec<_> =
            count(&tree).iter().map(|found| format!("{} {}:{}", found.area, found.rule, found.line)).collect();
        found.sort();
        let expected = [
            "a doc-opens-with-pronoun:2",
            "a doc-opens-with-wh:2",
            "a function-doc-without-verb:2",
            "a line-over-120:6",
            "a/messages told:4",
            "documents beside-anew:3",
            "documents docs-over-35-words:1",
            "documents line-over-120:1",
        ];
        assert_eq!(found, expected);
    }
}
