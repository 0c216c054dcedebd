//! What a simulation comes to, as people read it: values beside those that were printed, remarks, figures.
//!
//! Owns: [`Report`] and how it is shown as text, JSON and CSV. Does not: simulate or draw.

use crate::figure::Figure;
use std::fmt::Write as _;

/// A simulated table or figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it is.
    pub title: String,
    /// Values beside the paper's.
    pub comparisons: Vec<Comparison>,
    /// Other tables.
    pub tables: Vec<Table>,
    /// What the reader has to know: assumptions, misses and why.
    pub remarks: Vec<String>,
    /// To be drawn.
    pub figures: Vec<Figure>,
}

/// A simulated value beside a printed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What it is of.
    pub what: String,
    /// The unit of both.
    pub unit: &'static str,
    /// What the paper printed.
    pub paper: f64,
    /// What came of the simulation.
    pub simulated: f64,
}

/// Named columns of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it is of.
    pub title: String,
    /// Names of the columns; the first is that of the rows.
    pub columns: Vec<String>,
    /// A name and values, as many as columns but one.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Comparison {
    /// A comparison.
    pub fn new(what: impl Into<String>, unit: &'static str, paper: f64, simulated: f64) -> Self {
        Self { what: what.into(), unit, paper, simulated }
    }

    /// Simulated over printed.
    pub fn ratio(&self) -> f64 {
        self.simulated / self.paper
    }
}

impl Table {
    /// An empty table.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self { title: title.into(), columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, name: impl Into<String>, values: Vec<f64>) {
        self.rows.push((name.into(), values));
    }
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The report as text, in the form of Markdown tables, which terminals show as well.
    pub fn to_text(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        if !self.comparisons.is_empty() {
            let cells = |comparison: &Comparison| {
                let Comparison { what, unit, paper, simulated } = comparison;
                vec![
                    what.clone(),
                    (*unit).to_owned(),
                    number(*paper),
                    number(*simulated),
                    format!("{:.2}", comparison.ratio()),
                ]
            };
            let header = ["", "unit", "paper", "simulated", "ratio"].map(str::to_owned).to_vec();
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
            let _ = writeln!(text, "- {remark}");
        });
        text
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        let comparison = |comparison: &Comparison| {
            let Comparison { what, unit, paper, simulated } = comparison;
            let (what, unit, ratio) = (quoted(what), quoted(unit), json_number(comparison.ratio()));
            let (paper, simulated) = (json_number(*paper), json_number(*simulated));
            format!("{{\"what\":{what},\"unit\":{unit},\"paper\":{paper},\"simulated\":{simulated},\"ratio\":{ratio}}}")
        };
        let row = |columns: &[String], (name, values): &(String, Vec<f64>)| {
            let first = columns.first().map_or_else(|| quoted("name"), |column| quoted(column));
            let rest = columns.iter().skip(1).zip(values);
            let rest: String =
                rest.map(|(column, value)| format!(",{}:{}", quoted(column), json_number(*value))).collect();
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

    /// The report as CSV: its comparisons, then its tables, an empty line between them.
    pub fn to_csv(&self) -> String {
        let mut parts = Vec::new();
        if !self.comparisons.is_empty() {
            let mut part = "what,unit,paper,simulated,ratio\n".to_owned();
            for comparison in &self.comparisons {
                let Comparison { what, unit, paper, simulated } = comparison;
                let _ =
                    writeln!(part, "{},{},{paper},{simulated},{}", csv_text(what), csv_text(unit), comparison.ratio());
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

/// A value with as many digits as mean something.
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

/// A whole number with commas.
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

/// Cells under a header, names to the left and numbers to the right.
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
        report.comparisons.push(Comparison::new("simple, all", "gets/s", 14.0, 13.5));
        let mut table = Table::new("", &["row", "entries"]);
        table.push("log", vec![1_234_567.0]);
        report.tables.push(table);
        report.remarks.push("a remark".to_owned());
        report
    }

    #[test]
    fn a_report_is_text_json_and_csv() {
        let text = report().to_text();
        assert!(text.contains("| simple, all | gets/s |    14 |     13.50 |  0.96 |"), "{text}");
        assert!(text.contains("| log | 1,234,567 |") && text.contains("\n- a remark\n"), "{text}");
        assert_eq!(
            report().to_json(),
            "{\"title\":\"A \\\"table\\\"\",\"comparisons\":[{\"what\":\"simple, all\",\"unit\":\"gets/s\",\"paper\":14,\
             \"simulated\":13.5,\"ratio\":0.9642857142857143}],\"tables\":[{\"title\":\"\",\"rows\":[{\"row\":\"log\",\
             \"entries\":1234567}]}],\"remarks\":[\"a remark\"]}\n"
        );
        assert_eq!(
            report().to_csv(),
            "what,unit,paper,simulated,ratio\n\"simple, all\",gets/s,14,13.5,0.9642857142857143\n\nrow,entries\nlog,1234567\n"
        );
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.01234, 1.0, 12.345, 123.45, 1234.5, -1_234_567.0, f64::NAN].map(number);
        assert_eq!(shown, ["0.012", "1", "12.35", "123.5", "1,234", "-1,234,567", "-"]);
    }
}
