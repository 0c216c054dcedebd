//! Rules about imports within a crate: a layer of the store or of the program may name only the layers below it, an
//! engine may not name another engine, and only the clock may use the system. The core of bodies in larder-cache may
//! use nothing but plain data. In the proxy, the road names neither the door nor the insides of `origins`, and few
//! files name larder-cache.
//!
//! Simplification: paths are compared as text. A name that a module re-exports counts as one of the module that defines
//! it. The compiler and the rule for manifests check the boundaries between crates.

use super::{Finding, rings, source::Source};
use std::collections::BTreeSet;

const STORE: &str = "crates/larder-store/src/";
const PROGRAM: &str = "crates/larder/src/";
const PROXY: &str = "crates/larder-proxy/src/";

/// The engines. Each is the module `engine::NAME`.
const ENGINES: [&str; 5] = ["log", "mapped", "table", "tiny", "clusters"];

/// The parts of the store, each with the parts above it, which it must not name. Engines and the kit must not name an
/// engine either.
const ABOVE: [(&str, &[&str]); 9] = [
    ("families", &["store"]),
    ("engine", &["families", "store"]),
    ("reader", &["engine", "families", "store"]),
    ("volume", &["reader", "engine", "families", "store"]),
    ("format", &["volume", "reader", "engine", "families", "store", "device"]),
    ("hash", &["device", "format", "volume", "reader", "engine", "families", "store"]),
    ("units", &["device", "format", "volume", "reader", "engine", "families", "store"]),
    ("clock", &["device", "format", "volume", "reader", "engine", "families", "store"]),
    ("tuning", &["device", "format", "volume", "reader", "engine", "families", "store"]),
];

/// The folders of the program, each with the folders above it, which it must not name.
const ABOVE_IN_PROGRAM: [(&str, &[&str]); 3] =
    [("ground", &["settings", "run", "commands"]), ("settings", &["run", "commands"]), ("run", &["commands"])];

/// The folders of the proxy, each with the folders above it, which it must not name. All other folders may name each
/// other.
const ABOVE_IN_PROXY: [(&str, &[&str]); 2] = [("road", &["door"]), ("targets", &["road", "door"])];

/// The modules of the proxy's `origins` that its road may name, in addition to the names that `origins` exports.
const FACE_OF_ORIGINS: [&str; 5] = ["access", "ask", "body", "fetcher", "request_body"];

/// The parts of the proxy that may name larder-cache. Other parts use what `ground::cache` exports.
const CACHE_USERS: [&str; 3] = ["road", "origins::fetcher", "ground::cache"];

/// The parts of the store that do no I/O, and must not name the crate of devices.
const WITHOUT_DEVICES: [&str; 5] = ["format", "hash", "units", "clock", "tuning"];

/// Paths into the system, which only certain files of the engine may contain.
const SYSTEM: [&str; 5] = ["std::fs", "std::net", "std::process", "SystemTime::now", "Instant::now"];
const SYSTEM_PARTS: [&str; 1] = ["clock"];

/// Crates whose sources must not use the system at all.
const PURE: [&str; 2] = ["crates/larder-http/src/", "crates/larder-wire/src/"];

/// The core of bodies, which does no I/O and knows no clock, lock, store, socket or task. `CORE_ROOTS` are the roots of
/// the paths that it may import; it must not name anything in `CORE_NEVER`.
const CORE: &str = "crates/larder-cache/src/object";
const CORE_ROOTS: [&str; 9] = ["std", "bytes", "smallvec", "slab", "larder_http", "crate", "super", "self", "core"];
const CORE_NEVER: [&str; 7] =
    ["std::fs", "std::net", "std::process", "std::sync", "std::thread", "std::time", "std::task"];

/// Returns the statements of a source that name a layer above it, the system, or another thing that it must not name.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let layers = layers_of(&source.path);
    let module = if layers.is_empty() { None } else { rings::module_of(&source.path) };
    let part = source.path.strip_prefix(STORE).map(|rest| rest.split(['/', '.']).next().unwrap_or(rest));
    let mut findings = Vec::new();
    let system_allowed =
        part.is_none_or(|part| SYSTEM_PARTS.contains(&part)) && !PURE.iter().any(|pure| source.path.starts_with(pure));
    for (first, last, statement) in statements(source) {
        for problem in module.iter().flat_map(|module| strangers(layers, module, &statement)) {
            findings.push(Finding::new(&source.path, first + 1, problem));
        }
        if let Some(module) = module.as_ref().filter(|_| source.path.starts_with(PROXY)) {
            let strangers = inside_origins(module, &statement).into_iter().chain(cache_named(module, &statement));
            findings.extend(strangers.map(|problem| Finding::new(&source.path, first + 1, problem)));
        }
        let part = part.filter(|part| WITHOUT_DEVICES.contains(part) && statement.contains("larder_device"));
        if let Some(part) = part {
            findings.push(Finding::new(&source.path, first + 1, format!("`{part}` must not know `larder_device`")));
        }
        for path in SYSTEM.iter().filter(|path| !system_allowed && statement.contains(**path)) {
            let line = (first..=last).find(|&at| source.lines[at].code.contains(path)).unwrap_or(first);
            let problem = format!("`{path}`: only a clock or larder-device touches the system; take it as an argument");
            findings.push(Finding::new(&source.path, line + 1, problem));
        }
        findings.extend(
            beyond_core(&source.path, &statement).map(|problem| Finding::new(&source.path, first + 1, problem)),
        );
    }
    findings
}

/// Returns the violation if `statement` of the proxy's road names an internal module of `origins`.
fn inside_origins(module: &str, statement: &str) -> Option<String> {
    let paths = is_within(module, "road").then(|| rings::paths(statement, module))?;
    // Without further parts, it is a function of `origins` unless it is imported.
    let may_be_module = |rest: &[String]| !rest.is_empty() || imported_root(statement).is_some();
    let inside = paths.iter().find_map(|path| match &path[..] {
        [folder, part, rest @ ..] if folder == "origins" && may_be_module(rest) => {
            let is_open = part == "self" || FACE_OF_ORIGINS.contains(&part.as_str());
            (!is_open && part.starts_with(char::is_lowercase)).then_some(part)
        }
        _ => None,
    })?;
    Some(format!("`{module}` must not know `origins::{inside}`: let `origins` export what the road needs"))
}

/// Returns the violation if `statement` of the proxy names larder-cache where only `ground::cache` should.
fn cache_named(module: &str, statement: &str) -> Option<String> {
    let may = CACHE_USERS.iter().any(|part| is_within(module, part));
    (!may && statement.contains("larder_cache::"))
        .then(|| format!("`{module}` must not know `larder_cache`: use what `ground::cache` exports"))
}

/// Returns the violation if `path` is a file of the core of bodies and `statement` names something that the core must
/// not know.
fn beyond_core(path: &str, statement: &str) -> Option<String> {
    path.strip_prefix(CORE).filter(|rest| rest.starts_with(['/', '.']))?;
    let module = rings::module_of(path)?;
    let named: Vec<String> = rings::paths(statement, &module).iter().map(|path| path.join("::")).collect();
    let stranger = named.into_iter().find(|path| !is_within(path, "object"));
    let never = || CORE_NEVER.iter().find(|never| statement.contains(**never)).map(|never| (*never).to_owned());
    let beyond = stranger.or_else(never).or_else(|| {
        let root = imported_root(statement)?;
        (!CORE_ROOTS.contains(&root)).then(|| root.to_owned())
    })?;
    Some(format!("`{module}` must not know `{beyond}`: it is plain data and decisions, without I/O, clocks and locks"))
}

/// Returns the first part of the path that `statement` imports.
fn imported_root(statement: &str) -> Option<&str> {
    let path = statement.split_once("use ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"))?.1;
    path.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
}

/// Checks that no part of the store names a part above it through a re-export, such as one at the crate's root.
pub(crate) fn check_reexported(sources: &[Source]) -> Vec<Finding> {
    let imports = rings::imports_of(sources, "larder-store");
    let found = |(module, named): (&String, &BTreeSet<String>)| -> Vec<Finding> {
        let path = format!("{STORE}{}.rs", module.replace("::", "/"));
        named
            .iter()
            .filter_map(|named| stranger(&ABOVE, module, named))
            .map(|problem| Finding::new(&path, 1, problem))
            .collect()
    };
    imports.iter().flat_map(found).collect()
}

/// The parts of a crate, each with the parts above it, which it must not name.
type Layers = [(&'static str, &'static [&'static str])];

/// Returns the layers of the crate that a file belongs to, or an empty list if the crate has none.
fn layers_of(path: &str) -> &'static Layers {
    match path {
        path if path.starts_with(STORE) => &ABOVE,
        path if path.starts_with(PROGRAM) => &ABOVE_IN_PROGRAM,
        path if path.starts_with(PROXY) => &ABOVE_IN_PROXY,
        _ => &[],
    }
}

/// Returns the violations in `statement`, which is in `module`: parts of the crate that the module must not name.
fn strangers(layers: &Layers, module: &str, statement: &str) -> Vec<String> {
    rings::paths(statement, module).iter().filter_map(|path| stranger(layers, module, &path.join("::"))).collect()
}

/// Returns the violation if `module` must not name `path`.
fn stranger(layers: &Layers, module: &str, path: &str) -> Option<String> {
    let (part, above) = layers.iter().find(|(part, _)| is_within(module, part))?;
    if let Some(above) = above.iter().find(|above| is_within(path, above)) {
        return Some(format!("`{part}` must not know `{above}`, which is above it"));
    }
    let engines = || ENGINES.iter().map(|engine| format!("engine::{engine}"));
    let own = engines().find(|engine| is_within(module, engine));
    let other = engines().find(|other| own.as_ref() != Some(other) && is_within(path, other))?;
    (*part == "engine").then(|| format!("`{module}` must not know `{other}`: what engines share is in `engine::kit`"))
}

/// Returns whether `path` is `module` or lies in it.
fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns product code split at `;` and `{}` outside of `use` groups: first line, last line, text.
fn statements(source: &Source) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (position, line) in source.lines.iter().enumerate() {
        if source.is_test_line(position) {
            break;
        }
        let (first, mut text) = open.take().unwrap_or((position, String::new()));
        text.push_str(line.code.trim());
        let in_use = text.trim_start_matches("pub ").trim_start_matches("pub(crate) ").starts_with("use ");
        if in_use && !text.ends_with(';') {
            open = Some((first, text));
        } else if !text.is_empty() {
            found.push((first, position, text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn store_layers_know_only_what_is_below_them() {
        let found = |file: &str, text| check_one(&format!("crates/larder-store/src/{file}.rs"), text);
        for (file, import, problem) in [
            ("volume/health", "use crate::engine::Extent;", "`volume` must not know `engine`"),
            ("volume", "use crate::{units, store::{A, B}};", "`volume` must not know `store`"),
            ("engine/kit/room", "use crate::{\n    units,\n    store::A,\n};", "`engine` must not know `store`"),
            ("engine/log/append", "fn a(b: crate::families::B) {}", "`engine` must not know `families`"),
            ("format/record", "use crate::device::A;", "`format` must not know `device`"),
            ("format/record", "use larder_device::A;", "`format` must not know `larder_device`"),
        ] {
            assert!(found(file, import)[0].contains(problem), "{import}: {:?}", found(file, import));
        }
        assert_eq!(found("engine/log", "use super::{Extent, kit};\nuse crate::{volume::Volume, units};").len(), 0);
        assert_eq!(found("volume", "use crate::{units::{engine, b}, format, storey};").len(), 0);
        assert_eq!(found("store/open", "use crate::engine::Extent;").len(), 0);
        assert_eq!(check_one("crates/larder-bench/src/volume.rs", "use crate::engine::Extent;").len(), 0);
    }

    #[test]
    fn folders_of_the_program_know_only_those_below_them() {
        let found = |file: &str, text| check_one(&format!("crates/larder/src/{file}.rs"), text);
        for (file, import, problem) in [
            ("ground/size", "use crate::settings::tuning::A;", "`ground` must not know `settings`"),
            ("settings/config", "use crate::{ground::size, run::report::A};", "`settings` must not know `run`"),
            ("run/control", "fn a(b: crate::commands::exec::B) {}", "`run` must not know `commands`"),
        ] {
            assert!(found(file, import)[0].contains(problem), "{import}: {:?}", found(file, import));
        }
        assert_eq!(found("commands/exec", "use crate::{ground::size, run::control, settings::config};").len(), 0);
        assert_eq!(found("settings", "use crate::ground::{size, value};").len(), 0);
    }

    #[test]
    fn road_of_the_proxy_knows_neither_the_door_nor_the_insides_of_origins() {
        let found = |file: &str, text| check_one(&format!("crates/larder-proxy/src/{file}.rs"), text);
        for (file, import, problem) in [
            ("road/steps", "use crate::{ground::clock, door::http2};", "`road` must not know `door`"),
            ("targets/routes", "use crate::road::steps::Step;", "`targets` must not know `road`"),
            ("road/pass", "use crate::origins::{ask::A, pool::B};", "must not know `origins::pool`"),
            ("road/pass", "fn a(b: crate::origins::dns::B) {}", "must not know `origins::dns`"),
            ("run/worker", "use larder_cache::http::A;", "must not know `larder_cache`"),
        ] {
            assert!(found(file, import)[0].contains(problem), "{import}: {:?}", found(file, import));
        }
        assert_eq!(found("road/pass", "use crate::origins::{RetryRule, body::A, self};").len(), 0);
        assert_eq!(found("road/tunnel", "crate::origins::open_by_a_way(origins)").len(), 0);
        assert_eq!(found("door/http1", "use crate::{road::client::peer::Client, origins::pool::A};").len(), 0);
        assert_eq!(found("origins/fetcher/asking", "use larder_cache::http::A;").len(), 0);
    }

    #[test]
    fn engines_do_not_know_one_another_and_the_kit_knows_none() {
        let found = |file: &str, text| check_one(&format!("crates/larder-store/src/engine/{file}.rs"), text);
        for (file, import, problem) in [
            ("log/append", "use crate::engine::tiny::A;", "must not know `engine::tiny`"),
            ("log", "use super::{kit, mapped::{A, B}};", "must not know `engine::mapped`"),
            ("kit/room", "use super::super::table;", "must not know `engine::table`"),
        ] {
            assert!(found(file, import)[0].contains(problem), "{import}: {:?}", found(file, import));
        }
        assert_eq!(
            found("log/append", "use super::LogEngine;\nuse crate::engine::{Extent, kit, log::index};").len(),
            0
        );
    }

    #[test]
    fn name_at_the_root_of_the_crate_counts_as_its_modules() {
        let source = |file: &str, text| Source::new(&format!("crates/larder-store/src/{file}.rs"), text);
        let lib = source("lib", "mod reader;\nmod volume;\npub use reader::Reader;");
        let above = [lib, source("reader", ""), source("volume", "use crate::Reader;")];
        let found: Vec<String> = check_reexported(&above).iter().map(ToString::to_string).collect();
        let problem = "crates/larder-store/src/volume.rs:1: `volume` must not know `reader`, which is above it";
        assert_eq!(found, [problem]);
        let below = [source("lib", "pub use volume::V;"), source("reader", "use crate::V;"), source("volume", "")];
        assert_eq!(check_reexported(&below), []);
    }

    #[test]
    fn core_of_bodies_knows_plain_data_only() {
        let found = |file: &str, text| check_one(&format!("crates/larder-cache/src/{file}.rs"), text);
        for (file, import, problem) in [
            ("object", "use tokio::sync::Notify;", "`object` must not know `tokio`"),
            ("object/core", "use std::sync::Mutex;", "`object::core` must not know `std::sync`"),
            ("object/core", "fn a(now: std::time::Instant) {}", "`object::core` must not know `std::time`"),
            ("object/plan", "use crate::memory::A;", "`object::plan` must not know `memory"),
            ("object/plan", "use super::super::{A, keys::B};", "`object::plan` must not know `A"),
        ] {
            let findings = found(file, import);
            assert!(findings.first().is_some_and(|finding| finding.contains(problem)), "{import}: {findings:?}");
        }
        assert_eq!(found("object/plan", "use super::{Sizes, runs::Run};\nuse smallvec::SmallVec;").len(), 0);
        assert_eq!(found("object", "pub use core::Core;\nuse std::ops::Range;\nuse bytes::Bytes;").len(), 0);
        assert_eq!(found("objects", "use tokio::sync::Notify;").len(), 0);
    }

    #[test]
    fn only_the_clock_of_the_store_touches_the_system() {
        let text = "let a = Instant::now();";
        assert_eq!(check_one("crates/larder-store/src/engine/flush.rs", text).len(), 1);
        assert_eq!(check_one("crates/larder-http/src/age.rs", "use std::net::IpAddr;").len(), 1);
        assert_eq!(check_one("crates/larder-store/src/clock.rs", text).len(), 0);
        assert_eq!(check_one("crates/larder-device/src/threads.rs", "use std::fs::File;").len(), 0);
        assert_eq!(check_one("crates/larder-proxy/src/listener.rs", text).len(), 0);
        assert_eq!(
            check_one("crates/larder-store/src/a.rs", "//! a\n#[cfg(test)]\nmod tests {\nInstant::now()\n}").len(),
            0
        );
    }
}
