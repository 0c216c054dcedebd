//! Limits the rings of modules that import one another, crate by crate. The larger a ring is, the less of the crate can
//! be read, tested or changed in isolation.
//!
//! Owns: the largest size of a ring. Rust is not parsed. Simplification: paths from `crate` and `super` in product code
//! are followed as text. A file that contains only `mod` lines counts as a module, too.

use super::{Finding, source::Source};
use std::collections::{BTreeMap, BTreeSet};

/// Most modules in one ring.
const RING_MAX: usize = 6;

/// The modules of a crate by path, each with the modules that it names.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks all crates.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test_file()) {
        if let Some((name, _)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) {
            crates.entry(name).or_default().push(source);
        }
    }
    crates.iter().filter_map(|(name, sources)| check_crate(name, sources)).collect()
}

fn check_crate(name: &str, sources: &[&Source]) -> Option<Finding> {
    let imports = imports(sources);
    let ring = rings(&imports).into_iter().max_by_key(Vec::len).unwrap_or_default();
    (ring.len() > RING_MAX).then(|| {
        let problem = format!("{} modules import one another, at most {RING_MAX} may: {}", ring.len(), ring.join(", "));
        Finding::new(&format!("crates/{name}/src/lib.rs"), 1, problem)
    })
}

fn imports(sources: &[&Source]) -> Imports {
    let modules: Vec<(String, &Source)> =
        sources.iter().filter_map(|source| Some((module_of(&source.path)?, *source))).collect();
    let known: BTreeSet<&str> = modules.iter().map(|(module, _)| module.as_str()).collect();
    let named = |(module, source): &(String, &Source)| {
        let lines = &source.lines[..source.product_line_count];
        let code: String = lines.iter().flat_map(|line| [line.code.as_str(), "\n"]).collect();
        let paths = paths(&code, module).into_iter();
        let named = paths.filter_map(|path| longest_known(&path, &known)).filter(|named| named != module);
        (module.clone(), named.collect())
    };
    modules.iter().map(named).collect()
}

/// Returns the module of a file: `a::b` for `crates/x/src/a/b.rs`, and `None` for a crate's root.
pub(super) fn module_of(path: &str) -> Option<String> {
    let (_, rest) = path.split_once("/src/")?;
    let module = rest.strip_suffix(".rs")?.replace('/', "::");
    (module != "lib" && module != "main").then_some(module)
}

fn longest_known(path: &[String], known: &BTreeSet<&str>) -> Option<String> {
    let joined = (1..=path.len()).rev().map(|count| path[..count].join("::"));
    joined.into_iter().find(|module| known.contains(module.as_str()))
}

/// Returns the paths that `code` in `module` names, as seen from the crate's root.
pub(super) fn paths(code: &str, module: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (word, at) in
        [("crate::", 0), ("super::", 1)].iter().flat_map(|(word, up)| starts(code, word).map(move |at| (*up, at)))
    {
        let base: Vec<String> = match word {
            0 => Vec::new(),
            _ => module.split("::").map(str::to_owned).collect(),
        };
        let base = base[..base.len().saturating_sub(word)].to_vec();
        Walk { rest: &code[at + "crate::".len()..], found: &mut found }.path(&base);
    }
    found
}

/// Returns the positions of `word` in `code`, except at the end of a longer name.
fn starts<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(|at| {
        let before = code[..*at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '_' | '$' | ':'))
    })
}

/// Reads one path with its groups.
struct Walk<'a, 'b> {
    rest: &'a str,
    found: &'b mut Vec<Vec<String>>,
}

impl Walk<'_, '_> {
    /// Reads what follows `prefix::`.
    fn path(&mut self, prefix: &[String]) {
        self.rest = self.rest.trim_start();
        if let Some(group) = self.rest.strip_prefix('{') {
            self.rest = group;
            while !self.rest.trim_start().is_empty() && !self.rest.trim_start().starts_with('}') {
                self.path(prefix);
                let next = self.rest.find([',', '}']).unwrap_or(self.rest.len());
                self.rest = self.rest[next..].trim_start_matches(',');
            }
            self.rest = self.rest.trim_start().get(1..).unwrap_or_default();
            return;
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let mut path = prefix.to_vec();
        match &self.rest[..end] {
            "super" => _ = path.pop(),
            name => path.push(name.to_owned()),
        }
        self.rest = &self.rest[end..];
        match self.rest.strip_prefix("::") {
            Some(rest) if !rest.starts_with('<') => {
                self.rest = rest;
                self.path(&path);
            }
            _ => self.found.push(path),
        }
    }
}

/// Returns the sets of modules in which each module leads to all others of its set.
fn rings(imports: &Imports) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (&**module, reach(imports, module))).collect();
    let mut rings: Vec<Vec<&str>> = Vec::new();
    for (module, others) in &reached {
        if others.contains(module) && !rings.iter().any(|ring| ring.contains(module)) {
            rings.push(others.iter().copied().filter(|other| reached[other].contains(module)).collect());
        }
    }
    rings
}

fn reach<'a>(imports: &'a Imports, module: &str) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
    while let Some(module) = open.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(&**next) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::new(&format!("crates/x/src/{name}.rs"), text)).collect();
        let imports = imports(&sources.iter().collect::<Vec<_>>());
        rings(&imports).into_iter().max_by_key(Vec::len).unwrap_or_default().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn modules_that_lead_to_one_another_are_a_ring() {
        let b = "use crate::{\n    d::X,\n    a::{self, c::{Y, Z}},\n};";
        assert_eq!(
            ring(&[("a/c", "fn f(e: crate::e::E) {}"), ("b", b), ("d", ""), ("e", "use super::b;")]),
            ["a::c", "b", "e"]
        );
        assert_eq!(ring(&[("a", "use crate::b::B;"), ("b", "use crate::c;"), ("c", "")]), [""; 0]);
        assert_eq!(
            ring(&[("a/b/c", "use super::super::d;"), ("a/d", "use super::{super::a, b::c};")]),
            ["a::b::c", "a::d"]
        );
        assert_eq!(ring(&[("a/b", "use super::c::C;"), ("a/c", "use super::{b, d};"), ("a/d", "")]), ["a::b", "a::c"]);
    }

    #[test]
    fn tests_and_comments_make_no_ring() {
        let tested = "use crate::b::B;\n#[cfg(test)]\nmod tests {\nuse crate::c;\n}";
        let told = "// use crate::a::A;\nconst A: &str = \"crate::a\"; fn f() { subcrate::a() }";
        assert_eq!(ring(&[("a", tested), ("b", told), ("c", "use crate::a;")]), [""; 0]);
    }

    #[test]
    fn ring_is_told_when_it_is_too_large() {
        let sources = |count: usize| -> Vec<Source> {
            let text = |at: usize| format!("use crate::m{}::X;", (at + 1) % count);
            (0..count).map(|at| Source::new(&format!("crates/larder-store/src/m{at}.rs"), &text(at))).collect()
        };
        let told = |count| check(&sources(count)).first().map(ToString::to_string);
        assert!(told(RING_MAX + 1).is_some_and(|problem| problem.contains("import one another")));
        assert_eq!(told(RING_MAX), None);
    }
}
