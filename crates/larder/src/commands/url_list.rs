//! Reads lists for commands, with a URL or a pattern on each line. `#` begins a comment.
//!
//! Owns: reading the lists, and the errors for invalid lines. Invariant: a list has a limited size.

use crate::ground::{failure::Failure, size};
use larder_http::{BadUrlPattern, UrlPattern};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// An argument that is either one item, or the name of a list of items.
pub(crate) enum ListSource<'a> {
    /// The argument is the item itself.
    Word(&'a str),
    /// The argument is the path of a file that lists items, or `-` for standard input.
    List(&'a str),
}

impl<'a> ListSource<'a> {
    /// Decides whether an argument is an item or a list. A URL is an item. A path, the name of an existing file, and
    /// `-` are lists.
    pub(crate) fn of(word: &'a str) -> Self {
        let is_url = word.starts_with("http://") || word.starts_with("https://");
        let is_path = word == "-" || word.starts_with('/') || word.starts_with("./") || word.starts_with("../");
        if !is_url && (is_path || Path::new(word).is_file()) { Self::List(word) } else { Self::Word(word) }
    }
}

/// Parses a pattern of URLs.
///
/// # Errors
/// A usage failure for an invalid pattern.
pub(crate) fn pattern(text: &str) -> Result<UrlPattern, Failure> {
    text.parse().map_err(|error: BadUrlPattern| {
        let help = "give a pattern such as http://deb.debian.org/* or https://example.com/map.png, or an existing \
                    file with patterns";
        Failure::usage(error.to_string(), help)
    })
}

/// Reads a list, and parses each line with `parse`.
///
/// # Errors
/// The list cannot be read, is too long, or has an invalid line. The failure says which line.
pub(crate) fn listed<T>(path: &str, parse: impl Fn(&str) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    let read = || {
        let mut text = String::new();
        let source: Box<dyn Read> =
            if path == "-" { Box::new(io::stdin().lock()) } else { Box::new(File::open(Path::new(path))?) };
        source.take(LIST_BYTES_MAX + 1).read_to_string(&mut text)?;
        Ok::<_, io::Error>(text)
    };
    let text = read().map_err(|error| {
        let help = "give URLs that begin with http:// or https://, or UTF-8 files with one URL per line";
        Failure::runtime(format!("cannot read the list {path}: {error}"), help)
    })?;
    if text.len() as u64 > LIST_BYTES_MAX {
        let problem = format!("the list is longer than {}: {path}", size::show(LIST_BYTES_MAX));
        return Err(Failure::usage(problem, "split it into several"));
    }
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let words = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    words
        .map(|(number, line)| {
            parse(line).map_err(|failure| {
                let (problem, help) = failure.told();
                Failure::usage(format!("{path}, line {number}: {problem}"), help)
            })
        })
        .collect()
}

/// Maximum size of a list, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
