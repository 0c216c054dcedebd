//! Rules about documents: every link has a target, every page under docs/ is in the book's table of contents, and every
//! test that docs/explanation/semantics.md names exists.

use super::{
    Finding,
    source::{Text, Tree},
    test_names,
};

const SEMANTICS: &str = "docs/explanation/semantics.md";

/// The table of contents of the book that mdBook generates from docs/.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns the broken links, the pages missing from the book, and the names of tests that do not exist.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let tests = test_names::of(tree);
    let mut findings = missing_from_the_summary(tree);
    for document in &tree.documents {
        for (position, line) in document.text.lines().enumerate() {
            for link in links(line).filter(|link| !leads_somewhere(tree, &document.path, link)) {
                findings.push(Finding::new(&document.path, position + 1, format!("link to nowhere: {link}")));
            }
            if document.path != SEMANTICS {
                continue;
            }
            for name in code_spans(line).filter(|name| looks_like_a_test(name) && !tests.contains(*name)) {
                findings.push(Finding::new(&document.path, position + 1, format!("no test is called `{name}`")));
            }
        }
    }
    findings
}

/// Returns the pages under docs/ that the table of contents does not name exactly once.
fn missing_from_the_summary(tree: &Tree) -> Vec<Finding> {
    let summary = tree.document(SUMMARY).unwrap_or_default();
    let listed: Vec<String> = summary.lines().flat_map(links).map(|link| format!("docs/{link}")).collect();
    let pages = tree.documents.iter().filter(|page| page.path.starts_with("docs/") && page.path != SUMMARY);
    let count_of = |page: &Text| listed.iter().filter(|path| **path == page.path).count();
    let wrong = pages.map(|page| (page, count_of(page))).filter(|(_, count)| *count != 1);
    wrong
        .map(|(page, count)| Finding::new(&page.path, 1, format!("{SUMMARY} names it {count} times, not once")))
        .collect()
}

/// Returns the targets of the Markdown links in `line`.
pub(super) fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

/// Returns the contents of the code spans of `line`.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns whether a name looks like a test's: a sentence of at least four words.
fn looks_like_a_test(name: &str) -> bool {
    name.split('_').count() >= 4 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Returns whether `link` in the document at `from` names a file or folder of the tree, and one of its headings if it
/// has an anchor. A link to another site also passes.
fn leads_somewhere(tree: &Tree, from: &str, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    if path.contains("://") || path.starts_with("mailto:") {
        return true;
    }
    let target = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
    target.is_some_and(|target| {
        let is_there = target.is_empty() || target == from || tree.paths.contains(&target);
        let document = tree.document(&target).filter(|_| !heading.is_empty());
        is_there && document.is_none_or(|text| headings(text).any(|found| found == heading))
    })
}

/// Returns the path that a relative `link` in the document at `from` leads to. `None` if it is outside the tree.
pub(super) fn resolve(from: &str, link: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the anchors of a document's headings.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(heading)
}

/// Returns the anchor of a line that is a heading, as GitHub and mdBook generate it.
pub(super) fn heading(line: &str) -> Option<String> {
    let title = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().trim().replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Source;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        let tree = Tree {
            sources: vec![Source::new("a/tests/b.rs", "#[test]\nfn a_b_c_d() {}\nfn e_f_g_h() {}")],
            documents: vec![
                Text { path: path.to_owned(), text: text.to_owned() },
                Text {
                    path: SUMMARY.to_owned(),
                    text: "- [x](index.md)\n- [y](explanation/semantics.md)\n".to_owned(),
                },
            ],
            paths: ["README.md", "docs", "docs/format.md", "docs/index.md", SEMANTICS, SUMMARY]
                .map(str::to_owned)
                .to_vec(),
            ..Tree::default()
        };
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_lead_to_files_folders_and_elsewhere() {
        let text = "[a](format.md#b) [c](../README.md) [d](../docs/) [e](https://example.com/x) [f](#g-h)\n# G, `h`";
        assert_eq!(check_one("docs/index.md", text), Vec::<String>::new());
        assert_eq!(check_one("docs/index.md", "[f](#g)\n# H"), ["docs/index.md:1: link to nowhere: #g"]);
        assert_eq!(check_one("docs/index.md", "[f](SUMMARY.md#g)"), ["docs/index.md:1: link to nowhere: SUMMARY.md#g"]);
        assert_eq!(check_one("docs/index.md", "x\n[a](gone.md)"), ["docs/index.md:2: link to nowhere: gone.md"]);
        assert_eq!(check_one("README.md", "[a](../../etc)").len(), 1);
    }

    #[test]
    fn promises_name_tests_that_exist() {
        assert_eq!(check_one(SEMANTICS, "`a_b_c_d` and `Store::open`, `two_words`"), Vec::<String>::new());
        assert_eq!(
            check_one(SEMANTICS, "1. `e_f_g_h`"),
            ["docs/explanation/semantics.md:1: no test is called `e_f_g_h`"]
        );
        assert_eq!(check_one("README.md", "1. `e_f_g_h`"), Vec::<String>::new());
    }

    #[test]
    fn every_page_of_the_docs_is_named_once_in_the_summary() {
        assert_eq!(check_one("docs/index.md", ""), Vec::<String>::new());
        assert_eq!(check_one("README.md", ""), Vec::<String>::new());
        let found = check_one("docs/how-to/lost.md", "");
        assert_eq!(found, ["docs/how-to/lost.md:1: docs/SUMMARY.md names it 0 times, not once"]);
    }
}
