//! Finds type names that say too little: bare participles, and names defined twice in one crate.

use super::{
    Finding,
    code::words,
    prose::crate_of,
    source::{Source, Tree},
};
use std::collections::BTreeSet;

/// Participles and verb forms without a regular ending that this project has used as type names.
const IRREGULAR: [&str; 26] = [
    "Begun", "Bound", "Broken", "Built", "Done", "Drawn", "Found", "Given", "Gone", "Held", "Kept", "Known", "Left",
    "Lost", "Made", "Met", "Run", "Seen", "Sent", "Shown", "Spent", "Taken", "Told", "Woken", "Worn", "Written",
];

/// Words that end like participles but are nouns.
const NOUNS: [&str; 11] =
    ["Bed", "Feed", "Listing", "Ruling", "Setting", "Settings", "Ring", "String", "Timing", "Tuning", "Warning"];

/// Returns the type definitions whose names break a rule.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut met = BTreeSet::new();
    for source in
        tree.sources.iter().filter(|source| source.path.starts_with("crates/") && source.path.contains("/src/"))
    {
        let area = crate_of(&source.path);
        for (line, name) in types(source) {
            if is_participle(name) {
                found.push(Finding::new(&source.path, line, format!("{name} is a bare participle; name the thing")));
            }
            if !met.insert((area, name)) {
                found.push(Finding::new(&source.path, line, format!("{name} is defined twice in {area}")));
            }
        }
    }
    found
}

/// Returns the types that the product part of a source defines, with their lines.
fn types(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = if source.is_test_file() { 0 } else { source.product_line_count };
    source.lines[..lines].iter().enumerate().filter_map(|(position, line)| {
        let mut words = words(&line.code).skip_while(|word| ["pub", "crate", "super", "in", "self"].contains(word));
        let is_type = matches!(words.next(), Some("struct" | "enum" | "trait" | "union"));
        words.next().filter(|_| is_type).map(|name| (position + 1, name))
    })
}

/// Returns whether a name is a single word that is a participle.
fn is_participle(name: &str) -> bool {
    let one_word = name.chars().filter(char::is_ascii_uppercase).count() == 1;
    let has_ending = name.ends_with("ed") || name.ends_with("ing");
    one_word && !NOUNS.contains(&name) && (has_ending || IRREGULAR.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_participles_and_second_definitions_are_found() {
        let source = |path: &str, text: &str| Source::new(path, text);
        let tree = Tree {
            sources: vec![
                source(
                    "crates/a/src/b.rs",
                    "//! b\npub(crate) struct Told;\nenum Range {}\nstruct StoredHead;\nstruct Settings;\n",
                ),
                source("crates/a/src/c.rs", "//! c\nstruct Range;\n#[cfg(test)]\nmod tests {\n    struct Held;\n}\n"),
                source("crates/d/src/c.rs", "//! c\npub struct Range;\n"),
                source("crates/d/tests/c.rs", "//! c\nstruct Held;\n"),
            ],
            ..Tree::default()
        };
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        let expected = [
            "crates/a/src/b.rs:2: Told is a bare participle; name the thing",
            "crates/a/src/c.rs:2: Range is defined twice in a",
        ];
        assert_eq!(found, expected);
    }
}
