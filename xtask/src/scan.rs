//! Splits the lines of a Rust source into code, comments and strings, so that a rule about code ignores words in
//! comments and strings.
//!
//! Owns: a scanner for comments, strings and character literals. Rust is not parsed. Invariant: the result has as many
//! lines as the source, and code keeps its columns.

/// A line of a source: its code, with comments and string contents blanked out, its comments, and its strings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) code: String,
    pub(crate) comment: String,
    /// The contents of string literals, as written in the source.
    pub(crate) string: String,
    /// Positions in `string` at which further literals begin.
    boundaries: Vec<usize>,
}

impl Line {
    /// Returns the contents of the string literals, one by one.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        let ends = self.boundaries.iter().copied().chain([self.string.len()]);
        ends.map(move |end| &self.string[std::mem::replace(&mut start, end)..end])
    }
}

/// Splits `source` into lines.
pub(crate) fn lines(source: &str) -> Vec<Line> {
    let mut scanner = Scanner { rest: source.chars().collect(), at: 0, done: vec![Line::default()] };
    while let Some(&next) = scanner.rest.get(scanner.at) {
        scanner.step(next);
    }
    scanner.done
}

struct Scanner {
    rest: Vec<char>,
    at: usize,
    done: Vec<Line>,
}

enum Kind {
    Code,
    Comment,
    String,
    Blank,
}

impl Scanner {
    fn step(&mut self, next: char) {
        match (next, self.peek(1)) {
            ('/', Some('/')) => self.take_line_comment(),
            ('/', Some('*')) => self.take_block_comment(),
            ('"', _) => self.take_string(),
            ('r', Some('"' | '#')) if self.starts_word() => self.take_raw_string(),
            ('\'', _) => self.take_character(),
            _ => self.take(Kind::Code),
        }
    }

    fn take_line_comment(&mut self) {
        while self.peek(0).is_some_and(|next| next != '\n') {
            self.take(Kind::Comment);
        }
    }

    fn take_block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.take(Kind::Comment);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.take(Kind::Comment);
                }
                (None, _) => return,
                _ => {}
            }
            self.take(Kind::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn take_string(&mut self) {
        self.begin_string();
        self.take(Kind::Code);
        let mut escaped = false;
        while let Some(next) = self.peek(0) {
            if next == '"' && !escaped {
                return self.take(Kind::Code);
            }
            escaped = next == '\\' && !escaped;
            self.take(Kind::String);
        }
    }

    fn take_raw_string(&mut self) {
        let hashes = self.rest[self.at + 1..].iter().take_while(|&&c| c == '#').count();
        if self.peek(1 + hashes) != Some('"') {
            return self.take(Kind::Code); // a raw identifier such as r#type
        }
        self.begin_string();
        (0..hashes + 2).for_each(|_| self.take(Kind::Code));
        while let Some(next) = self.peek(0) {
            if next == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                return (0..=hashes).for_each(|_| self.take(Kind::Code));
            }
            self.take(Kind::String);
        }
    }

    /// Separates the content of the next literal from that of an earlier literal on the same line.
    fn begin_string(&mut self) {
        let line = self.done.last_mut().expect("there is a line from the start");
        if !line.string.is_empty() {
            line.boundaries.push(line.string.len());
        }
    }

    /// Scans a character literal, or the quote of a lifetime or label.
    fn take_character(&mut self) {
        let literal = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.take(Kind::Code);
        if !literal {
            return;
        }
        let mut escaped = false;
        while let Some(next) = self.peek(0) {
            if next == '\'' && !escaped {
                return self.take(Kind::Code);
            }
            escaped = next == '\\' && !escaped;
            self.take(Kind::Blank);
        }
    }

    fn take(&mut self, kind: Kind) {
        let Some(&next) = self.rest.get(self.at) else { return };
        self.at += 1;
        if next == '\n' {
            return self.done.push(Line::default());
        }
        let line = self.done.last_mut().expect("there is a line from the start");
        line.code.push(if matches!(kind, Kind::Code) { next } else { ' ' });
        match kind {
            Kind::Comment => line.comment.push(next),
            Kind::String => line.string.push(next),
            Kind::Code | Kind::Blank => {}
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    /// Returns whether the `r` at the current position can begin a raw string: it is the first letter of a word, or
    /// follows a single `b` or `c`.
    fn starts_word(&self) -> bool {
        let before = self.rest[..self.at].iter().rev().take_while(|c| c.is_alphanumeric() || **c == '_');
        let word: Vec<char> = before.copied().collect();
        word.is_empty() || word == ['b'] || word == ['c']
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, code: &str, comment: &str) {
        let lines = lines(source);
        let found: Vec<&str> = lines.iter().map(|line| line.code.trim_end()).collect();
        assert_eq!(found.join("\n"), code, "code of {source}");
        let found: Vec<&str> = lines.iter().map(|line| line.comment.as_str()).collect();
        assert_eq!(found.join("\n").trim(), comment, "comments of {source}");
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        check("let a = 1; // unsafe", "let a = 1;", "// unsafe");
        check("let a = \"unsafe // x\";", "let a = \"           \";", "");
        check("a(\"\\\"unsafe\"); b", "a(\"        \"); b", "");
        check("a /* x /* y */ z */ b", "a                   b", "/* x /* y */ z */");
    }

    #[test]
    fn contents_of_strings_are_kept() {
        let lines = lines("a(\"b \\\"c\", 'd')\nr#\"e\"f\"# + \"g\"");
        assert_eq!(lines.iter().map(|line| line.string.as_str()).collect::<Vec<_>>(), ["b \\\"c", "e\"fg"]);
        assert_eq!(lines[1].literals().collect::<Vec<_>>(), ["e\"f", "g"]);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        check("a(r#\"x\" unsafe\"#); b", "a(r#\"         \"#); b", "");
        check("a(br\"unsafe\"); b", "a(br\"      \"); b", "");
        check("r#type + 1 // c", "r#type + 1", "// c");
    }

    #[test]
    fn quotes_are_lifetimes_or_characters() {
        check("fn a<'a>(b: &'a str) {}", "fn a<'a>(b: &'a str) {}", "");
        check("a('\"', b) // c", "a(' ', b)", "// c");
        check("a('\\'', b) // c", "a('  ', b)", "// c");
    }

    #[test]
    fn every_line_of_the_source_is_a_line_of_the_result() {
        assert_eq!(lines("a\n\"b\nc\"\n/* d\n*/").len(), 5);
    }

    #[test]
    fn unfinished_input_ends() {
        for source in ["\"a", "/* a", "r#\"a", "'\\", "'", "r", "/"] {
            assert_eq!(lines(source).len(), 1, "{source}");
        }
    }
}
