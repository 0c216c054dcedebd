//! Compares the output that a page shows with the output that a command printed.
//!
//! `...` stands for any text in a line; a line of its own, for any number of lines. [`ANY_NUMBER`] stands for a number
//! that the page marks as varying. Every other number has to be the one that was printed.

/// Stands for any number, such as `7`, `0.151` or `122,070`.
pub(crate) const ANY_NUMBER: char = '№';

/// Returns whether `actual` is what the page shows as `expected`.
pub(crate) fn is_as_shown(expected: &[String], actual: &[String]) -> bool {
    let normalize = |lines: &[String]| lines.iter().map(|line| with_single_spaces(line)).collect::<Vec<_>>();
    lines_match(trimmed(&normalize(expected)), trimmed(&normalize(actual)))
}

/// Returns the length of the number at the start of `text`, or 0 if there is none.
pub(crate) fn number_length(text: &str) -> usize {
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ',']).len()
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
    let number = expected.split_once(ANY_NUMBER).filter(|(before, _)| !before.contains("..."));
    if let Some((before, after)) = number {
        let Some(rest) = actual.strip_prefix(before) else { return false };
        let length = number_length(rest);
        return length > 0 && text_matches(after, &rest[length..]);
    }
    let Some((before, after)) = expected.split_once("...") else { return expected == actual };
    let Some(remainder) = actual.strip_prefix(before) else { return false };
    let ends = remainder.char_indices().map(|(at, _)| at).chain([remainder.len()]);
    ends.into_iter().any(|at| text_matches(after, &remainder[at..]))
}

/// Replaces runs of spaces, which align columns, with one space.
fn with_single_spaces(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn output_is_compared_by_its_numbers_and_with_wildcards() {
    let same = |expected: &[&str], actual: &[&str]| {
        let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        is_as_shown(&owned(expected), &owned(actual))
    };
    assert!(same(&["hit; ttl=№; detail=memory"], &["hit; ttl=86400; detail=memory"]));
    assert!(!same(&["hit; ttl=86399"], &["hit; ttl=86400"]) && !same(&["room for 122,070"], &["room for 122,071"]));
    assert!(!same(&["fwd-status=200"], &["fwd-status=404"]));
    assert!(same(&["took № ms, ... and №."], &["took 7 ms,  61% and 0.5."]) && !same(&["took № ms"], &["took no ms"]));
    assert!(same(&["a", "..."], &["a", "b", "c"]) && same(&["...", "c"], &["a", "b", "c"]));
    assert!(!same(&["a"], &["a", "b"]) && !same(&["...", "d"], &["a"]));
    assert!(same(&["store ... free"], &["store /x/y free"]) && !same(&["store ... free"], &["store /x/y full"]));
    assert!(same(&["stored 2 entries"], &["stored 2 entries", ""]) && !same(&["2 entries"], &["3 entries"]));
}
