//! The table of settings, from which the readers of the configuration file, the flags of `larder run`, `larder config
//! default`, `larder config print` and docs/reference/configuration.md are made.
//!
//! Owns: the form of an entry, and the texts generated from the entries. `config` reads configurations, and
//! `cli::setting_flags` makes flags. Invariant, which tests check: every key has an entry, and every entry's example
//! and default are valid.

use super::{
    rows,
    section::{ConfigProblem, ConfigValue},
};
use crate::{ground::value::BadValue, settings::RunSettings};
use larder_proxy::CacheSettings;
use std::fmt::Write;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A key of the configuration file.
pub(crate) struct Setting {
    /// Section and key, such as `limits.streams`.
    pub(super) name: &'static str,
    /// The equivalent flag of `larder run`, or empty.
    pub(super) flag: &'static str,
    pub(super) kind: ValueKind,
    /// The accepted values, if the type alone does not describe them; otherwise empty.
    pub(super) range: &'static str,
    pub(super) default: DefaultValue,
    pub(super) reload: ReloadBehavior,
    /// An example value in TOML, other than the default.
    pub(super) example: &'static str,
    /// The meaning, with links relative to docs/reference.
    pub(super) about: &'static str,
    /// The form of the flag, if it is made from this entry.
    pub(super) form: Option<FlagForm>,
    pub(super) reader: Reader,
}

/// The form of a flag on the command line.
pub(crate) struct FlagForm {
    pub(crate) value_name: &'static str,
    /// The group of flags in the help, or empty for the first group.
    pub(crate) heading: &'static str,
    pub(crate) help: &'static str,
    /// Whether the flag can be given several times; its values are then the members of a list.
    pub(crate) is_repeated: bool,
}

/// Returns the form of a flag that can be given once.
pub(super) const fn once(value_name: &'static str, heading: &'static str, help: &'static str) -> FlagForm {
    FlagForm { value_name, heading, help, is_repeated: false }
}

/// Returns the form of a flag that can be given several times.
pub(super) const fn repeated(value_name: &'static str, heading: &'static str, help: &'static str) -> FlagForm {
    FlagForm { value_name, heading, help, is_repeated: true }
}

/// The function that puts a key's value into the settings.
pub(super) enum Reader {
    /// A function for the whole section, because the section's keys depend on each other.
    Section,
    Run(fn(&mut RunSettings, ConfigValue<'_>) -> Result<(), ConfigProblem>),
    /// A function for the cache settings of the proxy or of a site.
    Cache(fn(&mut CacheSettings, ConfigValue<'_>) -> Result<(), ConfigProblem>),
}

/// The type of a value, with its unit.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    Boolean,
    Count,
    Duration,
    List,
    Rate,
    Share,
    Size,
    Tables,
    Text,
}

/// The value of a key that is absent.
pub(super) enum DefaultValue {
    /// This TOML value.
    Toml(&'static str),
    /// No value that a file could contain. The text describes the default.
    Prose(&'static str),
    /// No default: the section is refused without the key.
    Required,
}

/// When a changed value takes effect.
#[derive(PartialEq)]
pub(super) enum ReloadBehavior {
    /// At `larder reload`.
    Reload,
    /// At a restart.
    Restart,
}

impl ValueKind {
    fn shown(self) -> &'static str {
        match self {
            Self::Boolean => "true or false",
            Self::Count => "whole number",
            Self::Duration => "duration",
            Self::List => "string or list",
            Self::Rate => "bytes per second",
            Self::Share => "number",
            Self::Size => "size in bytes",
            Self::Tables => "list of tables",
            Self::Text => "string",
        }
    }
}

impl Setting {
    /// Returns the section, which is empty at the top of the file, and the key.
    pub(super) fn place(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }

    /// Returns the name of the flag without dashes, and its form, if it is made from this entry.
    pub(crate) fn flag(&self) -> Option<(&'static str, &FlagForm)> {
        self.form.as_ref().map(|form| (self.flag.trim_start_matches('-'), form))
    }

    /// Puts the values of the flag into `settings`.
    ///
    /// # Errors
    /// A value is invalid.
    pub(crate) fn apply_flag(&self, settings: &mut RunSettings, values: &[String]) -> Result<(), BadValue> {
        let is_list = self.form.as_ref().is_some_and(|form| form.is_repeated);
        let value = ConfigValue::of_flag(values, is_list);
        self.read(settings, value).map_err(|wrong| BadValue::new(wrong.problem, wrong.help))
    }

    /// Puts a value into `settings`.
    pub(super) fn read(&self, settings: &mut RunSettings, value: ConfigValue<'_>) -> Result<(), ConfigProblem> {
        match self.reader {
            Reader::Section => Ok(()),
            Reader::Run(read) => read(settings, value),
            Reader::Cache(read) => read(&mut settings.proxy.cache, value),
        }
    }

    /// Returns a description of the accepted values, with the equivalent flag and whether a change needs a restart.
    fn form_shown(&self) -> String {
        let range = if self.range.is_empty() { String::new() } else { format!(" ({})", self.range) };
        let flag = if self.flag.is_empty() { String::new() } else { format!(", flag `{}`", self.flag) };
        let restart = if self.reload == ReloadBehavior::Restart { ", *restart*" } else { "" };
        format!("{}{range}{flag}{restart}", self.kind.shown())
    }

    /// Returns a description of the default.
    fn default_shown(&self) -> String {
        match self.default {
            DefaultValue::Toml(value) => format!("`{value}`"),
            DefaultValue::Prose(words) => words.to_owned(),
            DefaultValue::Required => "required".to_owned(),
        }
    }
}

/// Sections that a file can have several times.
const REPEATED: [&str; 11] = [
    "build_cache",
    "certificate",
    "delay",
    "key",
    "listener",
    "mirror",
    "parents.members",
    "rule",
    "site",
    "site.cache",
    "site.origins",
];

/// Returns the entries from which flags are made.
pub(crate) fn flagged() -> impl Iterator<Item = &'static Setting> {
    rows::settings().filter(|setting| setting.form.is_some())
}

/// Returns the sections in the order of the table, each with its settings.
pub(super) fn sections() -> Vec<(&'static str, Vec<&'static Setting>)> {
    let mut sections: Vec<(&str, Vec<&Setting>)> = Vec::new();
    for setting in rows::settings() {
        let (section, _) = setting.place();
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, settings)) => settings.push(setting),
            None => sections.push((section, vec![setting])),
        }
    }
    sections
}

/// Columns of a comment in a configuration file, without its mark.
const COMMENT_COLUMNS: usize = 98;

/// Returns a configuration file that sets every key to its default, or names the default in a comment. Each key has its
/// meaning, its values and an example above it.
pub(crate) fn default_file() -> String {
    let described = |setting: &Setting| {
        let (_, key) = setting.place();
        let facts = format!("{}; example: {key} = {}", setting.form_shown(), setting.example);
        let lines = wrapped(setting.about, COMMENT_COLUMNS).into_iter().chain([facts]);
        lines.map(|line| format!("# {line}\n")).collect()
    };
    file_with(|_| None, described)
}

/// Returns the settings of a valid configuration with this text: its values, and the defaults of all other keys.
/// Users and passwords in URLs are replaced.
pub(crate) fn effective_file(text: &str) -> String {
    let Ok(table) = DeTable::parse(text) else { return String::new() };
    let top = table.into_inner();
    let given = |setting: &Setting| {
        let (section, key) = setting.place();
        let table = if section.is_empty() { Some(&top) } else { top.get(section).and_then(|value| table_of(value)) };
        table.and_then(|table| table.get(key)).map(|value| written(text, value))
    };
    let mut shown = file_with(given, |_| String::new());
    let constants = top.get("store").and_then(table_of).and_then(|store| store.get("tuning")).and_then(table_of);
    if let Some(constants) = constants {
        shown += "\n[store.tuning]\n";
        shown += &lines(text, constants);
    }
    for (name, value) in &top {
        let DeValue::Array(members) = value.get_ref() else { continue };
        for table in members.iter().filter_map(table_of) {
            write!(shown, "\n[[{}]]\n{}", name.get_ref(), lines(text, table)).expect("a string takes all");
        }
    }
    shown
}

/// Returns all sections that occur at most once. Each key has its value from `given` or its default, below its comment.
fn file_with(given: impl Fn(&Setting) -> Option<String>, comment: impl Fn(&Setting) -> String) -> String {
    let mut file = String::new();
    for (section, settings) in sections().into_iter().filter(|(section, _)| !REPEATED.contains(section)) {
        if !section.is_empty() {
            write!(file, "\n[{section}]\n").expect("a string takes all");
        }
        for setting in settings {
            let (_, key) = setting.place();
            let line = match (given(setting), &setting.default) {
                (Some(value), _) => format!("{key} = {value}"),
                (None, DefaultValue::Toml(value)) => format!("{key} = {value}"),
                (None, _) => format!("# {key}: {}", setting.default_shown()),
            };
            file += &comment(setting);
            file += &line;
            file.push('\n');
        }
    }
    file
}

fn lines(text: &str, table: &DeTable<'_>) -> String {
    table.iter().map(|(key, value)| format!("{} = {}\n", key.get_ref(), written(text, value))).collect()
}

fn table_of<'v, 'a>(value: &'v Spanned<DeValue<'a>>) -> Option<&'v DeTable<'a>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Returns a value as one line of TOML. Users and passwords in URLs are replaced.
fn written(text: &str, value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::Table(table) => {
            let members: Vec<_> =
                table.iter().map(|(key, value)| format!("{} = {}", key.get_ref(), written(text, value))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        DeValue::Array(members) => {
            let members: Vec<_> = members.iter().map(|value| written(text, value)).collect();
            format!("[{}]", members.join(", "))
        }
        DeValue::String(words) => match (words.split_once("://"), words.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => quoted(&format!("{scheme}://user:password@{host}")),
            _ => quoted(words),
        },
        _ => text[value.span()].to_owned(),
    }
}

/// Returns a string as TOML. The escapes of JSON are valid there.
fn quoted(words: &str) -> String {
    serde_json::Value::from(words).to_string()
}

/// Returns the lines of a paragraph, at most `columns` long each.
fn wrapped(words: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let line = lines.last_mut().expect("there is one");
        match line.len() {
            0 => line.push_str(word),
            len if len + 1 + word.len() <= columns => write!(line, " {word}").expect("a string takes all"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{RunSettings, config::read_settings};
    use std::{collections::BTreeSet, env, fs, path::Path};

    /// The path of the page, relative to this crate.
    const PAGE: &str = "../../docs/reference/configuration.md";

    const OPENING: &str = "# Configuration keys

This page lists every key of the configuration file, with the equivalent flag of `larder run`.
[Configuration](../configuration.md) explains how the keys work together. A test keeps this page up to date; after a
change of `crates/larder/src/settings/config/rows.rs`, write it with
`LARDER_WRITE_DOCS=1 cargo test -p larder --lib configuration_reference_is_made_from_the_table`.

`larder config default` prints all defaults. `larder config print larder.toml` prints the settings of a file with the
defaults of all other keys. Constants of policies (`[store.tuning]`, `--tune`) are listed by `larder help tuning`.

Changes take effect with `larder reload`, unless the key is marked *restart*.
";

    /// Returns the lines that a section requires.
    fn required(section: &str) -> &'static str {
        match section {
            "site" | "site.cache" => "hosts = [\"a\"]\norigin = \"http://b\"\n",
            "rule" => "fresh = \"1m\"\n",
            "key" => "urls = [\"http://a/\"]\nstrip = [\"b\"]\n",
            "mirror" => "name = \"pypi\"\n",
            "delay" => "rate = \"1MB\"\n",
            "listener" => "address = \"127.0.0.1:1\"\n",
            "build_cache" => "path = \"/a\"\n",
            "certificate" => "file = \"a\"\nkey = \"b\"\n",
            "parents.members" | "site.origins" => "url = \"http://b\"\n",
            _ => "",
        }
    }

    /// Returns a file with one line in a section, after the lines that the section requires.
    fn file(section: &str, line: &str) -> String {
        let body = required(section);
        match section {
            "" => format!("{line}\n"),
            "site.cache" => format!("[[site]]\n{body}[site.cache]\n{line}\n"),
            "site.origins" => format!("[[site]]\nhosts = [\"a\"]\n[[site.origins]]\n{body}{line}\n"),
            name if REPEATED.contains(&name) => format!("[[{name}]]\n{body}{line}\n"),
            name => format!("[{name}]\n{body}{line}\n"),
        }
    }

    /// Returns the keys of a section, as listed in the error about an unknown key.
    fn known(section: &str) -> BTreeSet<String> {
        let text = file(section, "zzzzzzzz = 1");
        let help = read_settings(&text, &mut RunSettings::default()).remove(0).help;
        let (_, names) = help.split_once("the keys here are ").unwrap_or_else(|| panic!("{section}: {help}"));
        names.split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn every_key_that_is_read_has_a_row_and_every_row_is_read() {
        let sections = sections();
        let names: BTreeSet<&str> = sections.iter().map(|(name, _)| *name).collect();
        for (section, settings) in &sections {
            let rows: BTreeSet<String> = settings.iter().map(|setting| setting.place().1.to_owned()).collect();
            assert_eq!(rows.len(), settings.len(), "a key of [{section}] has two rows");
            let is_section = |key: &str| {
                let name = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
                names.contains(name.as_str()) && !rows.contains(key)
                    || matches!(name.as_str(), "store.tuning" | "site.cache")
            };
            let keys: BTreeSet<String> = known(section).into_iter().filter(|key| !is_section(key)).collect();
            let difference: Vec<_> = keys.symmetric_difference(&rows).collect();
            assert!(difference.is_empty(), "[{section}] and its rows differ: {difference:?}");
        }
        assert_eq!(known("site.cache"), known("cache"), "the rows of [cache] are those of [site.cache]");
    }

    #[test]
    fn every_row_has_an_example_that_is_no_default_and_a_full_description() {
        let everything = include_str!("../../../../../docs/configuration.md");
        for Setting { name, default, example, about, .. } in rows::settings() {
            assert!(about.len() > 10 && about.ends_with('.') || about.ends_with(')'), "{name}: {about}");
            assert!(DeTable::parse(&format!("key = {example}")).is_ok(), "{name}: {example}");
            let is_default = matches!(default, DefaultValue::Toml(value) if value == example);
            assert!(!is_default && everything.contains("## Example"), "{name}: {example}");
        }
    }

    #[test]
    fn default_file_is_accepted_and_changes_nothing() {
        let mut settings = RunSettings::default();
        assert_eq!(read_settings(&default_file(), &mut settings), []);
        assert_eq!(format!("{settings:?}"), format!("{:?}", RunSettings::default()));
    }

    #[test]
    fn effective_file_has_the_values_of_the_file_and_no_password() {
        let text = "parent = \"http://user:hunter2@a:1\"\n[limits]\nidle_timeout = \"1s\"\n[store]\ntuning = { pin_share = 0.1 }\n\
                    [[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\nbalance = \"consistent_hash\"\n[site.cache]\nheuristic_max = \"1h\"\n";
        let shown = effective_file(text);
        for line in [
            "idle_timeout = \"1s\"",
            "stall_timeout = \"180s\"",
            "pin_share = 0.1",
            "balance = \"consistent_hash\"",
            "cache = { heuristic_max = \"1h\" }",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "no {line} in {shown}");
        }
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(read_settings(&shown, &mut RunSettings::default()), []);
    }

    #[test]
    fn configuration_reference_is_made_from_the_table() {
        let mut page = OPENING.to_owned();
        for (section, settings) in sections() {
            let title = match section {
                "" => "Top of the file".to_owned(),
                name if REPEATED.contains(&name) => format!("[[{name}]]"),
                name => format!("[{name}]"),
            };
            write!(page, "\n## {title}\n").unwrap();
            for setting in settings {
                let (_, key) = setting.place();
                write!(page, "\n### `{}`\n\n", setting.name).unwrap();
                for line in wrapped(setting.about, 119) {
                    writeln!(page, "{line}").unwrap();
                }
                let default = setting.default_shown();
                write!(page, "\n- {}\n- default: {default}\n", setting.form_shown()).unwrap();
                writeln!(page, "- example: `{key} = {}`", setting.example).unwrap();
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        if env::var_os("LARDER_WRITE_DOCS").is_some() {
            fs::write(&path, &page).unwrap();
        }
        let is_current = fs::read_to_string(&path).is_ok_and(|text| text == page);
        assert!(is_current, "{PAGE} is not made from the table: write it as its first paragraph says");
    }
}
