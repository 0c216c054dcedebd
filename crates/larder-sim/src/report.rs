//! The results of a simulation: comparisons with published values, remarks, figures.
//!
//! Owns: [`Report`], and its output as text, JSON and CSV. Simulation and drawing are elsewhere.

use crate::figure::Figure;
use std::fmt::Write as _;

/// Largest relative difference from the paper's value with which a value counts as met.
pub(crate) const MET_WITHIN: f64 = 0.25;

/// The result of a simulation: comparisons, tables and figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Name of the table or figure of a paper that this reproduces; `None` if it reproduces none.
    pub name: Option<&'static str>,
    /// Title of the report.
    pub title: String,
    /// Comparisons with the values of a paper.
    pub comparisons: Vec<Comparison>,
    /// Tables other than the table of comparisons.
    pub tables: Vec<Table>,
    /// Remarks for the reader, such as assumptions, and reasons why values are not met.
    pub remarks: Vec<String>,
    /// Figures to be drawn.
    pub figures: Vec<Figure>,
}

/// A simulated value, and the paper's value with which it is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the quantity.
    pub what: String,
    /// Unit of both values.
    pub unit: &'static str,
    /// Source of the paper's value.
    pub kind: ValueKind,
    /// Independence of the simulated value from the paper's.
    pub basis: ComparisonBasis,
    /// The paper's value, or the least value of its range.
    pub paper: f64,
    /// The paper's value, or the greatest value of its range.
    pub paper_most: f64,
    /// The simulated value.
    pub simulated: f64,
}

/// The source of a paper's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The paper prints the value as a number or in words. If it prints values for several disks, only one of them is
    /// simulated.
    Printed,
    /// The value was computed from printed values, or read off a figure.
    Derived,
    /// The value was measured by people other than the paper's authors.
    External,
}

impl ValueKind {
    /// All sources.
    pub const ALL: [Self; 3] = [Self::Printed, Self::Derived, Self::External];

    /// Returns the name of this source in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Printed => "printed",
            Self::Derived => "derived",
            Self::External => "external",
        }
    }
}

/// The independence of a simulated value from the published one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComparisonBasis {
    /// A constant was chosen so that this value, or a group of values with it, is met.
    Fitted,
    /// The same published value occurs elsewhere in the paper, and is compared there too.
    Repeated,
    /// The value follows from other lines and from inputs by arithmetic.
    #[default]
    Derived,
    /// No constant was chosen so that this value is met, but some constants are assumed. Other assumptions may give
    /// another value.
    Conditional,
    /// No constant was chosen so that this value is met, and it is met over the whole range of each assumed constant.
    Predicted,
}

impl ComparisonBasis {
    /// All bases.
    pub const ALL: [Self; 5] = [Self::Fitted, Self::Repeated, Self::Derived, Self::Conditional, Self::Predicted];

    /// Returns the name of this basis in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Repeated => "repeated",
            Self::Derived => "derived",
            Self::Conditional => "conditional",
            Self::Predicted => "predicted",
        }
    }
}

/// A table with named rows and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Names of the columns. The first column contains the names of the rows.
    pub columns: Vec<String>,
    /// The name and the values of each row. The values belong to the second and later columns.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Comparison {
    /// Creates a comparison with a value that was derived from a paper's, or that others have measured.
    pub fn new(what: impl Into<String>, unit: &'static str, kind: ValueKind, paper: f64, simulated: f64) -> Self {
        Self { what: what.into(), unit, kind, basis: ComparisonBasis::default(), paper, paper_most: paper, simulated }
    }

    /// Sets the basis of the comparison.
    #[must_use]
    pub fn on(self, basis: ComparisonBasis) -> Self {
        Self { basis, ..self }
    }

    /// Returns the simulated value divided by the paper's. If the paper has a range, returns 1 within it, and otherwise
    /// divides by the nearer end.
    pub fn ratio(&self) -> f64 {
        let nearest = self.simulated.clamp(self.paper, self.paper_most);
        // A value printed as 0 has no ratio, but can be met.
        if self.simulated == nearest { 1.0 } else { self.simulated / nearest }
    }

    /// Returns whether the simulated value agrees with the paper's. It may differ by 25% from a single value, but must
    /// be within a printed range or bound.
    pub fn is_met(&self) -> bool {
        let within = if self.paper == self.paper_most { MET_WITHIN } else { 0.0 };
        (self.ratio() - 1.0).abs() <= within
    }

    /// Returns the factor by which the simulated value is too large or too small; at least 1.
    pub(crate) fn distance(&self) -> f64 {
        self.ratio().max(1.0 / self.ratio())
    }

    fn paper_text(&self) -> String {
        range_text(self.paper, self.paper_most)
    }
}

/// Appends a remark to `text` as an item of a list. Breaks its lines at [`COLUMNS`].
fn push_wrapped(text: &mut String, remark: &str) {
    let mut columns = 1;
    text.push('-');
    for word in remark.split(' ') {
        let length = word.chars().count();
        if columns + 1 + length > COLUMNS {
            text.push_str("\n ");
            columns = 1;
        }
        text.push(' ');
        text.push_str(word);
        columns += 1 + length;
    }
    text.push('\n');
}

/// Maximum number of characters in a line of text.
const COLUMNS: usize = 120;

/// Formats a published value, range or bound.
pub(crate) fn range_text(least: f64, most: f64) -> String {
    if least == 0.0 && most > 0.0 {
        format!("up to {}", number(most))
    } else if most == f64::INFINITY {
        format!("{} or more", number(least))
    } else if most > least {
        format!("{} to {}", number(least), number(most))
    } else {
        number(least)
    }
}

impl Table {
    /// Creates an empty table.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self { title: title.into(), columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row with these values.
    pub fn push(&mut self, name: impl Into<String>, values: Vec<f64>) {
        self.rows.push((name.into(), values));
    }
}

impl Report {
    /// Creates an empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Returns the report as text. Its tables are in Markdown, which can also be read in a terminal.
    pub fn to_text(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        if !self.comparisons.is_empty() {
            let cells = |comparison: &Comparison| {
                vec![
                    comparison.what.clone(),
                    comparison.unit.to_owned(),
                    comparison.kind.name().to_owned(),
                    comparison.basis.name().to_owned(),
                    comparison.paper_text(),
                    number(comparison.simulated),
                    format!("{:.2}", comparison.ratio()),
                ]
            };
            let header = ["", "unit", "value is", "line is", "paper", "simulated", "ratio"].map(str::to_owned).to_vec();
            text += &grid(&header, &self.comparisons.iter().map(cells).collect::<Vec<_>>());
            text.push('\n');
        }
        for table in &self.tables {
            if !table.title.is_empty() {
                let _ = writeln!(text, "{}\n", table.title);
            }
            let cells = |(name, values): &(String, Vec<f64>)| {
                std::iter::once(name.clone()).chain(values.iter().map(|value| number(*value))).collect()
            };
            text += &grid(&table.columns, &table.rows.iter().map(cells).collect::<Vec<_>>());
            text.push('\n');
        }
        self.remarks.iter().for_each(|remark| {
            push_wrapped(&mut text, remark);
        });
        text
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> String {
        let comparison = |comparison: &Comparison| {
            let Comparison { what, unit, kind, basis, paper, paper_most, simulated } = comparison;
            let what = quoted(what);
            let unit = quoted(unit);
            let kind = quoted(kind.name());
            let basis = quoted(basis.name());
            let paper = json_number(*paper);
            let paper_most = json_number(*paper_most);
            let simulated = json_number(*simulated);
            let ratio = json_number(comparison.ratio());
            format!(
                "{{\"what\":{what},\"unit\":{unit},\"kind\":{kind},\"basis\":{basis},\"paper\":{paper},\"paper_most\":{paper_most},\
                 \"simulated\":{simulated},\"ratio\":{ratio}}}"
            )
        };
        let row = |columns: &[String], (name, values): &(String, Vec<f64>)| {
            let first = columns.first().map_or_else(|| quoted("name"), |column| quoted(column));
            let rest = columns.iter().skip(1).zip(values);
            // A column with the same name as an earlier one gets another name, which would otherwise hide the earlier
            // one's value.
            let named = rest.enumerate().map(|(at, (column, value))| {
                let before = columns[..=at].iter().filter(|other| *other == column).count();
                let column = if before == 0 { column.clone() } else { format!("{column} ({})", before + 1) };
                format!(",{}:{}", quoted(&column), json_number(*value))
            });
            let rest: String = named.collect();
            format!("{{{first}:{}{rest}}}", quoted(name))
        };
        let table = |table: &Table| {
            let rows = joined(table.rows.iter().map(|cells| row(&table.columns, cells)));
            format!("{{\"title\":{},\"rows\":[{rows}]}}", quoted(&table.title))
        };
        format!(
            "{{\"title\":{},\"comparisons\":[{}],\"tables\":[{}],\"remarks\":[{}]}}\n",
            quoted(&self.title),
            joined(self.comparisons.iter().map(comparison)),
            joined(self.tables.iter().map(table)),
            joined(self.remarks.iter().map(|remark| quoted(remark))),
        )
    }

    /// Returns the report as CSV: the comparisons and then the tables, separated by empty lines.
    pub fn to_csv(&self) -> String {
        let mut parts = Vec::new();
        if !self.comparisons.is_empty() {
            let mut part = "what,unit,kind,basis,paper,paper_most,simulated,ratio\n".to_owned();
            for comparison in &self.comparisons {
                let Comparison { what, unit, kind, basis, paper, paper_most, simulated } = comparison;
                let what = csv_text(what);
                let unit = csv_text(unit);
                let kind = kind.name();
                let ratio = comparison.ratio();
                let basis = basis.name();
                let _ = writeln!(part, "{what},{unit},{kind},{basis},{paper},{paper_most},{simulated},{ratio}");
            }
            parts.push(part);
        }
        for table in &self.tables {
            let names: Vec<_> = table.columns.iter().map(|name| csv_text(name)).collect();
            let mut part = names.join(",") + "\n";
            for (name, values) in &table.rows {
                let values: String = values.iter().map(|value| format!(",{value}")).collect();
                let _ = writeln!(part, "{}{values}", csv_text(name));
            }
            parts.push(part);
        }
        parts.join("\n")
    }
}

/// Formats a value with as many digits as are significant.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "-".to_owned()
    } else if value.fract() == 0.0 && size < 1e15 || size >= 1000.0 {
        grouped(value)
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Formats a whole number with commas between groups of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a table as text. Names are aligned left, and numbers right.
fn grid(header: &[String], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).chain(header.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut text = String::from("|");
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let _ = if at == 0 { write!(text, " {cell:width$} |") } else { write!(text, " {cell:>width$} |") };
        }
        text + "\n"
    };
    let rule = |(at, width): (usize, &usize)| {
        if at == 0 { format!("{}|", "-".repeat(width + 2)) } else { format!("{}:|", "-".repeat(width + 1)) }
    };
    let rules: String = widths.iter().enumerate().map(rule).collect();
    line(header) + "|" + &rules + "\n" + &rows.iter().map(|row| line(row)).collect::<String>()
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn json_number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "null".to_owned() }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn csv_text(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("A \"table\"");
        report.comparisons.push(Comparison::new("simple, all", "gets/s", ValueKind::Derived, 14.0, 13.5));
        let mut table = Table::new("", &["row", "entries"]);
        table.push("log", vec![1_234_567.0]);
        report.tables.push(table);
        report.remarks.push("a remark".to_owned());
        report
    }

    #[test]
    fn a_report_is_text_json_and_csv() {
        let text = report().to_text();
        assert!(text.contains("| simple, all | gets/s |  derived | derived |    14 |     13.50 |  0.96 |"), "{text}");
        let long = Report { remarks: vec!["word ".repeat(50).trim_end().to_owned()], ..Report::new("long") };
        assert!(long.to_text().lines().all(|line| line.len() <= COLUMNS), "{}", long.to_text());
        assert_eq!(long.to_text().matches("word").count(), 50);
        assert!(text.contains("| log | 1,234,567 |") && text.contains("\n- a remark\n"), "{text}");
        assert_eq!(
            report().to_json(),
            "{\"title\":\"A \\\"table\\\"\",\"comparisons\":[{\"what\":\"simple, all\",\"unit\":\"gets/s\",\"kind\":\"derived\",\"basis\":\"derived\",\
             \"paper\":14,\"paper_most\":14,\"simulated\":13.5,\"ratio\":0.9642857142857143}],\"tables\":[{\"title\":\"\",\"rows\":[{\"row\":\"log\",\
             \"entries\":1234567}]}],\"remarks\":[\"a remark\"]}\n"
        );
        assert_eq!(
            report().to_csv(),
            "what,unit,kind,basis,paper,paper_most,simulated,ratio\n\"simple, all\",gets/s,derived,derived,14,14,13.5,0.9642857142857143\n\nrow,entries\nlog,1234567\n"
        );
    }

    /// Guards against values outside of a range or bound that count as met. A value may differ by a quarter from a
    /// single number, but not from a range.
    #[test]
    fn value_outside_of_a_range_is_missed() {
        let line = |simulated| Comparison::new("", "times", ValueKind::Derived, 8.0, simulated);
        let ranged = |simulated| Comparison { paper_most: 19.0, ..line(simulated) };
        let lines = [ranged(9.0), ranged(38.0), ranged(7.9), line(7.9), line(3.2)];
        assert_eq!(lines.each_ref().map(Comparison::is_met), [true, false, false, true, false]);
        assert_eq!(lines.each_ref().map(Comparison::distance)[1], 2.0);
        let none = Comparison { paper: 0.0, paper_most: 0.0, ..line(0.0) };
        assert_eq!((none.ratio(), none.is_met()), (1.0, true));
    }

    #[test]
    fn ranges_and_bounds_are_printed_in_words() {
        assert_eq!(range_text(8.0, 19.0), "8 to 19");
        assert_eq!(range_text(0.0, 9.0), "up to 9");
        assert_eq!(range_text(20.0, f64::INFINITY), "20 or more");
        assert_eq!(range_text(0.0, 0.0), "0");
    }

    /// Guards against a column that replaces another one with the same name.
    #[test]
    fn json_keeps_both_of_two_columns_of_one_name() {
        let mut report = Report::new("");
        let mut table = Table::new("", &["row", "gain", "gain"]);
        table.push("log", vec![1.0, 2.0]);
        report.tables.push(table);
        let json = report.to_json();
        assert!(json.contains("\"gain\":1,\"gain (2)\":2"), "{json}");
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.01234, 1.0, 12.345, 123.45, 1234.5, -1_234_567.0, f64::NAN].map(number);
        assert_eq!(shown, ["0.012", "1", "12.35", "123.5", "1,234", "-1,234,567", "-"]);
    }
}
