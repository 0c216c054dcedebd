//! The ranges of assumed constants, and the lines that hold over all of them.
//!
//! Owns: `models/ranges.toml` with the ranges of machines' assumed values (`models/beds.toml` has those of the beds),
//! and `papers/ranges.tsv` with the lines at the ends of each range and at a value between them, which
//! [`vary_assumptions`] writes. A report is varied as long as it has a conditional row that was met so far: others
//! cannot become predictions. Invariant: a row is a prediction only if it is met in all variations of its report, and
//! then all assumed constants were varied. The file has the hash of the models it was made from, which a test compares.

use super::{
    Paper, PaperOptions,
    beds::{self, BedConstant},
    catalog::{CatalogRow, Entry, rows},
    history,
    markatos::KnownRuns,
    varied::{self, VariedScope},
};
use crate::{Comparison, ComparisonBasis, Model, Report, Table, parallel};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};
use toml::Value;

pub(super) static TEXT: &str = include_str!("../../models/ranges.toml");
static VARIATIONS: &str = include_str!("../../papers/ranges.tsv");

/// Seed of the published reports.
const SEED: u64 = 11;
/// Name under which the seed is varied like a constant. `OTHER_SEEDS` are its other values.
const SEED_NAME: &str = "seed";
const OTHER_SEEDS: [u64; 2] = [12, 13];
/// Mark in place of a constant's name, for the lines of a report in which nothing was varied.
const UNVARIED: &str = "-";
/// Title of the table of ranges in a report.
pub const RANGES_TITLE: &str = "Conditional lines that change by more than 5% within the range of an assumed constant";
/// Mark in place of a constant's name, if the variations of a report were stopped early. None of the report's rows can
/// then be a prediction.
const UNFINISHED: &str = "unfinished";
/// Relative change of a line above which the table shows its constant.
const SHOWN_ABOVE: f64 = 0.05;

/// The lines of a report with one constant at another value.
#[derive(Clone, Debug, PartialEq)]
struct Variation {
    report: String,
    constant: String,
    value: f64,
    /// The simulated values, by the names of their lines.
    lines: BTreeMap<String, f64>,
}

/// A variation in which a printed number is not met, with the comparison.
struct Break {
    variation: &'static Variation,
    comparison: Comparison,
}

/// Returns all variations in `papers/ranges.tsv`.
fn variations() -> &'static [Variation] {
    static PARSED: LazyLock<Vec<Variation>> = LazyLock::new(|| {
        let mut parsed: Vec<Variation> = Vec::new();
        for text in VARIATIONS.lines().skip(2) {
            let fields: Vec<_> = text.split('\t').collect();
            let [report, constant, value, line, simulated] = fields[..] else { panic!("not a variation: {text}") };
            let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("not a number in a variation: {text}"));
            let value = number(value);
            let is_same =
                |known: &&mut Variation| known.report == report && known.constant == constant && known.value == value;
            let lines = match parsed.last_mut().filter(is_same) {
                Some(known) => &mut known.lines,
                None => {
                    let report = report.to_owned();
                    let constant = constant.to_owned();
                    parsed.push(Variation { report, constant, value, lines: BTreeMap::new() });
                    &mut parsed.last_mut().expect("one was added").lines
                }
            };
            lines.insert(line.to_owned(), number(simulated));
        }
        parsed
    });
    &PARSED
}

/// Compares the number of a row with a variation.
fn in_variation(row: &CatalogRow, variation: &Variation) -> Option<Comparison> {
    let line = |report: &str, what: &str| variation.lines.get(what).copied().filter(|_| report == variation.report);
    row.compared_as_assumed(line)
}

/// Returns whether a conditional row agrees with the paper in all variations of its report. Returns `false` if there
/// are none.
pub(super) fn holds(id: &str) -> bool {
    static HOLDING: LazyLock<BTreeSet<&'static str>> =
        LazyLock::new(|| conditional().filter(|row| is_held(row)).map(|row| row.id).collect());
    HOLDING.contains(id)
}

/// Returns whether `row` agrees with the paper in all variations of its report. Returns `false` if there are none.
fn is_held(row: &CatalogRow) -> bool {
    let mut of_report = variations().iter().filter(|variation| report_of(row) == Some(&*variation.report)).peekable();
    let is_met = |variation: &Variation| in_variation(row, variation).is_some_and(|comparison| comparison.is_met());
    of_report.peek().is_some() && of_report.all(is_met)
}

/// Returns the rows whose lines depend on assumed constants, none of which was chosen to meet the printed number.
fn conditional() -> impl Iterator<Item = &'static CatalogRow> {
    rows().iter().filter(|row| match row.entry {
        Entry::Compared(reproduction) => reproduction.basis == ComparisonBasis::Conditional,
        Entry::LeftOut(..) => false,
    })
}

/// Returns the variation that is farthest from the printed value; `None` if all agree with it.
fn worst(row: &CatalogRow) -> Option<Break> {
    let compared = variations().iter().filter_map(|variation| {
        let comparison = in_variation(row, variation)?;
        Some(Break { variation, comparison })
    });
    let missed = compared.filter(|broken| !broken.comparison.is_met());
    missed.max_by(|one, other| one.comparison.distance().total_cmp(&other.comparison.distance()))
}

/// Returns a table of the conditional rows. For each, it says whether it is a prediction, and which constant breaks it.
pub(super) fn verdicts() -> Table {
    let columns = ["row: verdict", "paper", "simulated", "constant", "then simulated"];
    let mut table = Table::new("Conditional rows over the ranges of the assumed constants", &columns);
    for row in conditional() {
        let unvaried = variations()
            .iter()
            .find(|variation| variation.constant == UNVARIED && in_variation(row, variation).is_some());
        let Some(comparison) = unvaried.and_then(|variation| in_variation(row, variation)) else {
            table.push(
                format!("{}: missed with the assumed constants, as are all conditional rows of its report", row.id),
                vec![f64::NAN; 4],
            );
            continue;
        };
        let nearest = comparison.simulated.clamp(comparison.paper, comparison.paper_most);
        let simulated = comparison.simulated;
        let is_unfinished =
            variations().iter().any(|known| known.constant == UNFINISHED && report_of(row) == Some(&*known.report));
        let (verdict, at, then) = match worst(row) {
            None if is_unfinished => ("met so far, but not all constants were varied".to_owned(), f64::NAN, f64::NAN),
            None => ("predicted".to_owned(), f64::NAN, f64::NAN),
            Some(_) if !comparison.is_met() => ("missed with the assumed constants".to_owned(), f64::NAN, f64::NAN),
            Some(Break { variation, comparison }) => {
                (format!("broken by {}", variation.constant), variation.value, comparison.simulated)
            }
        };
        table.push(format!("{}: {verdict}", row.id), vec![nearest, simulated, at, then]);
    }
    table
}

/// Returns a table of a report's conditional lines, at the ends and in the middle of the ranges that change them most.
pub(super) fn table(report: &str) -> Option<Table> {
    let of_report: Vec<_> = variations().iter().filter(|variation| variation.report == report).collect();
    let unvaried = of_report.iter().find(|variation| variation.constant == UNVARIED)?;
    let columns = ["line, constant", "constant's value", "simulated", "as above", "ratio of the two"];
    let mut table = Table::new(RANGES_TITLE, &columns);
    for (what, as_above) in &unvaried.lines {
        for variation in &of_report {
            let Some(simulated) = variation.lines.get(what) else { continue };
            let ratio = simulated / as_above;
            if (ratio - 1.0).abs() > SHOWN_ABOVE {
                let name = format!("{what}, {}", variation.constant);
                table.push(name, vec![variation.value, *simulated, *as_above, ratio]);
            }
        }
    }
    Some(table)
}

/// Varies the assumed constants of each published report in `reports` that has a conditional row. Returns the new
/// content of `papers/ranges.tsv`. After `limit`, begins no further simulation; reports that are not complete then have
/// no predictions. Calls `progress` with the report, the constant and the value of each simulation.
///
/// # Panics
/// If a store refuses its options at an end of a range.
pub fn vary_assumptions(
    reports: &[Report],
    jobs: usize,
    limit: Duration,
    progress: &(dyn Fn(&str, &str, f64) + Sync),
) -> String {
    let begun = Instant::now();
    let found = parallel::map(reports, jobs, |report| vary_report(report, &|| begun.elapsed() > limit, progress));
    let mut text =
        format!("machines and beds\t{:016x}\nreport\tconstant\tvalue\tline\tsimulated\n", history::models_hash());
    for Variation { report, constant, value, lines } in found.into_iter().flatten() {
        if lines.is_empty() {
            writeln!(text, "{report}\t{constant}\t{value}\t{UNVARIED}\t0").expect("strings grow");
        }
        for (line, simulated) in lines {
            writeln!(text, "{report}\t{constant}\t{value}\t{line}\t{simulated}").expect("strings grow");
        }
    }
    text
}

/// Returns the variations of a report. Stops once each of its rows is missed in one of them, or `is_late` returns
/// `true`.
fn vary_report(
    report: &Report,
    is_late: &dyn Fn() -> bool,
    progress: &(dyn Fn(&str, &str, f64) + Sync),
) -> Vec<Variation> {
    let Some(paper) = report.name.and_then(Paper::named) else { return Vec::new() };
    let of_report = conditional().filter(|row| report_of(row) == report.name);
    let wanted: BTreeSet<_> = of_report.flat_map(CatalogRow::lines).collect();
    let lines = report.comparisons.iter().filter(|line| wanted.contains(&line.what));
    let lines = lines.map(|line| (line.what.clone(), line.simulated)).collect();
    let published = Variation { report: paper.name.to_owned(), constant: UNVARIED.to_owned(), value: 0.0, lines };
    let is_met =
        |row: &CatalogRow, variation: &Variation| in_variation(row, variation).is_some_and(|line| line.is_met());
    let mut open_rows: Vec<_> = conditional().filter(|row| is_met(row, &published)).collect();
    let mut found = vec![published];
    let [first_seed, other_seed] = OTHER_SEEDS.map(|seed| (SEED_NAME.to_owned(), seed as f64));
    let mut cases = VecDeque::from([first_seed]);
    while let Some((constant, value)) = cases.pop_front().filter(|_| !open_rows.is_empty()) {
        if is_late() {
            let report = paper.name.to_owned();
            let constant = UNFINISHED.to_owned();
            found.push(Variation { report, constant, value: 0.0, lines: BTreeMap::new() });
            break;
        }
        progress(paper.name, &constant, value);
        let (variation, used) = vary(paper, &constant, value, &open_rows);
        open_rows.retain(|row| is_met(row, &variation));
        if found.len() == 1 {
            cases.extend(values_of(&used));
            cases.push_back(other_seed.clone());
        }
        found.push(variation);
    }
    if found.len() == 1 { Vec::new() } else { found }
}

/// Simulates a report with one constant at another value. Returns the lines that `open_rows` need, and the names of the
/// constants and machines that were used.
fn vary(paper: &Paper, constant: &str, value: f64, open_rows: &[&CatalogRow]) -> (Variation, BTreeSet<String>) {
    let scope = Arc::new(VariedScope::varying(constant, value, open_rows.iter().flat_map(|row| row.lines()).collect()));
    let options = PaperOptions {
        seed: if constant == SEED_NAME { value as u64 } else { SEED },
        jobs: 1,
        share: 1.0,
        model: None,
        varies_assumptions: false,
        known: &KnownRuns::default(),
        progress: &|_| {},
        dry_run: false,
    };
    let report = varied::within(Some(Arc::clone(&scope)), || paper.simulate(&options));
    let report = report.unwrap_or_else(|error| panic!("{} with {constant} = {value}: {error}", paper.name));
    let is_wanted = |line: &&Comparison| scope.wants(&line.what);
    let lines = report.comparisons.iter().filter(is_wanted).map(|line| (line.what.clone(), line.simulated)).collect();
    let variation = Variation { report: paper.name.to_owned(), constant: constant.to_owned(), value, lines };
    (variation, scope.used())
}

/// Returns the constants to vary, each with a value to try. `used` has the names of constants and machines. Constants
/// of test beds with the widest ranges come first, then those of machines.
fn values_of(used: &BTreeSet<String>) -> Vec<(String, f64)> {
    let mut of_beds: Vec<_> = used.iter().filter_map(|name| Some((name, beds::constants().get(name)?))).collect();
    let width =
        |constant: &BedConstant| constant.range.map_or(1.0, |(least, most)| most / least.max(f64::MIN_POSITIVE));
    of_beds.sort_by(|(_, one), (_, other)| width(other).total_cmp(&width(one)));
    let of_beds =
        of_beds.into_iter().flat_map(|(name, constant)| bed_values(constant).map(|value| (name.clone(), value)));
    let machines = used.iter().filter(|name| !beds::constants().contains_key(*name));
    let of_machines = machines.flat_map(|machine| {
        machine_values(machine).into_iter().map(move |(field, value)| (format!("{machine} {field}"), value))
    });
    of_beds.chain(of_machines).collect()
}

fn report_of(row: &CatalogRow) -> Option<&'static str> {
    match row.entry {
        Entry::Compared(reproduction) => Some(reproduction.report),
        Entry::LeftOut(..) => None,
    }
}

/// Returns the values to try for a constant of a test bed: the ends of its range and, if its own value is one of them,
/// the middle. Leaves out its own value.
fn bed_values(constant: &BedConstant) -> impl Iterator<Item = f64> + use<> {
    let BedConstant { value, range, .. } = constant.clone();
    let values = range.map(|(least, most)| {
        let is_whole = least.fract() == 0.0 && most.fract() == 0.0;
        let middle = f64::midpoint(least, most);
        let middle = if is_whole { middle.round() } else { middle };
        let is_end = value == least || value == most;
        [least, if is_end { middle } else { value }, most]
    });
    values.into_iter().flatten().filter(move |other| *other != value)
}

/// Returns the assumed parameters of a machine, each with the ends of its range. The machine's own value is in between.
fn machine_values(machine: &str) -> Vec<(String, f64)> {
    let model = Model::open(machine).expect("the machines that come along are right");
    let ranges: toml::Table = TEXT.parse().expect("the ranges that come along are TOML");
    let mut values = Vec::new();
    for note in model.notes.iter().filter(|note| is_assumed(&note.source)) {
        let value: f64 = note.value.parse().unwrap_or_else(|_| panic!("{machine}: {} is no number", note.name));
        let (section, field) = note.name.split_once('.').expect("notes have a section");
        let range = ranges.get(section).and_then(|section| section.get(field));
        let range = range.unwrap_or_else(|| panic!("models/ranges.toml has no {}", note.name));
        let ends = |name: &str| {
            let ends = range.get(name).and_then(Value::as_array)?;
            let number = |end: &Value| end.as_float().or_else(|| end.as_integer().map(|whole| whole as f64));
            ends.iter().map(number).collect::<Option<Vec<_>>>()
        };
        let times = || Some(ends("times")?.iter().map(|times| times * value).collect());
        let ends = ends("range").or_else(times).unwrap_or_else(|| panic!("{} has neither ends nor factors", note.name));
        values.extend(ends.into_iter().filter(|end| *end != value).map(|end| (note.name.clone(), end)));
    }
    values
}

/// Returns whether a machine's value is assumed: derived, remembered, measured by others, or fitted. `source` begins
/// with a mark that says so.
fn is_assumed(source: &str) -> bool {
    ["[D]", "[M]", "[E]", "[C]"].iter().any(|mark| source.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MODELS, report::number};

    /// Guards against predictions that belong to earlier models, and conditional rows that were never varied.
    #[test]
    fn the_file_was_made_from_the_models_there_are() {
        let made_from = VARIATIONS.lines().next().and_then(|line| line.split('\t').nth(1));
        let hash = format!("{:016x}", history::models_hash());
        let command = "laboratory ranges crates/larder-sim/papers/ranges.tsv docs/internals/laboratory.md";
        assert_eq!(made_from, Some(&*hash), "the models changed: run {command}");
        let reports: BTreeSet<_> = variations().iter().map(|variation| variation.report.as_str()).collect();
        for row in conditional().filter(|row| report_of(row).is_some_and(|report| reports.contains(report))) {
            let compared: Vec<_> = variations().iter().filter_map(|variation| in_variation(row, variation)).collect();
            let is_missed = compared.first().is_some_and(|published| !published.is_met());
            assert!(is_missed || compared.len() > 1, "{} was not varied: run {command}", row.id);
        }
    }

    /// Guards against an assumed value that is not varied. Each has a range, and the machine is valid at both ends.
    /// Machines of today are in no paper.
    #[test]
    fn every_assumed_value_of_a_machine_can_be_varied_over_its_range() {
        let of_papers = MODELS.iter().filter(|(_, text)| !text.contains("as sold in 2026"));
        for (machine, _) in of_papers {
            for (field, value) in machine_values(machine) {
                if let Err(error) = Model::with_value(machine, &field, value) {
                    panic!("{machine} with {field} = {}: {error}", number(value));
                }
            }
        }
    }

    #[test]
    fn values_to_try_are_the_ends_and_one_between_them_without_the_own_value() {
        let values = |value, least, most| {
            bed_values(&BedConstant { value, source: String::new(), range: Some((least, most)) }).collect::<Vec<_>>()
        };
        assert_eq!(values(10.0, 5.0, 20.0), [5.0, 20.0]);
        assert_eq!(values(5.0, 5.0, 20.0), [13.0, 20.0]);
        assert_eq!(values(6.0, 5.0, 6.0), [5.0]);
        assert_eq!(values(0.08, 0.0, 0.08), [0.0, 0.04]);
    }
}
