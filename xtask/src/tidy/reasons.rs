//! Requires comments that give reasons in the hardest functions: which alternative fails, which invariant holds, which
//! crash is meant.
//!
//! Owns: the list of these functions, and the smallest number of comments. The content of a comment is not checked. A
//! comment is one or more successive lines that begin with `//`.

use super::{Finding, source::Source};

/// The functions that need the most reasons, each by the end of its file's path and its name.
const HARDEST: [(&str, &str); 31] = [
    ("larder-proxy/src/cache/purges.rs", "save"),
    ("larder-proxy/src/cache/storing.rs", "commit_somewhere"),
    ("larder-proxy/src/cache/storing.rs", "write"),
    ("larder-proxy/src/flight/carrier.rs", "poll_step"),
    ("larder-proxy/src/flight/carry.rs", "carry"),
    ("larder-proxy/src/flight/chunk_reader.rs", "go_on_without"),
    ("larder-proxy/src/flight/chunk_reader.rs", "poll_data"),
    ("larder-proxy/src/flight/fetch.rs", "accept"),
    ("larder-proxy/src/flight/fetch.rs", "confirm"),
    ("larder-proxy/src/flight/opening.rs", "open"),
    ("larder-proxy/src/flight/part.rs", "accept_part"),
    ("larder-proxy/src/flight/reader.rs", "poll_data"),
    ("larder-proxy/src/flight/rest.rs", "board"),
    ("larder-proxy/src/flight/rest.rs", "carry"),
    ("larder-proxy/src/request/route.rs", "decide_with"),
    ("larder-proxy/src/request/serve.rs", "fresh"),
    ("larder-proxy/src/request/serve.rs", "from_cache"),
    ("larder-proxy/src/request/share.rs", "board"),
    ("larder-proxy/src/request/share.rs", "fly"),
    ("larder-store/src/engine/clusters/read.rs", "look"),
    ("larder-store/src/engine/kit/map_checkpoint.rs", "step"),
    ("larder-store/src/engine/kit/map_checkpoint.rs", "write_down"),
    ("larder-store/src/engine/log/append.rs", "index_appended"),
    ("larder-store/src/engine/log/append.rs", "try_append"),
    ("larder-store/src/engine/log/checkpoint.rs", "step"),
    ("larder-store/src/engine/log/read.rs", "entry_among"),
    ("larder-store/src/engine/log/reclaim.rs", "reclaim_oldest"),
    ("larder-store/src/engine/mapped/state.rs", "admit"),
    ("larder-store/src/engine/tiny/append.rs", "try_append"),
    ("larder-store/src/engine/tiny/moves.rs", "move_out_oldest"),
    ("larder-store/src/engine/tiny/moves.rs", "move_set"),
];

/// Fewest comments in these functions together. This number may only rise.
const COMMENT_COUNT_MIN: usize = 119;

/// Fewest comments per hundred lines of these functions.
const PER_HUNDRED_MIN: usize = 4;

/// The counts of one function or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    lines: usize,
    comments: usize,
}

/// Checks all listed functions together.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    check_listed(sources, &HARDEST, COMMENT_COUNT_MIN)
}

fn check_listed(sources: &[Source], listed: &[(&str, &str)], count_min: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sum = Count::default();
    for (path, name) in listed {
        let source = sources.iter().find(|source| source.path.ends_with(path));
        match source.and_then(|source| count(source, name)) {
            Some(one) => (sum.lines, sum.comments) = (sum.lines + one.lines, sum.comments + one.comments),
            None => {
                findings.push(Finding::new(path, 1, format!("no function `{name}`: correct the list in reasons.rs")))
            }
        }
    }
    let min = count_min.max((sum.lines * PER_HUNDRED_MIN).div_ceil(100));
    if findings.is_empty() && sum.comments < min {
        let problem = format!(
            "{} comments in the hardest functions ({} lines), at least {min}: say which alternative fails and why",
            sum.comments, sum.lines
        );
        findings.push(Finding::new(listed[0].0, 1, problem));
    }
    findings
}

/// Counts a function's lines and comments, or returns `None` if the file has no such function.
fn count(source: &Source, name: &str) -> Option<Count> {
    let lines = &source.lines[..source.product_line_count];
    let opening = format!("fn {name}");
    let is_opening =
        |code: &str| code.find(&opening).is_some_and(|at| code[at + opening.len()..].starts_with(['(', '<']));
    let start = lines.iter().position(|line| is_opening(&line.code))?;
    let indent = lines[start].code.len() - lines[start].code.trim_start().len();
    let is_end = |code: &str| code.trim_end().len() == indent + 1 && code.trim_start().starts_with('}');
    let end = start + lines[start..].iter().position(|line| is_end(&line.code))?;
    let is_comment = |position: usize| lines[position].code.trim().is_empty() && !lines[position].comment.is_empty();
    let begins = |position: &usize| is_comment(*position) && !is_comment(*position - 1);
    Some(Count { lines: end - start + 1, comments: (start + 1..end).filter(begins).count() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! a\nimpl A {\n    // before\n    fn hard(&self) {\n        // one\n        // comment\n        a();\n        \
        b(); // beside\n        // another\n    }\n    fn harder() {\n    }\n}\n";

    #[test]
    fn successive_comment_lines_of_a_function_count_once() {
        let source = Source::new("crates/a/src/b.rs", CODE);
        assert_eq!(count(&source, "hard"), Some(Count { lines: 7, comments: 2 }));
        assert_eq!(count(&source, "soft"), None);
    }

    #[test]
    fn a_missing_function_and_a_missing_comment_are_findings() {
        let sources = [Source::new("crates/a/src/b.rs", CODE)];
        assert!(check_listed(&sources, &[("src/b.rs", "hard")], 2).is_empty());
        let too_few = check_listed(&sources, &[("src/b.rs", "hard")], 3);
        assert!(too_few[0].to_string().contains("2 comments in the hardest functions (7 lines), at least 3"));
        let missing = check_listed(&sources, &[("src/b.rs", "soft")], 0);
        assert!(missing[0].to_string().contains("no function `soft`"));
    }
}
