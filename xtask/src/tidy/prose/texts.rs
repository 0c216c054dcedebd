//! Finds the prose of the tree: comments for rustdoc, the paragraphs of documents, and the messages in string literals.
//!
//! A text is a block that is read as a unit. It is split into sentences here; `rules` has the rules about them. Code
//! blocks, short table cells and tests do not count as prose.

use crate::tidy::source::{Source, Text};

/// The place of a text, which decides the rules that apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A `///` comment, on a function or on something else.
    ItemDoc { is_function: bool },
    /// A `//!` header.
    ModuleDoc,
    /// A paragraph, list item or table cell of a Markdown document.
    Document,
    /// A string literal of several words: help, an error, a metric's help, a log line.
    Message,
}

/// A block of prose.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prose {
    pub(crate) place: Place,
    /// The first line, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Prose {
    /// Returns the first paragraph as one line.
    pub(crate) fn first_paragraph(&self) -> String {
        self.text.split("\n\n").next().unwrap_or_default().replace('\n', " ")
    }

    /// Splits the text into sentences. A full stop, question mark or exclamation mark ends one if another sentence can
    /// begin after it.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![String::new()];
        for word in self.text.split_whitespace() {
            let ended = sentences.last().is_some_and(|sentence| sentence.ends_with(['.', '!', '?']));
            if ended && word.starts_with(|first: char| first.is_ascii_uppercase() || "`*([#".contains(first)) {
                sentences.push(String::new());
            }
            let sentence = sentences.last_mut().expect("the list begins with one sentence and only grows");
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(word);
        }
        sentences
    }
}

/// Returns the prose in the product part of a source.
pub(crate) fn of_source(source: &Source) -> Vec<Prose> {
    let lines = &source.lines[..source.product_line_count];
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(mark) = doc_mark(&lines[at].comment) else {
            found.extend(message(source, at));
            at += 1;
            continue;
        };
        let first = at;
        let mut text = Vec::new();
        let mut fenced = false;
        while at < lines.len() && doc_mark(&lines[at].comment) == Some(mark) {
            let body = lines[at].comment.trim()[mark.len()..].trim();
            if body.starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                text.push(body);
            }
            at += 1;
        }
        let place = match mark {
            "//!" => Place::ModuleDoc,
            _ => Place::ItemDoc { is_function: is_function(&lines[at..]) },
        };
        found.push(Prose { place, line: first + 1, text: without_targets(&text.join("\n")) });
    }
    found
}

/// Returns the prose of an HTML or JavaScript file: the text between tags, or the literals and comments of each line.
pub(crate) fn of_page(page: &Text) -> Vec<Prose> {
    let is_html = page.path.ends_with(".html");
    let mut found = Vec::new();
    for (position, line) in page.text.lines().enumerate() {
        let texts: Vec<&str> = match line.trim_start().strip_prefix("//") {
            _ if is_html => line.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect(),
            Some(comment) => vec![comment],
            None => line.split(['"', '`']).skip(1).step_by(2).collect(),
        };
        let long = texts.into_iter().filter(|text| text.split_whitespace().count() >= WORDS_MIN);
        found.extend(long.map(|text| Prose {
            place: Place::Message,
            line: position + 1,
            text: text.trim().to_owned(),
        }));
    }
    found
}

/// Returns the prose of a Markdown document.
pub(crate) fn of_document(document: &Text) -> Vec<Prose> {
    let mut found = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut first = 0;
    let mut fenced = false;
    let end = |paragraph: &mut Vec<&str>, first: usize, found: &mut Vec<Prose>| {
        let text = without_targets(&std::mem::take(paragraph).join("\n"));
        if !text.is_empty() {
            found.push(Prose { place: Place::Document, line: first, text });
        }
    };
    for (position, line) in document.text.lines().enumerate() {
        let text = line.trim();
        let item = list_item(text);
        let is_fence = text.starts_with("```");
        if is_fence {
            fenced = !fenced;
        }
        if fenced || is_fence || text.is_empty() || text.starts_with(['#', '|', '<']) || item.is_some() {
            end(&mut paragraph, first, &mut found);
            if let (Some(item), false) = (item, fenced) {
                paragraph.push(item);
                first = position + 1;
            }
            if text.starts_with('|') && !fenced {
                for cell in
                    text.trim_matches('|').split('|').filter(|cell| cell.split_whitespace().count() >= WORDS_MIN)
                {
                    end(&mut vec![cell.trim()], position + 1, &mut found);
                }
            }
            continue;
        }
        if paragraph.is_empty() {
            first = position + 1;
        }
        paragraph.push(text);
    }
    end(&mut paragraph, first, &mut found);
    found
}

/// Minimum number of words in a text that is checked. Shorter table cells and literals are names, not prose.
const WORDS_MIN: usize = 5;

/// Returns the marker of a rustdoc line, `///` or `//!`, or `None` for any other comment.
fn doc_mark(comment: &str) -> Option<&'static str> {
    let comment = comment.trim();
    ["//!", "///"].into_iter().find(|mark| comment.starts_with(mark) && !comment.starts_with("////"))
}

/// Returns whether the item that follows is a function.
fn is_function(lines: &[crate::scan::Line]) -> bool {
    let mut codes = lines.iter().map(|line| line.code.trim());
    let item = codes.find(|code| !code.is_empty() && !code.starts_with(['#', ')']));
    item.is_some_and(|code| {
        let mut words = code.split_whitespace().skip_while(|word| {
            word.starts_with("pub") || word.ends_with(')') || ["async", "const", "unsafe", "extern"].contains(word)
        });
        words.next() == Some("fn")
    })
}

/// Returns the string literal that begins on this line, if it is long enough for a message.
fn message(source: &Source, at: usize) -> Option<Prose> {
    let line = &source.lines[at];
    let continues = |line: &crate::scan::Line| line.string.ends_with('\\');
    if line.string.is_empty() || at > 0 && continues(&source.lines[at - 1]) {
        return None;
    }
    let mut text = String::new();
    for line in &source.lines[at..source.product_line_count] {
        text.push_str(line.string.trim().trim_end_matches('\\'));
        text.push(' ');
        if !continues(line) {
            break;
        }
    }
    let text = text.trim().to_owned();
    let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
    (words >= WORDS_MIN).then_some(Prose { place: Place::Message, line: at + 1, text })
}

/// Returns the text of a list item without its bullet or number.
fn list_item(text: &str) -> Option<&str> {
    let (mark, rest) = text.split_once(' ')?;
    let is_number =
        mark.strip_suffix('.').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()));
    (mark == "-" || mark == "*" || is_number).then(|| rest.trim_start())
}

/// Removes the targets of links, because their words are not prose.
fn without_targets(text: &str) -> String {
    let mut parts = text.trim().split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push(']');
        kept.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_of_functions_and_of_types_is_told_apart() {
        let text = "//! Module.\n\n/// Adds.\n/// More.\n#[must_use]\npub(crate) const fn add() {}\n/// A type.\nstruct Type;\n";
        let found = of_source(&Source::new("crates/a/src/b.rs", text));
        let expected = [
            (Place::ModuleDoc, 1, "Module."),
            (Place::ItemDoc { is_function: true }, 3, "Adds.\nMore."),
            (Place::ItemDoc { is_function: false }, 7, "A type."),
        ];
        assert_eq!(
            found.iter().map(|prose| (prose.place, prose.line, prose.text.as_str())).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn messages_are_literals_of_several_words_over_all_their_lines() {
        let text = "//! a\nfn b() {\n    c(\"one two \\\n        three four five\", \"six\");\n}\n";
        let found = of_source(&Source::new("crates/a/src/b.rs", text));
        assert_eq!(found[1], Prose { place: Place::Message, line: 3, text: "one two  three four fivesix".to_owned() });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn paragraphs_items_and_long_cells_are_prose_and_code_is_not() {
        let text = "# Title\n\nOne\ntwo.\n- three\n1. four\n```\ncode\n```\n| short | a cell of five words |\n[link](to/what.md)";
        let found = of_document(&Text { path: "docs/a.md".to_owned(), text: text.to_owned() });
        let texts: Vec<_> = found.iter().map(|prose| (prose.line, prose.text.as_str())).collect();
        assert_eq!(texts, [(3, "One\ntwo."), (5, "three"), (6, "four"), (10, "a cell of five words"), (11, "[link]")]);
    }

    #[test]
    fn sentences_end_where_another_can_begin() {
        let prose =
            Prose { place: Place::Document, line: 1, text: "One, e.g. two. Three `x`.\n`Four`? five".to_owned() };
        assert_eq!(prose.sentences(), ["One, e.g. two.", "Three `x`.", "`Four`? five"]);
    }
}
