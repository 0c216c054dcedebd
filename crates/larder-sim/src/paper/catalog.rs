//! The catalog: every number that the five papers print, and how the laboratory accounts for it.
//!
//! Owns: `papers/printed.tsv` with the numbers, and `papers/account.tsv`, which has for each number the lines of a
//! report that reproduce it, or the reason why none does. Reports take published values from here
//! ([`Comparison::published`]), so each value is written once. Invariant: both files have the same rows in the same
//! order, and each line that they name exists; a test checks this without running a simulation.

use super::ranges;
use crate::{Comparison, ComparisonBasis, ValueKind, report::MET_WITHIN};
use std::{cell::RefCell, collections::BTreeSet, iter, sync::LazyLock};

static PRINTED: &str = include_str!("../../papers/printed.tsv");
static ACCOUNT: &str = include_str!("../../papers/account.tsv");

/// A number that a paper prints.
#[derive(Clone, Copy, Debug)]
pub(super) struct CatalogRow {
    pub(super) id: &'static str,
    /// Short name of the paper.
    pub(super) paper: &'static str,
    /// Name of the claim to which the number belongs.
    pub(super) claim: &'static str,
    pub(super) quantity: &'static str,
    pub(super) unit: &'static str,
    /// The number as it is printed. It can be a word.
    value: &'static str,
    /// Relation of the quantity to the value, such as `=` or `less than`.
    relation: &'static str,
    pub(super) entry: Entry,
}

/// The decision of the laboratory about a printed number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// The number is compared with lines of a report.
    Compared(Reproduction),
    /// The number is not compared. The text says why.
    LeftOut(Exclusion, &'static str),
}

/// The lines of a report that reproduce a printed number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reproduction {
    pub(super) report: &'static str,
    /// Names of lines, combined as [`value_of`] describes. Can have alternatives, separated by ` | `, which must all
    /// agree with the paper.
    formula: &'static str,
    /// The range that a value printed in words stands for.
    in_words: &'static str,
    pub(super) basis: ComparisonBasis,
}

/// Why a number is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// The number is an input of the simulation.
    Input,
    /// The simulated system does not permit a comparison.
    Impossible,
    /// No simulation of the number was written yet.
    Open,
}

/// Returns the rows of the catalog: all printed numbers.
pub(super) fn rows() -> &'static [CatalogRow] {
    static ROWS: LazyLock<Vec<CatalogRow>> = LazyLock::new(|| {
        let lines = PRINTED.lines().zip(ACCOUNT.lines()).skip(1);
        let row = |(printed, account)| {
            CatalogRow::parse(printed, account).unwrap_or_else(|| panic!("not a row of the catalog: {printed}"))
        };
        lines.map(row).collect()
    });
    &ROWS
}

impl Comparison {
    /// Creates the comparison of a line with the printed number that it reproduces, either as it is or times a
    /// constant. If there are several, prefers an exact number to an approximate one, and an approximate one to a
    /// bound.
    ///
    /// # Panics
    /// If the catalog has no such line for this report.
    pub(super) fn published(report: &str, what: impl Into<String>, simulated: f64) -> Self {
        let what = what.into();
        let direct = rows().iter().filter_map(|row| Some((row, row.of_line(report, &what, simulated)?)));
        let exact = direct.min_by_key(|(row, line)| (row.relation != "=", line.paper != line.paper_most));
        exact.unwrap_or_else(|| panic!("the catalog has no line of {report}: {what}")).1
    }
}

impl CatalogRow {
    /// Parses a line of each of the two files as one row. Returns `None` if the lines do not belong together.
    fn parse(printed: &'static str, account: &'static str) -> Option<Self> {
        let printed: [&str; PRINTED_COLUMNS] = fields(printed)?;
        let [id, paper, _, _, _, quantity, unit, value, relation, claim, ..] = printed;
        let [of, status, report, formula, in_words, basis, note] = fields(account)?;
        let entry = match status {
            "compared" => {
                let basis = ComparisonBasis::ALL.into_iter().find(|known| known.name() == basis)?;
                Entry::Compared(Reproduction { report, formula, in_words, basis })
            }
            "input" => Entry::LeftOut(Exclusion::Input, note),
            "impossible" => Entry::LeftOut(Exclusion::Impossible, note),
            "open" => Entry::LeftOut(Exclusion::Open, note),
            _ => return None,
        };
        let unit = match unit {
            // Seconds are simulated where minutes and seconds are printed.
            "min:sec" => "s",
            "x" => "times",
            _ => unit,
        };
        (id == of).then_some(Self { id, paper, claim, quantity, unit, value, relation, entry })
    }

    /// Compares this number with the lines of a report. If there are several alternatives, returns the one that is
    /// farthest from the paper. Returns `None` if a line is missing.
    pub(super) fn compared(&self, line: impl Fn(&str, &str) -> Option<f64>) -> Option<Comparison> {
        self.compared_as_assumed(line).map(|comparison| self.judged(comparison))
    }

    /// Turns a comparison that agrees into a prediction, if it agrees over the ranges of all assumed constants.
    fn judged(&self, comparison: Comparison) -> Comparison {
        let is_candidate = comparison.basis == ComparisonBasis::Conditional && comparison.is_met();
        if is_candidate && ranges::holds(self.id) { comparison.on(ComparisonBasis::Predicted) } else { comparison }
    }

    /// Returns the names of the lines that are needed to compare this number.
    pub(super) fn lines(&self) -> BTreeSet<String> {
        let Entry::Compared(Reproduction { formula, .. }) = self.entry else { return BTreeSet::new() };
        let names = RefCell::new(BTreeSet::new());
        for one in formula.split(ALTERNATIVES) {
            value_of(one, |what| {
                names.borrow_mut().insert(what.to_owned());
                Some(1.0)
            });
        }
        names.into_inner()
    }

    /// Compares this number like [`Self::compared`], but does not consider the ranges of assumed constants.
    pub(super) fn compared_as_assumed(&self, line: impl Fn(&str, &str) -> Option<f64>) -> Option<Comparison> {
        let Entry::Compared(Reproduction { report, formula, .. }) = self.entry else { return None };
        let alternatives = formula.split(ALTERNATIVES).map(|one| value_of(one, |what| line(report, what)));
        let alternatives = alternatives.collect::<Option<Vec<_>>>()?;
        let compared = alternatives.into_iter().filter_map(|simulated| self.comparison(self.id, 1.0, simulated));
        compared.max_by(|one, other| {
            let order = one.is_met().cmp(&other.is_met()).reverse();
            order.then_with(|| one.distance().total_cmp(&other.distance()))
        })
    }

    /// Compares this number with the line `what` of `report`. Returns `None` unless one alternative is that line, or
    /// that line times a constant.
    fn of_line(&self, report: &str, what: &str, simulated: f64) -> Option<Comparison> {
        let Entry::Compared(reproduction) = self.entry else { return None };
        if reproduction.report != report {
            return None;
        }
        let factor = |one: &str| match one.strip_prefix(what)? {
            "" => Some(1.0),
            rest => rest.strip_prefix(" * ")?.parse().ok(),
        };
        let factor = reproduction.formula.split(ALTERNATIVES).find_map(factor)?;
        self.comparison(what, factor, simulated).map(|comparison| self.judged(comparison))
    }

    /// Compares the printed number, divided by `factor`, with a simulated value.
    fn comparison(&self, what: &str, factor: f64, simulated: f64) -> Option<Comparison> {
        let Entry::Compared(Reproduction { in_words, basis, .. }) = self.entry else { return None };
        let (least, most) = target(self.value, self.relation, in_words)?;
        let line = Comparison::new(what, self.unit, ValueKind::Printed, least / factor, simulated);
        Some(Comparison { paper_most: most / factor, basis, ..line })
    }
}

/// Number of columns of `printed.tsv`.
const PRINTED_COLUMNS: usize = 12;
/// Separator of the alternatives in a formula. All of them must agree with the paper.
const ALTERNATIVES: &str = " | ";
/// Operators that formulas can have.
const OPERATORS: [&str; 3] = [" / ", " - ", " * "];

/// Returns the fields of a line; `None` if it does not have exactly `N` of them.
fn fields<const N: usize>(line: &'static str) -> Option<[&'static str; N]> {
    line.split('\t').collect::<Vec<_>>().try_into().ok()
}

/// Returns the value of a formula of numbers and names of lines, such as `1000 / create - remove`. It is evaluated from
/// left to right.
fn value_of(formula: &str, line: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let end_of = |rest: &str| OPERATORS.iter().filter_map(|operator| rest.find(operator)).min();
    let mut rest = Some(formula);
    let terms = iter::from_fn(|| {
        let text = rest?;
        let end = end_of(text).unwrap_or(text.len());
        // The operator is a letter between two spaces.
        rest = text.get(end + 3..);
        Some((&text[..end], text.get(end + 1..end + 2).unwrap_or_default()))
    });
    let mut operator = "";
    let mut value = 0.0;
    for (term, next) in terms {
        let term = term.parse().ok().or_else(|| line(term))?;
        value = match operator {
            "/" => value / term,
            "-" => value - term,
            "*" => value * term,
            _ => term,
        };
        operator = next;
    }
    Some(value)
}

/// Returns the least and the greatest value that agree with the paper. They are equal if the paper prints one value.
/// Returns `None` if the value is printed in words and `in_words` gives no range for them.
fn target(value: &str, relation: &str, in_words: &str) -> Option<(f64, f64)> {
    if let Some(range) = relation.strip_prefix("range ") {
        let (least, most) = range.split_once("..")?;
        return Some((least.parse().ok()?, most.parse().ok()?));
    }
    let value = if in_words.is_empty() { number(value)? } else { in_words.parse().ok()? };
    match relation {
        "=" | "~" | "factor of" => Some((value, value)),
        "more than" | ">=" => Some((value, f64::INFINITY)),
        "less than" | "<=" => Some((0.0, value)),
        "slightly more than" => Some((value, value * (1.0 + MET_WITHIN))),
        _ => None,
    }
}

/// Parses a printed number: `1398.02`, `+80`, `28%`, `3.4 million`, `2.5 times`, or minutes and seconds (`46:31`).
fn number(text: &str) -> Option<f64> {
    if let Some((minutes, seconds)) = text.split_once(':') {
        return Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?);
    }
    let millions = text.strip_suffix(" million");
    let plain = [" times", "%"].iter().find_map(|unit| text.strip_suffix(unit)).or(millions).unwrap_or(text);
    let value: f64 = plain.parse().ok()?;
    Some(if millions.is_some() { value * 1e6 } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAPERS;
    use std::collections::BTreeMap;

    /// Guards against a result that is left out without a reason. Each row of the catalog names lines that exist, or
    /// has a reason. The test simulates nothing.
    #[test]
    fn every_printed_number_is_compared_or_has_a_reason() {
        let lines: BTreeMap<_, BTreeSet<_>> = PAPERS
            .iter()
            .map(|paper| (paper.name, paper.lines().into_iter().map(|line| line.what).collect()))
            .collect();
        let line = |report: &str, what: &str| lines.get(report)?.contains(what).then_some(1.0);
        for row in rows() {
            match row.entry {
                Entry::Compared(Reproduction { formula, in_words, .. }) => {
                    assert!(row.compared(line).is_some(), "{}: no such line or value: {formula}", row.id);
                    let is_number = row.relation.starts_with("range ") || number(row.value).is_some();
                    assert_eq!(is_number, in_words.is_empty(), "{}: {} is also given in words", row.id, row.value);
                }
                Entry::LeftOut(_, reason) => assert!(reason.len() > 20, "{} has no reason", row.id),
            }
        }
    }

    /// Guards against an account that looks better because rows are missing. The papers print 288 numbers in 74 claims.
    #[test]
    fn the_catalog_has_every_row_once() {
        assert_eq!(PRINTED.lines().count(), ACCOUNT.lines().count());
        assert_eq!(rows().len(), 288);
        assert_eq!(rows().iter().map(|row| row.id).collect::<BTreeSet<_>>().len(), 288);
        assert_eq!(rows().iter().map(|row| row.claim).collect::<BTreeSet<_>>().len(), 74);
        let setups = include_str!("../../papers/setups.tsv");
        assert_eq!(setups.lines().skip(1).filter_map(|line| fields::<9>(line)).count(), 204);
    }

    #[test]
    fn formulas_are_computed_from_left_to_right() {
        let line = |what: &str| {
            [("reads + writes", 3.0), ("200/s: hits", 50.0)].iter().find(|known| known.0 == what).map(|known| known.1)
        };
        assert_eq!(value_of("5 - reads + writes / 4", line), Some(0.5));
        assert_eq!(value_of("200/s: hits * 2", line), Some(100.0));
        assert_eq!(value_of("1000 / 200/s: hits", line), Some(20.0));
        assert_eq!(value_of("misses - 1", line), None);
    }

    /// Guards against claims that count as met because a printed value or relation is misread.
    #[test]
    fn printed_numbers_keep_their_relation() {
        assert_eq!(target("46:31", "=", ""), Some((2791.0, 2791.0)));
        assert_eq!(target("3.4 million", "~", ""), Some((3.4e6, 3.4e6)));
        assert_eq!(target("+80", "=", ""), Some((80.0, 80.0)));
        assert_eq!(target("60%", "slightly more than", ""), Some((60.0, 75.0)));
        assert_eq!(target("2-3 times", "range 2..3", ""), Some((2.0, 3.0)));
        assert_eq!(target("20", "more than", ""), Some((20.0, f64::INFINITY)));
        assert_eq!(target("twice", "=", "2"), Some((2.0, 2.0)));
        assert_eq!(target("twice", "=", ""), None);
        assert_eq!(target("2", "about", ""), None);
    }

    /// Guards against a line that is compared with a bound although the paper also prints a value.
    #[test]
    fn line_is_compared_with_the_exact_value() {
        let line = Comparison::published("markatos-table2", "LAZY-READS-LOC", 462.6);
        assert_eq!((line.paper, line.paper_most), (495.0, 495.0));
    }
}
