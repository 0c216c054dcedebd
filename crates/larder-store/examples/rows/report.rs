//! The table of policies as Markdown, and its place in a document.

use crate::measure::Measured;
use std::{error::Error, fmt::Write, fs, path::Path};

const BEGIN: &str = "<!-- begin: cargo run --release -p larder-store --example rows -->";
const END: &str = "<!-- end -->";

/// Formats the table.
pub(crate) fn table(rows: &[Measured]) -> String {
    let mut table = String::from(
        "| row | bits per entry, table | process growth | kept | reads per hit | reads per miss | writes per insert \
         | bytes written per byte | hit ratio |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            table,
            "| {} | {:.1} | {:.1} | {:.1}% | {:.3} | {:.3} | {:.3} | {:.2} | {:.1}% |",
            row.name,
            row.table_bits,
            row.growth_bits,
            row.kept_share * 100.0,
            row.reads_per_hit,
            row.reads_per_miss,
            row.writes_per_insert,
            row.bytes_per_byte,
            row.hit_ratio * 100.0,
        );
    }
    table
}

/// Puts `table` between the markers of `file`.
pub(crate) fn write(file: &Path, table: &str) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(file)?;
    let marked = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = marked else {
        return Err(format!("{} has no lines {BEGIN} and {END}", file.display()).into());
    };
    fs::write(file, format!("{before}{BEGIN}\n{table}{END}{after}"))?;
    Ok(())
}
