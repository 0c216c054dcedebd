//! How many assertions the store's engines have for each function that changes state.
//!
//! Owns: what counts as such a function, and how many there must be at least. Does not: parse Rust, or say what an assertion has to be
//! about. Cost of being simple: a function that changes state is one that takes something by `&mut`, so that the few that only pass it
//! on, or write what they return into a buffer, count as well.

use super::{Finding, code::words, source::Source};

/// Where the engines are.
const ENGINES: &str = "crates/larder-store/src/engine/";

/// Assertions in a hundred functions that change state, at least. The aim is a hundred: raise it with what was reached.
const PER_HUNDRED_MIN: usize = 66;

const MACROS: [&str; 6] = ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    functions: usize,
    assertions: usize,
}

/// Checks all engines together.
pub(crate) fn check(sources: &[Source]) -> Option<Finding> {
    let engines = sources.iter().filter(|source| source.path.starts_with(ENGINES) && !source.is_test_file());
    let Count { functions, assertions } = engines.map(count).fold(Count::default(), |sum, one| Count {
        functions: sum.functions + one.functions,
        assertions: sum.assertions + one.assertions,
    });
    (assertions * 100 < functions * PER_HUNDRED_MIN).then(|| {
        let problem = format!(
            "{assertions} assertions in {functions} functions that change state, at least {PER_HUNDRED_MIN} in a hundred: say \
             what is true of the state they leave"
        );
        Finding::new(ENGINES.trim_end_matches('/'), 1, problem)
    })
}

fn count(source: &Source) -> Count {
    let lines = &source.lines[..source.product_line_count];
    let code: String = lines.iter().flat_map(|line| [line.code.as_str(), "\n"]).collect();
    let mut count = Count::default();
    for (at, _) in code.match_indices("fn ").filter(|&(at, _)| !code[..at].ends_with(char::is_alphanumeric)) {
        let Some(Function { parameters, body }) = function(&code[at..]) else { continue };
        if parameters.contains("&mut ") {
            count.functions += 1;
            count.assertions += words(body).filter(|word| MACROS.contains(word)).count();
        }
    }
    count
}

/// A function with a body, as text.
struct Function<'a> {
    parameters: &'a str,
    body: &'a str,
}

/// Returns the function whose `fn` the code begins with.
fn function(code: &str) -> Option<Function<'_>> {
    let mut depth = 0_i32;
    let start = code.find(|c| {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        depth == 0 && "{;".contains(c)
    })?;
    let (signature, rest) = code.split_at(start);
    let end = rest.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    })?;
    let parameters = signature.split("->").next().unwrap_or(signature);
    (end > 0).then(|| Function { parameters, body: &rest[..end] })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! a\nfn look(&self) {\n    assert!(true);\n}\nfn change(&mut self, by: [u8; 2]) -> u32 {\n    if by {\n        \
        assert_eq!(a, b);\n    }\n    debug_assert!(c); // assert!(d)\n}\nfn declared(&mut self);\nfn bare(state: &mut S) {\n}\n";

    #[test]
    fn assertions_count_in_the_functions_that_change_something() {
        let source = Source::new("crates/larder-store/src/engine/a.rs", CODE);
        assert_eq!(count(&source), Count { functions: 2, assertions: 2 });
        assert!(check(&[source]).is_none());
        let source = Source::new("crates/larder-store/src/engine/a.rs", "//! a\nfn bare(&mut self) {\n}\n");
        assert!(check(&[source]).unwrap().to_string().contains("0 assertions in 1 functions"));
    }
}
