//! The constants of the reports that belong to no machine, each with its source.
//!
//! Owns: `models/beds.toml`. Invariant: every constant has a source, and an assumed one the range in which it may lie;
//! each is used by a report, and reports use no others. A test checks this.

use super::varied;
use crate::{
    Note,
    report::{number, range_text},
};
use std::{collections::BTreeMap, sync::LazyLock};
use toml::{Table, Value};

pub(super) static TEXT: &str = include_str!("../../models/beds.toml");

/// A constant of a test bed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BedConstant {
    pub(super) value: f64,
    /// Source of the value: a paper, with its words, or `assumed`, with the reason.
    pub(super) source: String,
    /// The range in which an uncertain value may lie; `None` if it is certain.
    pub(super) range: Option<(f64, f64)>,
}

/// Returns the value of a constant. `name` has its section and name, such as `squid.memory_bytes`.
///
/// # Panics
/// If there is no such constant.
pub(super) fn constant(name: &str) -> f64 {
    let constant = constants().get(name).unwrap_or_else(|| panic!("models/beds.toml has no {name}"));
    varied::bed_value(name).unwrap_or(constant.value)
}

/// Returns the value of a constant that is a whole number.
///
/// # Panics
/// If there is no such constant.
pub(super) fn whole(name: &str) -> u64 {
    constant(name) as u64
}

/// Returns all constants by their section and name.
pub(super) fn constants() -> &'static BTreeMap<String, BedConstant> {
    static CONSTANTS: LazyLock<BTreeMap<String, BedConstant>> = LazyLock::new(|| {
        let sections: Table = TEXT.parse().expect("the beds that come along are TOML");
        let of_section = |(section, constants): (String, Value)| {
            let Value::Table(constants) = constants else { panic!("{section} is no section") };
            constants.into_iter().map(move |(name, constant)| {
                let name = format!("{section}.{name}");
                let constant = BedConstant::read(&constant).unwrap_or_else(|| panic!("not a constant: {name}"));
                (name, constant)
            })
        };
        sections.into_iter().flat_map(of_section).collect()
    });
    &CONSTANTS
}

/// Returns all constants of test beds with their sources. The note of an uncertain constant includes its range.
pub fn bed_notes() -> Vec<Note> {
    let note = |(name, BedConstant { value, source, range }): (&String, &BedConstant)| {
        let range = range.map_or_else(String::new, |(least, most)| format!(" ({})", range_text(least, most)));
        Note { name: name.clone(), value: number(*value), source: format!("{source}{range}") }
    };
    constants().iter().map(note).collect()
}

impl BedConstant {
    fn read(constant: &Value) -> Option<Self> {
        let number = |name| match constant.get(name)? {
            Value::Integer(whole) => Some(*whole as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let source = constant.get("source")?.as_str()?.to_owned();
        Some(Self { value: number("value")?, source, range: number("least").zip(number("most")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of the modules that use constants, to check that each is used.
    const SOURCES: [&str; 13] = [
        include_str!("accesses.rs"),
        include_str!("markatos.rs"),
        include_str!("markatos/figures.rs"),
        include_str!("markatos/operations.rs"),
        include_str!("markatos/sensitivity.rs"),
        include_str!("markatos/tables.rs"),
        include_str!("hashcache.rs"),
        include_str!("squid.rs"),
        include_str!("guide.rs"),
        include_str!("esp.rs"),
        include_str!("queue.rs"),
        include_str!("queue/network.rs"),
        include_str!("queue/service.rs"),
    ];

    /// Guards against a constant without a source, or an assumed one without a range.
    #[test]
    fn every_constant_has_a_source_and_an_assumed_one_its_range() {
        for (name, BedConstant { value, source, range }) in constants() {
            assert!(!source.is_empty(), "{name}");
            assert!(range.is_some() || !source.starts_with("assumed"), "{name} is assumed and has no range");
            if let Some((least, most)) = range {
                assert!(least <= value && value <= most && least < most, "{name}: {least} <= {value} <= {most}");
            }
        }
    }

    #[test]
    fn reports_use_the_constants_there_are_and_all_of_them() {
        let calls = |call: &'static str| SOURCES.iter().flat_map(move |text| text.split(call).skip(1));
        let used: Vec<_> =
            calls("constant(\"").chain(calls("whole(\"")).filter_map(|rest| rest.split('"').next()).collect();
        for name in used.iter().filter(|name| name.contains('.')) {
            assert!(constants().contains_key(*name), "there is no {name}");
        }
        for name in constants().keys() {
            let literal = format!("\"{name}\"");
            let is_used = SOURCES.iter().any(|text| text.contains(&literal));
            // A test bed of HashCache puts the name together from its section.
            let is_used = is_used || name.starts_with("hashcache_");
            assert!(is_used, "nothing uses {name}");
        }
    }
}
