//! Draws pictures of tables in a page of the documentation, from the numbers that the page prints.
//!
//! `cargo run -p larder-sim --example pictures -- docs/internals/tiny.md docs/figures`
//!
//! A picture is requested by a comment below its table, before the image:
//! `<!-- picture NAME: COLUMN; COLUMN; ... | LABEL OF THE AXIS -->`. Each row of the table is a group of bars, named by
//! its first cell, with a bar for each of the columns. A cell's number is the first one in it.

use larder_sim::{Figure, FigureContent};
use std::{error::Error, fs, path::Path};

/// The beginning and the end of a request.
const OPENING: &str = "<!-- picture ";
const CLOSING: &str = " -->";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [page, folder] = &arguments[..] else {
        println!("usage: pictures PAGE FOLDER");
        return Ok(());
    };
    let text = fs::read_to_string(page)?;
    for (at, _) in text.match_indices(OPENING) {
        let request = text[at + OPENING.len()..].split_once(CLOSING).ok_or("a request has no end")?.0;
        let figure = picture(request, &text[..at], &text[at..]).ok_or_else(|| format!("not a request: {request}"))?;
        println!("drew {}", figure.draw(Path::new(folder)).map_err(|error| error.to_string())?.display());
    }
    Ok(())
}

/// Returns the requested picture of the last table in `above`. Its title is that of the first image in `below`.
fn picture(request: &str, above: &str, below: &str) -> Option<Figure> {
    let (name, rest) = request.split_once(": ")?;
    let (columns, label) = rest.split_once(" | ")?;
    let table = last_table(above);
    let header = table.first()?;
    let columns: Vec<_> = columns.split("; ").collect();
    let places = columns.iter().map(|column| header.iter().position(|cell| cell == column));
    let places: Vec<_> = places.collect::<Option<_>>()?;
    let bar = |row: &Vec<&str>| {
        let value = |place: &usize| row.get(*place).and_then(|cell| number(cell)).unwrap_or(f64::NAN);
        (row[0].replace(['`', '*'], ""), places.iter().map(value).collect())
    };
    // The second line of a table separates its header.
    let bars = table.iter().skip(2).map(bar).collect();
    let title = below.split_once("![")?.1.split_once(']')?.0;
    Some(Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        y_label: label.to_owned(),
        content: FigureContent::Bars(columns.into_iter().map(str::to_owned).collect(), bars),
        ..Figure::default()
    })
}

/// Returns the cells of the last table in a text.
fn last_table(text: &str) -> Vec<Vec<&str>> {
    let is_row = |line: &&str| line.starts_with('|');
    let lines = text.lines().rev().skip_while(|line| !is_row(line)).take_while(is_row);
    let cells = |line: &'_ str| -> Vec<usize> { line.match_indices('|').map(|(at, _)| at).collect() };
    let mut rows: Vec<Vec<&str>> =
        lines.map(|line| cells(line).windows(2).map(|ends| line[ends[0] + 1..ends[1]].trim()).collect()).collect();
    rows.reverse();
    rows
}

/// Returns the first number in a cell such as `**1,162** MB`.
fn number(cell: &str) -> Option<f64> {
    let start = cell.find(|letter: char| letter.is_ascii_digit())?;
    let end = cell[start..].find(|letter: char| !letter.is_ascii_digit() && !".,".contains(letter));
    let digits = &cell[start..end.map_or(cell.len(), |end| start + end)];
    digits.replace(',', "").trim_end_matches('.').parse().ok()
}
