//! Checks that readers find answers: every question of `xtask/questions.txt` is answered at most two links away from
//! docs/README.md.
//!
//! Owns: the form of a question, and the definition of a click. A link to a short page leads to all its sections. On a
//! long page, the reader would have to search, so a link must lead to the section itself. The list is edited by hand.

use super::{
    Finding,
    documents::{heading, links, resolve},
    source::Tree,
};
use std::collections::BTreeSet;

/// The list of questions. A line has the reader, the question, the page and section, and words of the answer, separated
/// by ` | `.
pub(crate) const QUESTIONS: &str = "xtask/questions.txt";

/// The page on which readers start.
const START: &str = "docs/README.md";

/// Maximum length, in words, of a page that a reader skims without a link to the section.
const SHORT_PAGE_WORDS: usize = 1200;

/// A page and the section that a link leads to; empty for the page's start.
type Place = (String, String);

/// Returns the questions whose answers readers cannot find, and the malformed lines of the list.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(list) = tree.text(QUESTIONS) else { return Vec::new() };
    let first = targets(tree, START);
    let pages: BTreeSet<_> = first.iter().map(|(page, _)| page.as_str()).collect();
    let mut reached: BTreeSet<_> = pages.iter().flat_map(|page| targets(tree, page)).collect();
    reached.extend(first.iter().cloned());
    let lines = list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|(at, line)| Some(Finding::new(QUESTIONS, at + 1, fault(tree, &reached, line)?))).collect()
}

/// Returns why a question's line is wrong or its answer cannot be found, or `None` if all is well.
fn fault(tree: &Tree, reached: &BTreeSet<Place>, line: &str) -> Option<String> {
    let [_, _, place, words] = line.split(" | ").collect::<Vec<_>>()[..] else {
        return Some("a line has four parts, separated by ` | `".to_owned());
    };
    let (page, section) = place.split_once('#').unwrap_or((place, ""));
    let Some(text) = tree.document(page) else { return Some(format!("there is no page {page}")) };
    let is_short = text.split_whitespace().count() <= SHORT_PAGE_WORDS;
    let leads = |to: &Place| to.0 == page && (to.1 == section || is_short);
    if !section_of(text, section).contains(words) {
        return Some(format!("{place} does not contain `{words}`"));
    }
    (!reached.iter().any(leads)).then(|| format!("{place} is more than two links from {START}"))
}

/// Returns the places that the links of a page lead to. A link to a folder leads to its README.md.
fn targets(tree: &Tree, page: &str) -> BTreeSet<Place> {
    let links = tree.document(page).unwrap_or_default().lines().flat_map(links).filter(|link| !link.contains("://"));
    let place = |link: &str| {
        let (path, section) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { page.to_owned() } else { resolve(page, path)? };
        let readme = format!("{target}/README.md");
        Some((if tree.document(&readme).is_some() { readme } else { target }, section.to_owned()))
    };
    links.filter_map(place).collect()
}

/// Returns the text of a section with its subsections, or the whole text if `section` is empty.
fn section_of(text: &str, section: &str) -> String {
    let mut level = None;
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        // In code, a line that begins with `#` is a comment.
        if let Some(title) = heading(line).filter(|_| !is_code) {
            let depth = line.len() - line.trim_start_matches('#').len();
            level = match level {
                None if title == section => Some(depth),
                Some(open) if depth <= open => break,
                same => same,
            };
        }
        if section.is_empty() || level.is_some() {
            found.push(line);
        }
    }
    found.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Text;

    fn check_one(question: &str) -> Vec<String> {
        let long = format!(
            "# A\n[c](sub/c.md)\n## One\n```\n# x\n```\n### Deep\ny\n## Two\nz\n{}",
            "w ".repeat(SHORT_PAGE_WORDS)
        );
        let document = |path: &str, text: &str| Text { path: path.to_owned(), text: text.to_owned() };
        let tree = Tree {
            documents: vec![
                document(START, "[a](a.md) [one](a.md#one) [crate](../crates/b)"),
                document("docs/a.md", &long),
                document("docs/sub/c.md", "# C\nanswer [d](d.md)"),
                document("docs/sub/d.md", "# D\nanswer"),
                document("crates/b/README.md", "# B\nanswer"),
            ],
            texts: vec![document(QUESTIONS, &format!("# READER\n{question}\n"))],
            ..Tree::default()
        };
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn answers_are_two_links_away_and_on_long_pages_linked_by_section() {
        for place in
            ["docs/a.md#one | y", "docs/sub/c.md | answer", "docs/sub/c.md#c | answer", "crates/b/README.md | answer"]
        {
            assert_eq!(check_one(&format!("r | q | {place}")), Vec::<String>::new(), "{place}");
        }
        let far = |place: &str| [format!("{QUESTIONS}:2: {place} is more than two links from {START}")];
        assert_eq!(check_one("r | q | docs/a.md#two | z"), far("docs/a.md#two"));
        assert_eq!(check_one("r | q | docs/sub/d.md | answer"), far("docs/sub/d.md"));
        assert_eq!(
            check_one("r | q | docs/a.md#one | z"),
            [format!("{QUESTIONS}:2: docs/a.md#one does not contain `z`")]
        );
        assert_eq!(check_one("r | q | docs/gone.md | z"), [format!("{QUESTIONS}:2: there is no page docs/gone.md")]);
        assert_eq!(check_one("r | q"), [format!("{QUESTIONS}:2: a line has four parts, separated by ` | `")]);
    }
}
