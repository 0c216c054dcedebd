//! Parses policies and their constants: `--policy esp`, `--tune esp_level_count=8`, `[store.tuning]`.
//!
//! Owns: parsing a constant by its kind, and the help that lists policies. The policies and constants come from the
//! engine's tables. Invariant: a value that parses is in its range.

use crate::ground::{
    duration, size,
    value::{self, BadValue},
};
use larder_store::{Policy, Tuning, TuningField, TuningKind, TuningValue};
use std::fmt::Write;

/// A constant of a policy that was set with `NAME=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TunedConstant {
    pub(crate) name: &'static str,
    pub(crate) value: TuningValue,
}

/// A policy given by name, or `auto`, with which a plan chooses the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyChoice {
    /// The policy that a plan recommends for the disk and the memory (module `automatic`).
    Auto,
    /// The policy that was named.
    Row(&'static Policy),
}

/// Parses the value of `--policy` and of `policy` in `[store]`.
pub(crate) fn parse_choice(text: &str) -> Result<PolicyChoice, BadValue> {
    if text == "auto" { Ok(PolicyChoice::Auto) } else { parse_policy(text).map(PolicyChoice::Row) }
}

/// Parses the name of a policy.
pub(crate) fn parse_policy(text: &str) -> Result<&'static Policy, BadValue> {
    Policy::named(text).ok_or_else(|| {
        let names = Policy::all().iter().map(|policy| policy.name);
        BadValue::new(format!("unknown policy: `{text}`"), value::names_help("policies", text, names))
    })
}

/// Parses the value of `--tune`.
pub(crate) fn parse_tuned(text: &str) -> Result<TunedConstant, BadValue> {
    let bad = |problem: String| BadValue::new(problem, "give a name and a value, such as sorted_reads=on");
    let (name, value) = text.split_once('=').ok_or_else(|| bad(format!("a constant without a value: `{text}`")))?;
    let field = Tuning::fields().iter().find(|field| field.name == name).ok_or_else(|| {
        let names = Tuning::fields().iter().map(|field| field.name);
        BadValue::new(format!("unknown constant: `{name}`"), value::names_help("constants", name, names))
    })?;
    let value = match (&field.kind, value) {
        (TuningKind::Switch, "on" | "true") => TuningValue::Switch(true),
        (TuningKind::Switch, "off" | "false") => TuningValue::Switch(false),
        (TuningKind::Switch, _) => return Err(bad(format!("neither on nor off: `{value}`"))),
        _ => parse(field, value)?,
    };
    Ok(TunedConstant { name: field.name, value })
}

/// Parses the value of a constant that is not a switch.
pub(crate) fn parse(field: &TuningField, text: &str) -> Result<TuningValue, BadValue> {
    let value = match &field.kind {
        TuningKind::Switch => {
            return Err(BadValue::new(format!("neither true nor false: `{text}`"), "write true or false"));
        }
        TuningKind::Count(_) => text.parse().ok().map(TuningValue::Number),
        TuningKind::Bytes(_) | TuningKind::Power(_) => Some(TuningValue::Number(size::parse(text)?)),
        TuningKind::Time(_) => Some(TuningValue::Time(duration::parse(text)?)),
        // The range of the constant decides whether it may exceed 1.
        TuningKind::Share(_) => text.parse().ok().map(TuningValue::Share),
        TuningKind::Word(words) => words.iter().find(|word| **word == text).map(|word| TuningValue::Word(word)),
    };
    let fitting = value.filter(|value| field.kind.admits(*value));
    fitting.ok_or_else(|| BadValue::new(format!("value out of range for {}: `{text}`", field.name), range(&field.kind)))
}

/// Returns the text of `larder help tuning`: all policies, and all constants with their ranges and defaults.
///
/// Paragraphs are single lines, which clap wraps at the width of the terminal.
pub(crate) fn reference() -> String {
    let mut text = "Policies (--policy, [store] policy):\n".to_owned();
    let automatic = ("auto", "the policy that `larder plan` recommends (`larder run` only)");
    let policies = Policy::all().iter().map(|policy| (policy.name, policy.about));
    for (name, about) in std::iter::once(automatic).chain(policies) {
        // The description is on a line of its own, because clap indents continued lines like the first one.
        writeln!(text, "  {name}\n    {about}").expect("a string takes all");
    }
    text += "\nConstants (--tune NAME=VALUE, [store.tuning]):\n";
    let defaults = Tuning::default();
    for field in Tuning::fields() {
        let default = defaults.value(field.name).map(|value| show(&field.kind, value)).unwrap_or_default();
        let words: Vec<_> = field.about.split_whitespace().collect();
        writeln!(text, "  {} [{}; default {default}]", field.name, range(&field.kind)).expect("a string takes all");
        writeln!(text, "    {}", words.join(" ")).expect("a string takes all");
    }
    text
}

fn range(kind: &TuningKind) -> String {
    let (from, to) = match kind {
        TuningKind::Switch => return "on or off".to_owned(),
        TuningKind::Count(range) => (range.start().to_string(), range.end().to_string()),
        TuningKind::Bytes(range) => (show_bytes(*range.start()), show_bytes(*range.end())),
        TuningKind::Power(range) => {
            return format!("a power of two from {} to {}", show_bytes(*range.start()), show_bytes(*range.end()));
        }
        TuningKind::Time(range) => (format!("{:?}", range.start()), format!("{:?}", range.end())),
        TuningKind::Share(range) => (range.start().to_string(), range.end().to_string()),
        TuningKind::Word(words) => return format!("one of {}", words.join(", ")),
    };
    format!("from {from} to {to}")
}

fn show(kind: &TuningKind, value: TuningValue) -> String {
    match (kind, value) {
        (_, TuningValue::Switch(on)) => if on { "on" } else { "off" }.to_owned(),
        (TuningKind::Bytes(_) | TuningKind::Power(_), TuningValue::Number(bytes)) => show_bytes(bytes),
        (_, TuningValue::Number(number)) => number.to_string(),
        (_, TuningValue::Time(time)) => format!("{time:?}"),
        (_, TuningValue::Share(share)) => share.to_string(),
        (_, TuningValue::Word(word)) => word.to_owned(),
    }
}

/// Formats a size exactly, in the largest binary unit that permits it. Such sizes are usually chosen in these units.
fn show_bytes(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.iter().find(|(_, bits)| bytes != 0 && bytes.trailing_zeros() >= *bits);
    whole.map_or_else(|| format!("{bytes}B"), |(name, bits)| format!("{}{name}", bytes >> bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn field(kind: TuningKind) -> &'static TuningField {
        let same = |field: &&TuningField| std::mem::discriminant(&field.kind) == std::mem::discriminant(&kind);
        Tuning::fields().iter().find(same).expect("the table has one of this kind")
    }

    #[test]
    fn every_row_and_constant_is_in_the_help() {
        for policy in Policy::all() {
            assert_eq!(parse_policy(policy.name), Ok(policy));
            assert!(reference().contains(policy.about));
        }
        for field in Tuning::fields() {
            assert!(reference().contains(field.name));
            let default = Tuning::default().value(field.name).expect("it is in the table");
            let text = format!("{}={}", field.name, show(&field.kind, default));
            assert_eq!(parse_tuned(&text).map(|tuned| tuned.value), Ok(default), "{text}");
        }
    }

    #[test]
    fn what_is_no_policy_or_constant_says_what_is() {
        let meant = parse_policy("hashcache-logs").unwrap_err().help;
        assert!(meant.starts_with("did you mean `hashcache-log`? the policies are "), "{meant}");
        let meant = parse_tuned("sorted_read=on").unwrap_err().help;
        assert!(meant.starts_with("did you mean `sorted_reads`? the constants are "), "{meant}");
        let bad = parse_policy("lru").unwrap_err();
        assert!(bad.problem == "unknown policy: `lru`" && bad.help.contains("log"), "{bad:?}");
        for (text, problem) in [
            ("sorted_reads", "a constant without a value: `sorted_reads`"),
            ("insertion=on", "unknown constant: `insertion`"),
            ("sorted_reads=1", "neither on nor off: `1`"),
        ] {
            assert_eq!(parse_tuned(text).unwrap_err().problem, problem);
        }
        assert!(parse(field(TuningKind::Switch), "on").is_err());
    }

    #[test]
    fn values_are_shown_as_they_are_written() {
        for (kind, value, shown) in [
            (TuningKind::Bytes(0..=1), TuningValue::Number(8192), "8KiB"),
            (TuningKind::Bytes(0..=1), TuningValue::Number(1000), "1000B"),
            (TuningKind::Count(0..=1), TuningValue::Number(8192), "8192"),
            (TuningKind::Time(Duration::ZERO..=Duration::MAX), TuningValue::Time(Duration::from_millis(20)), "20ms"),
        ] {
            assert_eq!(show(&kind, value), shown);
        }
        assert_eq!(range(&TuningKind::Power(4096..=1 << 20)), "a power of two from 4KiB to 1MiB");
    }
}
