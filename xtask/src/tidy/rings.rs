//! Limits the rings of modules that import one another, crate by crate. The larger a ring is, the less of the crate can
//! be read, tested or changed in isolation.
//!
//! Owns: the largest size of a ring. Rust is not parsed. Simplification: paths that begin with `crate`, `super`, `self`
//! or a child module are followed as text, in product code. A name that a module re-exports counts as one of the module
//! that defines it, and the re-export itself as no import. A file with only `mod` lines counts as a module, too.

use super::{Finding, source::Source};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of modules that may import each other in a ring.
const RING_MAX: usize = 6;
/// Maximum number of re-exports that are followed, one to the next, to find where a name is defined.
const REEXPORTS_MAX: usize = 8;

/// The modules of a crate by path, each with the modules that it names.
pub(super) type Imports = BTreeMap<String, BTreeSet<String>>;

/// The names that modules re-export, each with its path in the crate. The crate's root is the module with the empty
/// name.
type Reexports = BTreeMap<(String, String), Vec<String>>;

/// Returns a finding for each crate with a ring of more than [`RING_MAX`] modules.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    largest(sources).iter().filter_map(|(name, ring)| check_crate(name, ring)).collect()
}

/// Returns the largest ring of each crate.
pub(crate) fn largest(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let largest_of = |sources: &[&Source]| {
        let imports = imports(sources);
        let ring = rings(&imports).into_iter().max_by_key(Vec::len).unwrap_or_default();
        ring.into_iter().map(str::to_owned).collect()
    };
    by_crate(sources).into_iter().map(|(name, sources)| (name.to_owned(), largest_of(&sources))).collect()
}

/// Returns the modules of a crate, each with those that it names, also through re-exports.
pub(super) fn imports_of(sources: &[Source], name: &str) -> Imports {
    by_crate(sources).get(name).map(|sources| imports(sources)).unwrap_or_default()
}

fn by_crate(sources: &[Source]) -> BTreeMap<&str, Vec<&Source>> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test_file()) {
        if let Some((name, _)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) {
            crates.entry(name).or_default().push(source);
        }
    }
    crates
}

fn check_crate(name: &str, ring: &[String]) -> Option<Finding> {
    (ring.len() > RING_MAX).then(|| {
        let problem = format!("{} modules import one another, at most {RING_MAX} may: {}", ring.len(), ring.join(", "));
        Finding::new(&format!("crates/{name}/src/lib.rs"), 1, problem)
    })
}

fn imports(sources: &[&Source]) -> Imports {
    let modules: Vec<(String, String)> = sources.iter().map(|source| (name_of(source), code_of(source))).collect();
    let known: BTreeSet<&str> =
        modules.iter().map(|(module, _)| module.as_str()).filter(|name| !name.is_empty()).collect();
    let mut reexports = Reexports::new();
    let mut rest = Vec::new();
    for (module, code) in &modules {
        let (code, statements) = without_reexports(code);
        for path in statements.iter().flat_map(|statement| all_paths(statement, module, &known)) {
            if let Some(name) = path.last().cloned() {
                reexports.insert((module.clone(), name), path);
            }
        }
        rest.push((module, code));
    }
    let named = |(module, code): (&String, String)| {
        let paths = all_paths(&code, module, &known).into_iter();
        let named = paths.filter_map(|path| resolve(path, &known, &reexports)).filter(|named| named != module);
        (module.clone(), named.collect())
    };
    rest.into_iter().filter(|(module, _)| !module.is_empty()).map(named).collect()
}

/// Returns the module of a source; empty for a crate's root.
fn name_of(source: &Source) -> String {
    module_of(&source.path).unwrap_or_default()
}

/// Returns the product code of a source.
fn code_of(source: &Source) -> String {
    let lines = &source.lines[..source.product_line_count];
    lines.iter().flat_map(|line| [line.code.as_str(), "\n"]).collect()
}

/// Returns code without its re-exports, and the re-exports.
fn without_reexports(code: &str) -> (String, Vec<String>) {
    let mut rest = String::new();
    let mut statements = Vec::new();
    let mut left = code;
    loop {
        let starts = ["pub use ", "pub(crate) use ", "pub(super) use "].map(|start| left.find(start));
        let Some(at) = starts.into_iter().flatten().min() else { break };
        let end = left[at..].find(';').map_or(left.len(), |len| at + len);
        rest.push_str(&left[..at]);
        statements.push(left[at..end].to_owned());
        left = &left[end..];
    }
    rest.push_str(left);
    (rest, statements)
}

/// Returns the paths that `code` in `module` names, including those that begin with `self` or a child module.
fn all_paths(code: &str, module: &str, known: &BTreeSet<&str>) -> Vec<Vec<String>> {
    let mut found = paths(code, module);
    let own: Vec<String> = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let parent = |name: &str| name.rsplit_once("::").map_or("", |(parent, _)| parent).to_owned();
    let children = known.iter().filter(|name| parent(name) == module);
    let children = children.map(|name| name.rsplit("::").next().unwrap_or(name));
    for (start, child) in children.map(|child| (format!("{child}::"), Some(child))).chain([("self::".to_owned(), None)])
    {
        let base: Vec<String> = own.iter().cloned().chain(child.map(str::to_owned)).collect();
        for at in starts(code, &start).filter(|at| !is_within_import(code, *at)) {
            Walk { rest: &code[at + start.len()..], found: &mut found }.path(&base);
        }
    }
    found
}

/// Returns whether the path at `at` is inside a `use` statement, behind its first path. It is then part of that path,
/// which is read from its start.
fn is_within_import(code: &str, at: usize) -> bool {
    let statement = code[..at].rfind(';').map_or(&code[..at], |end| &code[end..at]);
    let import = starts(statement, "use ").last().map(|start| &statement[start + "use ".len()..]);
    import.is_some_and(|path| !path.trim().is_empty())
}

/// Returns the module that defines what `path` names, or `None` if that is the crate's root or another crate.
fn resolve(mut path: Vec<String>, known: &BTreeSet<&str>, reexports: &Reexports) -> Option<String> {
    for _ in 0..REEXPORTS_MAX {
        let module = longest_known(&path, known).unwrap_or_default();
        let depth = module.split("::").filter(|part| !part.is_empty()).count();
        let name = path.get(depth).cloned().unwrap_or_default();
        match reexports.get(&(module.clone(), name)) {
            Some(target) => path = [&target[..], &path[depth + 1..]].concat(),
            None => return (!module.is_empty()).then_some(module),
        }
    }
    None
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

/// The reader of one path with its groups in braces.
struct Walk<'a, 'b> {
    rest: &'a str,
    found: &'b mut Vec<Vec<String>>,
}

impl Walk<'_, '_> {
    /// Reads the part of a path that follows `prefix::`.
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
    let mut reached = BTreeSet::new();
    let mut open = vec![module];
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
    fn name_that_is_reexported_leads_to_the_module_that_defines_it() {
        let lib = ("lib", "mod a;\nmod b;\npub use a::{Store, c::Deep};");
        assert_eq!(ring(&[lib, ("a", "use crate::b;"), ("b", "fn f(store: crate::Store) {}")]), ["a", "b"]);
        let deep = [lib, ("a/c", "use crate::b;"), ("a", "pub(crate) use c::Deep;"), ("b", "use crate::a::Deep;")];
        assert_eq!(ring(&deep), ["a::c", "b"]);
        assert_eq!(ring(&[lib, ("a", "mod c;\npub use c::Deep;"), ("a/c", "use super::Store;")]), [""; 0]);
    }

    #[test]
    fn child_that_its_parent_names_is_imported() {
        assert_eq!(ring(&[("a", "mod c;\nuse c::X;"), ("a/c", "use super::Y;")]), ["a", "a::c"]);
        assert_eq!(ring(&[("a", "fn f() { self::c::g() }"), ("a/c", "use super::Y;")]), ["a", "a::c"]);
        assert_eq!(ring(&[("a", "fn f() { other::c::g() }"), ("a/c", "use super::Y;")]), [""; 0]);
        assert_eq!(ring(&[("a", "mod c;\nuse other::{c::X, d};"), ("a/c", "use super::Y;")]), [""; 0]);
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
            (0..count).map(|at| Source::new(&format!("crates/larder-x/src/m{at}.rs"), &text(at))).collect()
        };
        let told = |count| check(&sources(count)).first().map(ToString::to_string);
        assert!(told(RING_MAX + 1).is_some_and(|problem| problem.contains("import one another")));
        assert_eq!(told(RING_MAX), None);
    }
}
