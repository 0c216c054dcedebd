//! The fenced blocks of a Markdown page.
//!
//! The first word after a fence is the block's language. Further words are for the tests: the name of the file that the
//! block shows, or for a console block `background` (its commands continue while the next ones run), `fails`,
//! `with-proxy` (a proxy with an admin listener runs already), `ignore-REASON`, or `varies=NUMBER` (the number may be
//! another one when the commands are run).

use super::compare::{ANY_NUMBER, number_length};

/// The mark of a number that may differ.
const VARIES: &str = "varies=";

/// One fenced block.
pub(crate) struct Fence {
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    pub(crate) language: String,
    pub(crate) words: Vec<String>,
    pub(crate) lines: Vec<String>,
}

impl Fence {
    /// Returns whether `word` follows the opening fence.
    pub(crate) fn is_marked(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// Returns the reason why the block is not run, if it is marked with one.
    pub(crate) fn reason_to_ignore(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("ignore-"))
    }

    /// Returns the name of the file that the block shows, if it is marked with one.
    pub(crate) fn file_name(&self) -> Option<&str> {
        let mut names = self.words.iter().map(String::as_str).filter(|word| !word.starts_with(VARIES));
        names.find(|word| word.contains(['.', '/']))
    }

    /// Returns a line of output with [`ANY_NUMBER`] in place of the numbers that may differ.
    pub(crate) fn without_varying_numbers(&self, line: &str) -> String {
        let varying: Vec<_> = self.words.iter().filter_map(|word| word.strip_prefix(VARIES)).collect();
        let mut result = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (number, after) = rest[at..].split_at(number_length(&rest[at..]));
            result += &rest[..at];
            match varying.contains(&number) {
                true => result.push(ANY_NUMBER),
                false => result += number,
            }
            rest = after;
        }
        result + rest
    }

    /// Returns the block's text.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Returns the fenced blocks of `text`, without the indentation that they have inside a list.
pub(crate) fn fences(text: &str) -> Vec<Fence> {
    let mut found = Vec::new();
    let mut open = None::<(Fence, usize)>;
    for (position, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        match &mut open {
            None => {
                let Some(info) = trimmed.strip_prefix("```") else { continue };
                let mut words = info.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                let fence = Fence { line: position + 1, language, words: words.collect(), lines: Vec::new() };
                open = Some((fence, line.len() - trimmed.len()));
            }
            Some(_) if trimmed.trim_end() == "```" => found.extend(open.take().map(|(fence, _)| fence)),
            Some((fence, indent)) => fence.lines.push(line.get(*indent..).unwrap_or_default().to_owned()),
        }
    }
    assert!(open.is_none(), "a block is not closed: {:?}", open.map(|(fence, _)| fence.line));
    found
}

#[test]
fn blocks_are_read_with_their_language_and_marks() {
    let text = "a\n```toml larder.toml\nx = 1\n```\n- b\n  ```console ignore-slow varies=0.5 background\n  $ c\n    d\n  ```\n";
    let found = fences(text);
    let [toml, console] = &found[..] else { panic!("two blocks") };
    assert_eq!((toml.line, toml.language.as_str(), toml.file_name()), (2, "toml", Some("larder.toml")));
    assert_eq!(toml.text(), "x = 1\n");
    assert_eq!((console.reason_to_ignore(), console.is_marked("background")), (Some("slow"), true));
    assert_eq!(console.lines, ["$ c", "  d"]);
    assert_eq!(console.file_name(), None);
    assert_eq!(console.without_varying_numbers("0.5, 5 and 10.5: 0.5."), "№, 5 and 10.5: №.");
}
