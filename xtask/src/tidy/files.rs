//! Rules about a source file as a whole: its name, its header, its length.

use super::{Finding, source::Source};

/// Maximum number of lines in a file before its tests.
const PRODUCT_LINES_MAX: usize = 500;

/// File names that do not describe the content.
const EMPTY_NAMES: [&str; 8] = ["common", "helper", "helpers", "misc", "types", "util", "utils", "v2"];

/// Returns what is wrong with a source's name, header and length.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut problems = Vec::new();
    if source.stem() == "mod" {
        problems.push("mod.rs is not used here: name it after its folder, `foo.rs` next to `foo/`".to_owned());
    }
    if EMPTY_NAMES.contains(&source.stem()) {
        problems.push(format!("`{}` says nothing: name the file after what it is", source.stem()));
    }
    // The examples in comments include parts of example programs, where no `//!` may stand.
    let is_header = |comment: &str| {
        comment.starts_with("//!") || (comment.starts_with("// ") && source.path.contains("/examples/"))
    };
    if !source.lines.first().is_some_and(|line| is_header(&line.comment)) {
        problems.push("no header: begin with `//!` and say what this file is".to_owned());
    }
    if !source.is_test_file() && source.product_line_count > PRODUCT_LINES_MAX {
        let count = source.product_line_count;
        problems.push(format!("{count} lines before the tests, at most {PRODUCT_LINES_MAX}: split it by what changes"));
    }
    problems.into_iter().map(|problem| Finding::new(&source.path, 1, problem)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_header_a_telling_name_and_a_bounded_length_pass() {
        assert_eq!(check_one("crates/a/src/b.rs", "//! b\nfn b() {}\n"), Vec::<String>::new());
    }

    #[test]
    fn a_missing_header_is_found() {
        assert!(check_one("crates/a/src/b.rs", "fn b() {}\n")[0].starts_with("crates/a/src/b.rs:1: no header"));
        assert_eq!(check_one("crates/a/src/b.rs", "").len(), 1);
        assert_eq!(check_one("crates/a/src/b.rs", "// b\nfn b() {}\n").len(), 1);
        assert!(check_one("crates/a/examples/b/part.rs", "// b\nfn b() {}\n").is_empty());
    }

    #[test]
    fn empty_names_are_found() {
        assert!(check_one("crates/a/src/utils.rs", "//! u")[0].contains("`utils` says nothing"));
        assert!(check_one("crates/a/src/b/mod.rs", "//! b")[0].contains("mod.rs is not used"));
    }

    #[test]
    fn only_product_lines_count() {
        let long = format!("//! b\n{}", "fn b() {}\n".repeat(PRODUCT_LINES_MAX));
        assert!(check_one("crates/a/src/b.rs", &long)[0].contains("501 lines"));
        assert_eq!(check_one("crates/a/tests/b.rs", &long), Vec::<String>::new());
        let tests = format!("//! b\n#[cfg(test)]\nmod tests {{\n{}}}", "fn b() {}\n".repeat(PRODUCT_LINES_MAX));
        assert_eq!(check_one("crates/a/src/b.rs", &tests), Vec::<String>::new());
    }
}
