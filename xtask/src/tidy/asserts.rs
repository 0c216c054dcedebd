//! Counts the assertions in the store's engines per function that changes state.
//!
//! Owns: the definition of such a function, and the minimum. Rust is not parsed, and the content of an assertion is not
//! checked. Simplification: a function counts as changing state if it takes an argument by `&mut` and has more than one
//! statement. That includes the few functions that only write their result into a buffer. A callback taken by `&mut`
//! does not count, because the function itself changes nothing. The code that `store check` uses for reading does not
//! count either.

use super::{Finding, code::words, source::Source};

/// The folder of the engines.
const ENGINES: &str = "crates/larder-store/src/engine/";

/// The files that read a volume for `store check`. The `&mut` structures in them are cursors.
const READERS: &str = "/walk.rs";

/// Fewest assertions per hundred functions that change state.
const PER_HUNDRED_MIN: usize = 100;

const MACROS: [&str; 6] = ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// The counts of functions and assertions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    functions: usize,
    assertions: usize,
}

/// Checks all engines together.
pub(crate) fn check(sources: &[Source]) -> Option<Finding> {
    let is_engine = |source: &&Source| source.path.starts_with(ENGINES) && !source.path.ends_with(READERS);
    let engines = sources.iter().filter(is_engine).filter(|source| !source.is_test_file());
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
        let passes_on = body.matches(';').count() <= 1 && !body[1..].contains('{');
        if changes(parameters) && !passes_on {
            count.functions += 1;
            count.assertions += words(body).filter(|word| MACROS.contains(word)).count();
        }
    }
    count
}

/// Returns whether an argument other than a callback is taken by `&mut`.
fn changes(parameters: &str) -> bool {
    let callbacks = ["Fn(", "FnMut(", "FnOnce("];
    parameters.match_indices("&mut ").any(|(at, found)| {
        let before = &parameters[..at];
        let after = &parameters[at + found.len()..];
        !after.starts_with("dyn Fn") && !callbacks.iter().any(|callback| before.ends_with(callback))
    })
}

/// The text of a function with a body.
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
        assert_eq!(a, b);\n    }\n    debug_assert!(c); // assert!(d)\n}\nfn declared(&mut self);\nfn bare(state: &mut S) {\n    a();\n    b();\n}\n\
        fn pass_on(&mut self) {\n    self.a();\n}\nfn call(each: &mut dyn FnMut(u8)) {\n    a();\n    b();\n}\n";

    #[test]
    fn assertions_count_in_the_functions_that_change_something() {
        let source = Source::new("crates/larder-store/src/engine/a.rs", CODE);
        assert_eq!(count(&source), Count { functions: 2, assertions: 2 });
        assert!(check(&[source]).is_none());
        let source =
            Source::new("crates/larder-store/src/engine/a.rs", "//! a\nfn bare(&mut self) {\n    a();\n    b();\n}\n");
        assert!(check(&[source]).unwrap().to_string().contains("0 assertions in 1 functions"));
    }
}
