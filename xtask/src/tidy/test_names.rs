//! Returns the names of all tests in a tree. A test is a function after a `#[test]` attribute of any kind.

use super::source::Tree;
use std::collections::HashSet;

/// Returns the names of all functions that follow a `#[test]` attribute of any kind.
pub(crate) fn of(tree: &Tree) -> HashSet<&str> {
    let mut names = HashSet::new();
    for source in &tree.sources {
        let mut is_test = false;
        for line in &source.lines {
            let code = line.code.trim();
            is_test |= code.starts_with("#[") && code.contains("test]");
            if let (true, Some((_, rest))) = (is_test, code.split_once("fn ")) {
                names.extend(rest.split(['(', '<']).next());
                is_test = false;
            }
        }
    }
    names
}
