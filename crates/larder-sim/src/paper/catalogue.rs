//! Every quantitative result that the five papers print, each with the line that reproduces it or the reason why there
//! is none.
//!
//! Owns: the published values and where they are printed. Reports take them from here ([`Comparison::published`]), so
//! each value is written once. Values that are derived from printed ones, or measured by others, are in the reports.
//! Invariant: each result that names a report is a line of that report, and each printed line is a result here. A test
//! checks this without running a simulation.
//!
//! Qualitative statements ("falls fast", "8 buffers help already") and the inputs of the models (sizes of disks, mixes
//! of objects) are not results.

mod hashcache;
mod markatos;
mod squid_study;
mod user_space;

use crate::{Comparison, ComparisonBasis, MODELS, Model, Report, Table, ValueKind, report::range_text};
use std::iter;

/// A result that a paper prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PublishedResult {
    /// The table, figure or section.
    place: &'static str,
    /// The quantity; also the name of its line in a report.
    what: &'static str,
    /// The unit of the values.
    unit: &'static str,
    /// The value, or the least of a range.
    least: f64,
    /// The value, or the greatest of a range.
    most: f64,
    reproduction: Reproduction,
}

/// The line that reproduces a result, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reproduction {
    /// Compared in a line of a report.
    Line { report: &'static str, basis: ComparisonBasis },
    /// Not reproduced, for this reason.
    Impossible(&'static str),
}

/// A paper and its results.
struct PublishedPaper {
    name: &'static str,
    results: &'static [PublishedResult],
}

/// The five papers.
static PUBLISHED: [PublishedPaper; 5] = [
    PublishedPaper { name: "Markatos et al.", results: markatos::RESULTS },
    PublishedPaper { name: "Performance Issues in Squid", results: squid_study::RESULTS },
    PublishedPaper { name: "HashCache", results: hashcache::RESULTS },
    PublishedPaper { name: "ESP", results: user_space::ESP_RESULTS },
    PublishedPaper { name: "UCFS", results: user_space::UCFS_RESULTS },
];

impl Comparison {
    /// Creates the comparison with a printed result.
    ///
    /// # Panics
    /// If the catalogue has no such line for this report.
    pub(super) fn published(report: &str, what: impl Into<String>, simulated: f64) -> Self {
        let what = what.into();
        let result = results().find(|(_, result)| result.what == what && result.report() == Some(report));
        let (_, result) = result.unwrap_or_else(|| panic!("the catalogue has no line of {report}: {what}"));
        let Reproduction::Line { basis, .. } = result.reproduction else { unreachable!("it was found by its report") };
        let line = Self::new(what, result.unit, ValueKind::Printed, result.least, simulated);
        Self { paper_most: result.most, basis, ..line }
    }
}

/// Returns a summary of `reports`: how many of the papers' printed results they compare, meet and predict.
pub(super) fn account(reports: &[Report]) -> Report {
    let lines = || reports.iter().flat_map(|report| &report.comparisons);
    let printed = |line: &&Comparison| line.kind == ValueKind::Printed;
    let is_predicted = |line: &&Comparison| line.basis == ComparisonBasis::Predicted;
    let (compared, met) =
        (lines().filter(printed).count(), lines().filter(printed).filter(|line| line.is_met()).count());
    let predicted = lines().filter(printed).filter(|line| line.is_met()).filter(is_predicted).count();
    let all = results().count();
    let mut account = Report::new(format!(
        "{compared} of {all} printed results compared, {met} within 25%, {predicted} of those predicted"
    ));
    account.tables = vec![by_kind(reports), by_paper(reports), Report::missed(reports)];
    account.remarks = results().filter_map(|(paper, result)| result.reason(paper)).collect();
    account.remarks.extend(calibrated());
    account
}

/// Returns the counts of lines by the source of the paper's value and by their basis.
fn by_kind(reports: &[Report]) -> Table {
    let columns = ["the paper's value is", "lines", "within 25%", "fitted", "repeated", "predicted"];
    let mut table = Table::new("Lines, those within 25%, and those of each basis within 25%", &columns);
    for kind in ValueKind::ALL {
        let lines = || reports.iter().flat_map(|report| &report.comparisons).filter(|line| line.kind == kind);
        table.push(kind.name(), counts(lines().collect()));
    }
    table
}

/// Returns the counts of printed results by paper.
fn by_paper(reports: &[Report]) -> Table {
    let columns = ["paper", "printed", "compared", "within 25%", "fitted", "repeated", "predicted"];
    let mut table = Table::new("Printed results of each paper, and those of each basis within 25%", &columns);
    for paper in &PUBLISHED {
        let is_own = |name: &str, line: &Comparison| {
            paper.results.iter().any(|result| result.what == line.what && result.report() == Some(name))
        };
        let lines = reports.iter().flat_map(|report| {
            let printed = report.comparisons.iter().filter(|line| line.kind == ValueKind::Printed);
            printed.filter(move |line| report.name.is_some_and(|name| is_own(name, line)))
        });
        let counts = counts(lines.collect());
        table.push(paper.name, iter::once(paper.results.len() as f64).chain(counts).collect());
    }
    table
}

/// Returns the number of lines, the number met, and the number met on each basis.
fn counts(lines: Vec<&Comparison>) -> Vec<f64> {
    let met = || lines.iter().filter(|line| line.is_met());
    let of_basis = ComparisonBasis::ALL.map(|basis| met().filter(|line| line.basis == basis).count());
    [lines.len(), met().count()].into_iter().chain(of_basis).map(|count| count as f64).collect()
}

/// Returns a remark for each machine that has calibrated constants.
fn calibrated() -> impl Iterator<Item = String> {
    MODELS.iter().filter_map(|(name, _)| {
        let model = Model::open(name).expect("the machines that come along are right");
        let is_calibrated = |note: &&crate::Note| note.source.starts_with("[C]");
        let constants: Vec<_> = model.notes.iter().filter(is_calibrated).map(|note| note.name.as_str()).collect();
        (!constants.is_empty()).then(|| format!("Calibrated on {name}: {}.", constants.join(", ")))
    })
}

/// Returns every result with its paper's name.
fn results() -> impl Iterator<Item = (&'static str, &'static PublishedResult)> {
    PUBLISHED.iter().flat_map(|paper| paper.results.iter().map(|result| (paper.name, result)))
}

/// Creates a result that no line reproduces yet.
const fn printed(place: &'static str, what: &'static str, value: f64, unit: &'static str) -> PublishedResult {
    let reproduction = Reproduction::Impossible("");
    PublishedResult { place, what, unit, least: value, most: value, reproduction }
}

impl PublishedResult {
    /// Returns the result as a range up to `most`.
    const fn up_to(self, most: f64) -> Self {
        Self { most, ..self }
    }

    /// Returns the result as a lower bound.
    const fn or_more(self) -> Self {
        Self { most: f64::INFINITY, ..self }
    }

    /// Returns the result as an upper bound.
    const fn or_less(self) -> Self {
        Self { least: 0.0, ..self }
    }

    const fn fitted(self, report: &'static str) -> Self {
        self.in_line(report, ComparisonBasis::Fitted)
    }

    const fn repeated(self, report: &'static str) -> Self {
        self.in_line(report, ComparisonBasis::Repeated)
    }

    const fn predicted(self, report: &'static str) -> Self {
        self.in_line(report, ComparisonBasis::Predicted)
    }

    const fn in_line(self, report: &'static str, basis: ComparisonBasis) -> Self {
        Self { reproduction: Reproduction::Line { report, basis }, ..self }
    }

    const fn impossible(self, reason: &'static str) -> Self {
        Self { reproduction: Reproduction::Impossible(reason), ..self }
    }

    /// Returns the name of the report that compares it.
    fn report(&self) -> Option<&'static str> {
        match self.reproduction {
            Reproduction::Line { report, .. } => Some(report),
            Reproduction::Impossible(_) => None,
        }
    }

    /// Returns why the result is not compared, or `None` if it is.
    fn reason(&self, paper: &str) -> Option<String> {
        let Self { place, what, unit, least, most, .. } = self;
        match self.reproduction {
            Reproduction::Line { .. } => None,
            Reproduction::Impossible(reason) => {
                let value = range_text(*least, *most);
                Some(format!("Not compared: {paper}, {place}, {what} ({value} {unit}): {reason}."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAPERS;
    use std::collections::BTreeSet;

    /// At stake: the summary of the papers. Fails if a report lacks a line of the catalogue, or has a printed line that
    /// is not in the catalogue. Nothing is simulated.
    #[test]
    fn every_result_is_a_line_of_its_report_or_has_a_reason() {
        let mut promised = BTreeSet::new();
        for (paper, result) in results() {
            match result.reproduction {
                Reproduction::Line { report, .. } => {
                    assert!(promised.insert((report, result.what)), "{paper}: {} is twice in {report}", result.what);
                }
                Reproduction::Impossible(reason) => {
                    assert!(reason.len() > 20, "{paper}: {} is not compared and has no reason", result.what);
                }
            }
            assert!(result.least <= result.most && result.least >= 0.0, "{paper}: {}", result.what);
        }
        let reports = PAPERS.iter().map(|paper| (paper.name, paper.lines()));
        let present: Vec<_> = reports.collect();
        let present: BTreeSet<_> = present
            .iter()
            .flat_map(|(name, lines)| lines.iter().map(move |line| (*name, line)))
            .filter(|(_, line)| line.kind == ValueKind::Printed)
            .map(|(name, line)| (name, line.what.as_str()))
            .collect();
        assert_eq!(present, promised);
    }

    /// At stake: a goal reached by counting fewer results. The papers print 166 results that a laboratory could
    /// reproduce.
    #[test]
    fn the_catalogue_has_all_166_results() {
        let counts: Vec<_> = PUBLISHED.iter().map(|paper| (paper.name, paper.results.len())).collect();
        assert_eq!(results().count(), 166, "{counts:?}");
    }

    #[test]
    fn the_account_counts_what_is_met_by_basis() {
        let mut report = Report::new("Markatos et al., Table 2: rates");
        report.name = Some("markatos-table2");
        let lines = [("SIMPLE", 14.0), ("SQUID", 40.0)];
        report.comparisons =
            lines.map(|(what, simulated)| Comparison::published("markatos-table2", what, simulated)).to_vec();
        let account = account(&[report]);
        assert!(account.title.starts_with("2 of 166 printed results compared, 1 within 25%"), "{}", account.title);
        assert_eq!(account.tables[1].rows[0].1[1..3], [2.0, 1.0]);
        assert_eq!(account.tables[2].rows.len(), 1);
        assert!(account.remarks.iter().any(|remark| remark.starts_with("Not compared: HashCache")));
    }
}
