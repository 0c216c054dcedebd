//! Refuses a `_` arm in a match over policies, so that a new policy does not compile until every match says what it
//! does.
//!
//! Owns: the types that a policy consists of. Rust is not parsed: a match counts if an arm names a variant of such a
//! type.

use super::{Finding, source::Source};

/// The crate in which matches over policies must name all variants. In other crates, the types are `#[non_exhaustive]`.
const STORE: &str = "crates/larder-store/src/";

/// The types of a policy's columns and settings, and of the engines that run it.
const TYPES: [&str; 14] = [
    "AnyEngine",
    "EngineRow",
    "EvictionAxis",
    "FileNaming",
    "IndexAxis",
    "LayoutAxis",
    "LocatedRow",
    "LogEviction",
    "LogRow",
    "MappedRow",
    "ReadAxis",
    "SlotSchedule",
    "TableRow",
    "WriteAxis",
];

/// Returns the matches over policies with a `_` arm in a source of the store.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with(STORE) || source.is_test_file() {
        return Vec::new();
    }
    let lines = &source.lines[..source.product_line_count];
    let code: String = lines.iter().flat_map(|line| [line.code.as_str(), "\n"]).collect();
    let matches = code
        .match_indices("match ")
        .filter(|&(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    let found =
        matches.filter(|&(at, _)| arms(&code[at..]).is_some_and(|arms| is_over_policies(&arms) && has_wildcard(&arms)));
    let finding = |(at, _)| {
        let line = 1 + code[..at].matches('\n').count();
        Finding::new(&source.path, line, "a `_` arm over policies: name the others, so that a new one does not compile")
    };
    found.map(finding).collect()
}

/// Returns the arms of a match without the contents of their blocks.
fn arms(code: &str) -> Option<String> {
    let mut depth = 0_i32;
    let mut arms = String::new();
    for c in code.chars() {
        depth -= i32::from(")]}".contains(c));
        match (depth, c) {
            (0, '}') => return Some(arms),
            (0, ';') => return None,
            (1, _) if !"([{".contains(c) => arms.push(c),
            _ => {}
        }
        depth += i32::from("([{".contains(c));
    }
    None
}

fn is_over_policies(arms: &str) -> bool {
    TYPES.iter().any(|name| arms.contains(&format!("{name}::")))
}

fn has_wildcard(arms: &str) -> bool {
    arms.lines().map(str::trim_start).any(|arm| arm.starts_with("_ =>") || arm.starts_with("_ if "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn wildcards_over_policies_are_found() {
        let over = |arm: &str| {
            format!(
                "//! a\nfn a() {{\n    match b {{\n        LogRow::C => {{ match d {{ _ => e }} }}\n        {arm}\n    }}\n}}\n"
            )
        };
        let path = "crates/larder-store/src/policy.rs";
        assert_eq!(lines(path, &over("_ => f,")), [3]);
        assert_eq!(lines(path, &over("_ if g => f,")), [3]);
        assert_eq!(lines(path, &over("LogRow::F | LogRow::G => f,")), [0; 0]);
        assert_eq!(lines(path, &over("_ => f,").replace("LogRow", "Kind")), [0; 0], "not over policies");
        assert_eq!(lines("crates/larder-sim/src/a.rs", &over("_ => f,")), [0; 0]);
    }
}
