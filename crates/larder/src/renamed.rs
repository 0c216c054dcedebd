//! Accepts the old names of renamed settings for one release, with a warning that names the new one.
//!
//! Owns: the list of old and new names, and the replacement of old ones. Settings are read elsewhere, by their new
//! names only. Invariant: if both the old and the new name are given, the old one is refused as unknown.

use std::ffi::OsString;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

/// A name that changed.
struct RenamedItem {
    place: RenamedPlace,
    old: &'static str,
    new: &'static str,
}

/// The kind and place of a renamed item.
enum RenamedPlace {
    /// A key of this section, which is empty for the top of the file.
    Key(&'static str),
    /// A value of a key, given by the section and the key's new name.
    Value(&'static str, &'static str),
    /// A flag of `larder run`.
    Flag,
}

use RenamedPlace::{Flag, Key, Value};

/// All renamed items. A key precedes its values.
const RENAMED: &[RenamedItem] = &[
    renamed(Flag, "--drain", "--drain-timeout"),
    renamed(Key(""), "drain", "drain_timeout"),
    renamed(Key(""), "origin_host", "preserve_host"),
    renamed(Value("", "preserve_host"), "client", "true"),
    renamed(Value("", "preserve_host"), "origin", "false"),
    renamed(Key("memory"), "hot", "cache"),
    renamed(Key("forward"), "only_allowed", "default_deny"),
    renamed(Key("intercept"), "authority", "ca_dir"),
    renamed(Key("site"), "origin_host", "preserve_host"),
    renamed(Value("site", "preserve_host"), "client", "true"),
    renamed(Value("site", "preserve_host"), "origin", "false"),
    renamed(Value("site", "balance"), "turns", "round_robin"),
    renamed(Value("site", "balance"), "hash", "consistent_hash"),
    renamed(Key("site"), "failures", "max_fails"),
    renamed(Key("site"), "out", "fail_timeout"),
    renamed(Key("limits"), "idle", "idle_timeout"),
    renamed(Key("limits"), "header", "header_timeout"),
    renamed(Key("limits"), "stall", "stall_timeout"),
    renamed(Key("limits"), "store", "store_timeout"),
    renamed(Key("limits"), "origin_connect", "origin_connect_timeout"),
    renamed(Key("limits"), "origin_response", "origin_response_timeout"),
    renamed(Key("limits"), "origin_idle", "origin_idle_timeout"),
];

const fn renamed(place: RenamedPlace, old: &'static str, new: &'static str) -> RenamedItem {
    RenamedItem { place, old, new }
}

/// Replaces old names of keys and values in a configuration. Returns a warning for each. `text` is the configuration's
/// text.
pub(crate) fn in_file<'a>(text: &str, top: DeTable<'a>) -> (DeTable<'a>, Vec<String>) {
    let mut top = top;
    let mut warnings = Vec::new();
    for item in RENAMED {
        let (section, key) = match item.place {
            Key(section) => (section, None),
            Value(section, key) => (section, Some(key)),
            Flag => continue,
        };
        let mut replace = |table: &mut DeTable<'a>| {
            let place = match key {
                None => replace_key(table, item),
                Some(key) => replace_value(table, key, item),
            };
            if let Some(at) = place {
                let line = 1 + text[..at].matches('\n').count();
                let name = |name: &str| match (section, key) {
                    ("", None) => format!("`{name}`"),
                    (section, None) => format!("`{section}.{name}`"),
                    (_, Some(key)) => format!("`{key} = {name}`"),
                };
                warnings.push(format!("line {line}: {}", warning(&name(item.old), &name(item.new))));
            }
        };
        match section {
            "" => replace(&mut top),
            section => top.get_mut(section).into_iter().for_each(|value| for_each_table(value, &mut replace)),
        }
    }
    (top, warnings)
}

/// Replaces old names of flags of `larder run`. Returns a warning for each.
pub(crate) fn in_arguments(arguments: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let (mut arguments, mut warnings): (Vec<_>, _) = (arguments.collect(), Vec::new());
    if arguments.get(1).is_none_or(|command| command != "run") {
        return (arguments, warnings);
    }
    let flags = RENAMED.iter().filter(|item| matches!(item.place, Flag));
    for item in flags {
        for argument in &mut arguments {
            let Some(rest) = argument.to_str().and_then(|text| text.strip_prefix(item.old)) else { continue };
            if rest.is_empty() || rest.starts_with('=') {
                *argument = format!("{}{rest}", item.new).into();
                warnings.push(warning(&format!("`{}`", item.old), &format!("`{}`", item.new)));
            }
        }
    }
    (arguments, warnings)
}

fn warning(old: &str, new: &str) -> String {
    format!("{old} is an old name that the next release will refuse; write {new}")
}

/// Calls `replace` with a table, or with each table of a list.
fn for_each_table<'a>(value: &mut Spanned<DeValue<'a>>, replace: &mut impl FnMut(&mut DeTable<'a>)) {
    match value.get_mut() {
        DeValue::Table(table) => replace(table),
        DeValue::Array(members) => members.iter_mut().for_each(|member| for_each_table(member, replace)),
        _ => {}
    }
}

/// Replaces a key, unless the new key is also present. Returns its place.
fn replace_key(table: &mut DeTable<'_>, item: &RenamedItem) -> Option<usize> {
    if table.contains_key(item.new) {
        return None;
    }
    let (key, value) = table.remove_entry(item.old)?;
    let span = key.span();
    table.insert(Spanned::new(span.clone(), DeString::Borrowed(item.new)), value);
    Some(span.start)
}

/// Replaces the value of a key. Returns its place.
fn replace_value(table: &mut DeTable<'_>, key: &str, item: &RenamedItem) -> Option<usize> {
    let value = table.get_mut(key)?;
    if value.get_ref().as_str() != Some(item.old) {
        return None;
    }
    *value.get_mut() = DeValue::String(DeString::Borrowed(item.new));
    Some(value.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_new_name_is_an_old_one_too() {
        for item in RENAMED {
            let is_key = |other: &&RenamedItem| match (&item.place, &other.place) {
                (Key(section), Key(other_section)) => section == other_section && other.old == item.new,
                _ => false,
            };
            assert!(RENAMED.iter().find(is_key).is_none() && item.old != item.new, "{}", item.new);
        }
    }

    #[test]
    fn flags_of_other_commands_stay_as_they_are() {
        let of = |line: &str| in_arguments(line.split(' ').map(OsString::from));
        let (arguments, warnings) = of("larder run --drain=3s --drained");
        assert_eq!(arguments[2..], ["--drain-timeout=3s", "--drained"]);
        assert_eq!(warnings.len(), 1);
        assert_eq!(of("larder exec -- run --drain 3s").1, Vec::<String>::new());
    }
}
