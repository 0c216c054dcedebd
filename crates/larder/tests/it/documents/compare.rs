//! Compares the output that a page shows with the output that a command printed.
//!
//! `...` stands for any text in a line; a line of its own, for any number of lines. Numbers of four digits and more,
//! fractions, and numbers with a unit may differ: they are times, sizes and process numbers.

/// Units of figures that differ from run to run.
const UNITS: [&str; 17] =
    ["s", "ms", "us", "µs", "ns", "%", "B", "KB", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "bits", "bytes"];

/// Returns whether `actual` is what the page shows as `expected`.
pub(crate) fn is_as_shown(expected: &[String], actual: &[String]) -> bool {
    let normalize = |lines: &[String]| lines.iter().map(|line| without_figures(line.trim_end())).collect::<Vec<_>>();
    lines_match(trimmed(&normalize(expected)), trimmed(&normalize(actual)))
}

/// Leaves out empty lines at both ends.
fn trimmed(lines: &[String]) -> &[String] {
    let begin = lines.iter().take_while(|line| line.is_empty()).count();
    let end = lines.iter().rev().take_while(|line| line.is_empty()).count();
    lines.get(begin..lines.len() - end).unwrap_or_default()
}

fn lines_match(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=actual.len()).any(|skipped| lines_match(rest, &actual[skipped..]))
        }
        Some((first, rest)) => {
            actual.split_first().is_some_and(|(line, others)| text_matches(first, line) && lines_match(rest, others))
        }
    }
}

fn text_matches(expected: &str, actual: &str) -> bool {
    let Some((before, after)) = expected.split_once("...") else { return expected == actual };
    let Some(remainder) = actual.strip_prefix(before) else { return false };
    let ends = remainder.char_indices().map(|(at, _)| at).chain([remainder.len()]);
    ends.into_iter().any(|at| text_matches(after, &remainder[at..]))
}

/// Replaces figures that differ between runs with `#`, and runs of spaces, which align them, with one space.
fn without_figures(line: &str) -> String {
    let mut result = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        result += before;
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(number.len());
        let digits = number[..end].trim_end_matches(['.', ',']);
        rest = &number[digits.len()..];
        let unit: String = rest.trim_start().chars().take_while(|c| c.is_alphabetic() || *c == '%').collect();
        let varies = digits.len() > 3 || digits.contains('.') || UNITS.contains(&unit.as_str());
        result += if varies { "#" } else { digits };
    }
    let joined = result + rest;
    let words: Vec<&str> = joined.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn output_is_compared_without_figures_and_with_wildcards() {
    let same = |expected: &[&str], actual: &[&str]| {
        let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        is_as_shown(&owned(expected), &owned(actual))
    };
    assert!(same(&["hit; ttl=86399; detail=memory"], &["hit; ttl=86400; detail=memory"]));
    assert!(!same(&["fwd-status=200"], &["fwd-status=404"]));
    assert!(same(&["took 12 ms, 5.3%"], &["took 7 ms,  61%"]));
    assert!(same(&["a", "..."], &["a", "b", "c"]) && same(&["...", "c"], &["a", "b", "c"]));
    assert!(!same(&["a"], &["a", "b"]) && !same(&["...", "d"], &["a"]));
    assert!(same(&["store ... free"], &["store /x/y free"]) && !same(&["store ... free"], &["store /x/y full"]));
    assert!(same(&["stored 2 entries"], &["stored 2 entries", ""]) && !same(&["2 entries"], &["3 entries"]));
}
