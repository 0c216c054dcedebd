//! Limits the functions of the proxy that take a whole `Worker` or `Client`. Such a function can read and change
//! anything, so its signature says little, and it cannot be tested without a proxy.
//!
//! Owns: the number that there may be, which may only fall. A receiver is no parameter: a method of an exchange has
//! what the exchange has. Rust is not parsed. Simplification: a type counts if it is alone, a reference or in an `Arc`.

use super::{Finding, source::Source};

/// Maximum number of functions of larder-proxy that may take a whole `Worker` or `Client`.
const COUNT_MAX: usize = 50;
/// The types that give access to everything in the proxy.
const WHOLES: [&str; 2] = ["Worker", "Client"];

/// Returns a finding if more than [`COUNT_MAX`] functions of the proxy take one of [`WHOLES`].
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let found: Vec<String> = sources.iter().flat_map(functions).collect();
    if found.len() <= COUNT_MAX {
        return Vec::new();
    }
    let problem = format!(
        "{} functions take a whole Worker or Client, at most {COUNT_MAX} may; pass the parts or make them methods of the \
         exchange: {}",
        found.len(),
        found.join(", ")
    );
    vec![Finding::new("crates/larder-proxy/src/lib.rs", 1, problem)]
}

/// Returns the functions in a source that take one of [`WHOLES`], by file and name.
fn functions(source: &Source) -> Vec<String> {
    if source.is_test_file() || !source.path.starts_with("crates/larder-proxy/src/") {
        return Vec::new();
    }
    let lines = &source.lines[..source.product_line_count];
    let code: String = lines.iter().flat_map(|line| [line.code.as_str(), "\n"]).collect();
    let mut found = Vec::new();
    for after in code.split("fn ").skip(1) {
        let name = after.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next().unwrap_or_default();
        if !name.is_empty() && parameters(after).is_some_and(has_whole) {
            found.push(format!("{}::{name}", source.stem()));
        }
    }
    found
}

/// Returns the parameters of a function whose declaration begins with `code`. Generic parameters are not included.
fn parameters(code: &str) -> Option<&str> {
    let mut start = None;
    let mut depth = 0_usize;
    for (at, letter) in code.char_indices() {
        match letter {
            '<' if start.is_none() => depth += 1,
            '>' if start.is_none() && !code[..at].ends_with('-') => depth = depth.saturating_sub(1),
            '(' if start.is_none() && depth == 0 => start = Some(at + 1),
            '(' if start.is_some() => depth += 1,
            ')' if start.is_some() && depth == 0 => return Some(&code[start?..at]),
            ')' if start.is_some() => depth -= 1,
            '{' | ';' if start.is_none() => return None,
            _ => {}
        }
    }
    None
}

/// Returns whether one of these parameters is one of [`WHOLES`], by value, by reference or in an `Arc`.
fn has_whole(parameters: &str) -> bool {
    WHOLES.iter().any(|whole| {
        parameters.match_indices(whole).any(|(at, _)| {
            let before = parameters[..at].trim_end_matches("Arc<").trim_end_matches("Weak<");
            let before = before.trim_end_matches("mut ").trim_end();
            let is_alone = before.ends_with([':', '&', ',', '(']) || before.rsplit(' ').next().is_some_and(is_lifetime);
            let after = &parameters[at + whole.len()..];
            is_alone && !after.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':')
        })
    })
}

fn is_lifetime(word: &str) -> bool {
    word.starts_with("&'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_take_a_whole_are_counted_and_others_are_not() {
        let text = "//! a\nfn a(worker: &Arc<Worker>) {}\nfn b(\n    x: u8,\n    client: &'a mut Client,\n) {}\n\
                    fn c<F: Fn(Worker) -> u8>(f: F, (client, _): (&Client, u8)) {}\nfn d(worker: Worker) {}\n\
                    fn e(&self, thread: &Arc<WorkerThread>, kind: ClientKind) -> Client {}\n// fn f(client: &Client)\n\
                    fn g(new: impl Fn() -> Client) {}\n#[cfg(test)]\nmod tests {\n    fn h(client: &Client) {}\n}\n";
        let of = |path: &str| functions(&Source::new(path, text));
        assert_eq!(of("crates/larder-proxy/src/a.rs"), ["a::a", "a::b", "a::c", "a::d"]);
        assert!(of("crates/larder/src/a.rs").is_empty());
    }

    #[test]
    fn more_of_them_than_there_may_be_are_found() {
        let source = |count: usize| {
            let functions: String = (0..count).map(|number| format!("fn a{number}(worker: &Worker) {{}}\n")).collect();
            Source::new("crates/larder-proxy/src/a.rs", &format!("//! a\n{functions}"))
        };
        assert!(check(&[source(COUNT_MAX)]).is_empty());
        assert_eq!(check(&[source(COUNT_MAX + 1)]).len(), 1);
    }
}
