//! Compares the places that break counted rules with the allowed counts, which may only fall.
//!
//! Old code breaks these rules in many places. Owns: the allowed counts (`xtask/ratchet.txt`), the comparison, and
//! writing lower counts. The rules are elsewhere. A count above the allowed one is a failure. A lower count is written
//! by `cargo xtask prose --record`, so that it cannot rise again.

use super::{Finding, source::Tree};
use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path};

/// The file with the allowed counts, one line for each area and rule.
pub(crate) const ALLOWED: &str = "xtask/ratchet.txt";

/// Longest part of a sentence that a listing shows, in characters.
const SHOWN_CHARS: usize = 140;

/// A place that breaks a counted rule.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) area: String,
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The number of places for each area and rule.
type Counts = BTreeMap<(String, String), usize>;

impl Counted {
    pub(crate) fn new(area: &str, rule: &'static str, path: &str, line: usize, text: &str) -> Self {
        Self {
            area: area.to_owned(),
            rule,
            path: path.to_owned(),
            line,
            text: text.chars().take(SHOWN_CHARS).collect(),
        }
    }
}

/// Compares the places found with the counts allowed.
pub(crate) fn check(tree: &Tree, found: &[Counted]) -> Vec<Finding> {
    let allowed = match tree.text(ALLOWED).map(parse) {
        Some(Ok(allowed)) => allowed,
        Some(Err(finding)) => return vec![finding],
        None => Counts::new(),
    };
    let above = counts(found).into_iter().filter_map(|(key, count)| {
        let most = allowed.get(&key).copied().unwrap_or(0);
        let (area, rule) = &key;
        (count > most).then(|| {
            let problem =
                format!("{area}: {rule}: {count} places, at most {most}; `cargo xtask prose {area} {rule}` lists them");
            Finding::new(ALLOWED, 1, problem)
        })
    });
    above.collect()
}

/// Prints the places in an area that break a rule, or the counts if none is chosen.
pub(crate) fn list(found: &[Counted], area: Option<&str>, rule: Option<&str>) {
    if area.is_none() {
        for ((area, rule), count) in counts(found) {
            println!("{count:6}  {area}  {rule}");
        }
        return println!("{:6}  all", found.len());
    }
    for place in found.iter().filter(|place| area == Some(&place.area) && rule.is_none_or(|rule| rule == place.rule)) {
        println!("{}:{}: {}: {}", place.path, place.line, place.rule, place.text);
    }
}

/// Writes the counts that are lower than the allowed ones.
///
/// # Errors
/// The file cannot be read or written, or a count has risen, which must be corrected instead of recorded.
pub(crate) fn record(root: &Path, tree: &Tree, found: &[Counted]) -> io::Result<()> {
    if let (Some(finding), true) = (check(tree, found).first(), root.join(ALLOWED).is_file()) {
        return Err(io::Error::other(finding.to_string()));
    }
    let mut text = String::new();
    for ((area, rule), count) in counts(found) {
        writeln!(text, "{area} {rule} {count}").map_err(io::Error::other)?;
    }
    fs::write(root.join(ALLOWED), text)
}

fn counts(found: &[Counted]) -> Counts {
    let mut counts = Counts::new();
    for place in found {
        *counts.entry((place.area.clone(), place.rule.to_owned())).or_default() += 1;
    }
    counts
}

fn parse(text: &str) -> Result<Counts, Finding> {
    let parsed = text.lines().enumerate().map(|(position, line)| {
        let words: Vec<&str> = line.split(' ').collect();
        let count = |word: &str| word.parse().ok();
        match words.as_slice() {
            [area, rule, number] if count(number).is_some() => {
                Ok((((*area).to_owned(), (*rule).to_owned()), count(number).unwrap_or(0)))
            }
            _ => Err(Finding::new(ALLOWED, position + 1, format!("neither area, rule and count: {line}"))),
        }
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Text;

    fn check_one(allowed: &str, places: usize) -> Vec<String> {
        let texts = vec![Text { path: ALLOWED.to_owned(), text: allowed.to_owned() }];
        let tree = Tree { texts, ..Tree::default() };
        let found = vec![Counted::new("a", "told", "b.rs", 1, "c"); places];
        check(&tree, &found).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_count_may_fall_and_not_rise() {
        assert_eq!(check_one("a told 2\nb told 9\n", 2), Vec::<String>::new());
        assert_eq!(check_one("a told 2\n", 1), Vec::<String>::new());
        assert!(check_one("a told 2\n", 3)[0].contains("a: told: 3 places, at most 2"));
        assert!(check_one("", 1)[0].contains("1 places, at most 0"));
    }

    #[test]
    fn a_line_that_is_no_count_is_found() {
        assert!(check_one("a told two\n", 0)[0].starts_with("xtask/ratchet.txt:1: neither"));
        assert_eq!(check_one("a told\n", 0).len(), 1);
    }
}
