//! Finds and reads the input of tidy: the Rust sources, the manifests, the Markdown documents and some lists of the
//! workspace.
//!
//! Invariant: paths are relative to the root, with `/`.

use super::{questions, test_bounds};
use crate::{
    conformance, figures,
    scan::{self, Line},
};
use std::{fs, io, path::Path};

/// Folders that tidy skips, because they contain no files of the project.
const SKIPPED: [&str; 4] = [".git", "target", "results", "node_modules"];

/// Further files that rules read, in addition to sources, manifests and documents.
const LISTS: [&str; 5] = [
    conformance::REQUIREMENTS,
    conformance::DIFFERENCES,
    figures::DATA,
    questions::QUESTIONS,
    test_bounds::CARGO_CONFIG,
];

/// A file as text.
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A Rust source, split into code and comments.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
    /// Number of lines before the unit tests at the end of the file, or of all lines if it has none.
    pub(crate) product_line_count: usize,
}

/// All files that tidy checks.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) sources: Vec<Source>,
    pub(crate) manifests: Vec<Text>,
    pub(crate) documents: Vec<Text>,
    /// The HTML and JavaScript that users see.
    pub(crate) pages: Vec<Text>,
    /// The lists from which docs/internals/conformance.md is generated, the measured figures, the readers' questions,
    /// and cargo's configuration.
    pub(crate) texts: Vec<Text>,
    /// The paths of all files, for checking links.
    pub(crate) paths: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let lines = scan::lines(text.trim_end_matches('\n'));
        let tests = lines.windows(2).position(|pair| {
            let module = pair[1].code.trim_start_matches("pub(crate) ");
            pair[0].code.trim_end() == "#[cfg(test)]" && module.starts_with("mod ") && module.contains('{')
        });
        Self { path: path.to_owned(), product_line_count: tests.unwrap_or(lines.len()), lines }
    }

    /// Returns whether the whole file is test code.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Returns whether the line at `position` (from 0) is test code.
    pub(crate) fn is_test_line(&self, position: usize) -> bool {
        self.is_test_file() || position >= self.product_line_count
    }

    /// Returns the file's name without folder and extension.
    pub(crate) fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.strip_suffix(".rs").unwrap_or(name)
    }
}

impl Tree {
    /// Reads the tree under `root`.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// Returns the text of a list.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.iter().find(|text| text.path == path).map(|text| text.text.as_str())
    }

    /// Returns the text of a document.
    pub(crate) fn document(&self, path: &str) -> Option<&str> {
        self.documents.iter().find(|document| document.path == path).map(|document| document.text.as_str())
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.paths.push(path.clone());
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
                continue;
            }
            self.paths.push(path.clone());
            self.add(&path, || fs::read_to_string(entry.path()))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, read: impl FnOnce() -> io::Result<String>) -> io::Result<()> {
        if path.ends_with(".rs") {
            self.sources.push(Source::new(path, &read()?));
        } else if path.ends_with("Cargo.toml") {
            self.manifests.push(Text { path: path.to_owned(), text: read()? });
        } else if path.ends_with(".md") {
            self.documents.push(Text { path: path.to_owned(), text: read()? });
        } else if path.contains("/src/") && [".html", ".js"].iter().any(|end| path.ends_with(end)) {
            self.pages.push(Text { path: path.to_owned(), text: read()? });
        } else if LISTS.contains(&path) {
            self.texts.push(Text { path: path.to_owned(), text: read()? });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_lines_end_where_the_unit_tests_begin() {
        let source = Source::new("crates/a/src/b.rs", "//! b\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(source.product_line_count, 3);
        assert!(!source.is_test_line(1) && source.is_test_line(4));
        let shared = Source::new("crates/a/src/b.rs", "//! b\n#[cfg(test)]\npub(crate) mod tests {\n}\n");
        assert_eq!(shared.product_line_count, 1);
        let source = Source::new("crates/a/src/b.rs", "//! b\n#[cfg(test)]\nmod tests;\nfn b() {}\n");
        assert_eq!(source.product_line_count, 4);
    }

    #[test]
    fn files_under_tests_are_test_code() {
        assert!(Source::new("crates/a/tests/it/main.rs", "").is_test_line(0));
        assert!(Source::new("crates/a/src/b/tests.rs", "").is_test_file());
        assert!(!Source::new("crates/a/src/latest.rs", "").is_test_file());
    }
}
