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
use larder_proxy::SitePolicy;
use std::fmt::Write;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A key of the configuration file: its type, default, flag, description and reader.
pub(crate) struct Setting {
    /// The section and the key, such as `limits.streams`.
    pub(super) name: &'static str,
    /// The flag of `larder run` for the key. Empty if there is none.
    pub(super) flag: &'static str,
    pub(super) kind: ValueKind,
    /// The accepted values. Empty if the type alone describes them.
    pub(super) range: &'static str,
    pub(super) default: DefaultValue,
    pub(super) reload: ReloadBehavior,
    /// An example of a value in TOML, different from the default.
    pub(super) example: &'static str,
    /// A description of the setting, whose links are relative to docs/reference.
    pub(super) about: &'static str,
    /// The form of the flag. `None` if the flag is not made from this entry.
    pub(super) form: Option<FlagForm>,
    pub(super) reader: Reader,
}

/// The form of a flag on the command line.
pub(crate) struct FlagForm {
    pub(crate) value_name: &'static str,
    /// The heading of the flag in the help. Empty for the first group.
    pub(crate) heading: &'static str,
    pub(crate) help: &'static str,
    /// Whether the flag can be given several times. Its values are then the members of a list.
    pub(crate) is_repeated: bool,
}

/// Creates the form of a flag that can be given once.
pub(super) const fn once(value_name: &'static str, heading: &'static str, help: &'static str) -> FlagForm {
    FlagForm { value_name, heading, help, is_repeated: false }
}

/// Creates the form of a flag that can be given several times.
pub(super) const fn repeated(value_name: &'static str, heading: &'static str, help: &'static str) -> FlagForm {
    FlagForm { value_name, heading, help, is_repeated: true }
}

/// The function that applies a key's value to the settings.
pub(super) enum Reader {
    /// The key is applied by a function for its whole section, because the section's keys depend on each other.
    Section,
    Run(fn(&mut RunSettings, ConfigValue<'_>) -> Result<(), ConfigProblem>),
    /// The key is applied by a function to a policy: the general one, or that of a site, which can have the key in a
    /// section such as `[site.cache]`.
    Site(PolicyReader),
}

/// A function that applies a key's value to a policy.
pub(super) type PolicyReader = fn(&mut SitePolicy, ConfigValue<'_>) -> Result<(), ConfigProblem>;

/// The type of a value, including its unit.
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

/// The default for a key that is absent.
pub(super) enum DefaultValue {
    /// A value, written in TOML.
    Toml(&'static str),
    /// A default that no value can express, described in words.
    Prose(&'static str),
    /// No default, so the section is refused without the key.
    Required,
}

/// The event at which a changed value takes effect.
#[derive(PartialEq)]
pub(super) enum ReloadBehavior {
    /// At `larder reload`, or SIGHUP.
    Reload,
    /// At the next start.
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
    /// Returns the section and the key. The section is empty at the top of the file.
    pub(super) fn place(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }

    /// Returns the flag's name without dashes, and its form. `None` if no flag is made from this entry.
    pub(crate) fn flag(&self) -> Option<(&'static str, &FlagForm)> {
        self.form.as_ref().map(|form| (self.flag.trim_start_matches('-'), form))
    }

    /// Applies the values of the flag to `settings`.
    ///
    /// # Errors
    /// A value is invalid.
    pub(crate) fn apply_flag(&self, settings: &mut RunSettings, values: &[String]) -> Result<(), BadValue> {
        let is_list = self.form.as_ref().is_some_and(|form| form.is_repeated);
        let value = ConfigValue::of_flag(values, is_list);
        self.read(settings, value).map_err(|wrong| BadValue::new(wrong.problem, wrong.help))
    }

    /// Applies a value to `settings`.
    pub(super) fn read(&self, settings: &mut RunSettings, value: ConfigValue<'_>) -> Result<(), ConfigProblem> {
        match self.reader {
            Reader::Section => Ok(()),
            Reader::Run(read) => read(settings, value),
            Reader::Site(read) => read(&mut settings.proxy.policy, value),
        }
    }

    /// Returns the function that applies the key in a site's section. `None` if a site cannot have the key.
    fn reader_of_site(&self) -> Option<PolicyReader> {
        if let Reader::Site(read) = self.reader { Some(read) } else { None }
    }

    /// Returns the accepted values in parentheses. Empty if the type alone describes them.
    fn range_shown(&self) -> String {
        if self.range.is_empty() { String::new() } else { format!(" ({})", self.range) }
    }

    /// Describes the accepted values, the flag, the section of a site that can have the key, and whether a change needs
    /// a restart.
    fn form_shown(&self) -> String {
        let range = self.range_shown();
        let flag = if self.flag.is_empty() { String::new() } else { format!(", flag `{}`", self.flag) };
        let of_site = self.reader_of_site().map(|_| format!(", also in `[site.{}]`", self.place().0));
        let restart = if self.reload == ReloadBehavior::Restart { ", *restart*" } else { "" };
        format!("{}{range}{flag}{}{restart}", self.kind.shown(), of_site.unwrap_or_default())
    }

    /// Describes the default.
    fn default_shown(&self) -> String {
        match self.default {
            DefaultValue::Toml(value) => format!("`{value}`"),
            DefaultValue::Prose(words) => words.to_owned(),
            DefaultValue::Required => "required".to_owned(),
        }
    }
}

/// The sections that a file can contain several times.
const REPEATED: [&str; 10] = [
    "build_cache",
    "certificate",
    "key",
    "listener",
    "mirror",
    "parents.members",
    "rate_limit",
    "rule",
    "site",
    "site.origins",
];

/// Returns the entries from which flags are made.
pub(crate) fn flagged() -> impl Iterator<Item = &'static Setting> {
    rows::settings().filter(|setting| setting.form.is_some())
}

/// Returns all sections in the order of the table, each with its entries.
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

/// Returns the sections that can be inside a `[[site]]`, each with its keys and the functions that apply them.
pub(super) fn sections_of_sites() -> impl Iterator<Item = (&'static str, Vec<(&'static str, PolicyReader)>)> {
    let readers = |rows: Vec<&'static Setting>| {
        rows.into_iter().filter_map(|row| Some((row.place().1, row.reader_of_site()?))).collect::<Vec<_>>()
    };
    sections().into_iter().map(move |(name, rows)| (name, readers(rows))).filter(|(_, keys)| !keys.is_empty())
}

/// Returns the place where a key belongs that `section` does not accept. `section` is a `[[site]]` or inside one.
///
/// Returns `None` if no section has such a key.
pub(super) fn place_beyond_site(section: &str, key: &str) -> Option<String> {
    let part = section.trim_matches(['[', ']']).strip_prefix("site")?;
    let part = part.strip_prefix('.').unwrap_or(part);
    if part.is_empty() && sections().iter().any(|(name, _)| *name == key) {
        return Some(format!("{} applies to the whole proxy: write it outside of [[site]]", heading(key)));
    }
    let rank =
        |row: &&Setting| (row.place().0 != part, row.reader_of_site().is_none(), REPEATED.contains(&row.place().0));
    let rows = rows::settings().filter(|row| row.place().1 == key && !row.name.starts_with("site."));
    let row = rows.min_by_key(rank)?;
    Some(match (row.reader_of_site(), row.place().0) {
        (Some(_), section) => format!("write it in [site.{section}]"),
        (None, "") => "it applies to the whole proxy: write it at the top of the file".to_owned(),
        (None, section) => format!("it is not a site's own: write it in {}", heading(section)),
    })
}

/// Returns the heading of a section, as it is written in a file.
fn heading(section: &str) -> String {
    if REPEATED.contains(&section) { format!("[[{section}]]") } else { format!("[{section}]") }
}

/// Returns an example of a key and the values that it accepts, such as `workers = 2 (1 to 1024)`.
///
/// Empty for a key without an entry.
pub(super) fn example(name: &str) -> String {
    let find = |name: &str| rows::settings().find(|setting| setting.name == name);
    let of_site = || find(name.strip_prefix("site.")?).filter(|setting| setting.reader_of_site().is_some());
    let Some(setting) = find(name).or_else(of_site) else { return String::new() };
    let (_, key) = setting.place();
    format!("{key} = {}{}", setting.example, setting.range_shown())
}

/// Maximum length of a comment's line in a generated file, without its `#`.
const COMMENT_COLUMNS: usize = 98;

/// The mark before a key that is commented out. An ordinary comment begins with this mark and a space.
const COMMENTED_OUT: &str = "#";

/// Returns a configuration file that sets every key to its default. Above each key, a comment has the description and
/// the accepted values.
///
/// A key whose default is not a value has an example instead. It is commented out, and can be uncommented by itself.
pub(crate) fn default_file() -> String {
    let described = |setting: &Setting| {
        let (_, key) = setting.place();
        let facts = match setting.default {
            DefaultValue::Toml(_) => format!("{}; example: {key} = {}", setting.form_shown(), setting.example),
            _ => format!("{}; default: {}", setting.form_shown(), setting.default_shown()),
        };
        let lines = wrapped(setting.about, COMMENT_COLUMNS).into_iter().chain([facts]);
        lines.map(|line| format!("# {line}\n")).collect()
    };
    file_with(|_| None, described, |setting| format!("{COMMENTED_OUT}{} = {}", setting.place().1, setting.example))
}

/// Returns the settings of a valid configuration: the values in `text`, and the defaults of all other keys.
///
/// Users and passwords in URLs are replaced.
pub(crate) fn effective_file(text: &str) -> String {
    let Ok(table) = DeTable::parse(text) else { return String::new() };
    let top = table.into_inner();
    let given = |setting: &Setting| {
        let (section, key) = setting.place();
        let table = if section.is_empty() { Some(&top) } else { top.get(section).and_then(|value| table_of(value)) };
        table.and_then(|table| table.get(key)).map(|value| written(text, value))
    };
    let described = |setting: &Setting| format!("# {}: {}", setting.place().1, setting.default_shown());
    let mut shown = file_with(given, |_| String::new(), described);
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

/// Returns a file with all sections that occur at most once. Above each key is its `comment`.
///
/// A key has the value from `given`, or else its default. A key with neither has the line that `without_value` returns.
fn file_with(
    given: impl Fn(&Setting) -> Option<String>,
    comment: impl Fn(&Setting) -> String,
    without_value: impl Fn(&Setting) -> String,
) -> String {
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
                (None, _) => without_value(setting),
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

/// Returns a value as one line of TOML, with users and passwords in URLs replaced.
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

/// Returns a string literal of TOML. JSON's escapes are valid there.
fn quoted(words: &str) -> String {
    serde_json::Value::from(words).to_string()
}

/// Wraps a paragraph into lines of at most `columns` characters.
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

    /// The beginning of the generated part of the page. The topics above it are edited by hand.
    const OPENING: &str = "## All keys

Each key has its type, the flag of `larder run` that overrides it, its default and an example. A test keeps this part of
the page up to date; after a change of `crates/larder/src/settings/config/rows.rs`, write it with
`LARDER_WRITE_DOCS=1 cargo test -p larder --lib configuration_reference_is_made_from_the_table`.

`larder config default` prints all defaults. `larder config print larder.toml` prints the settings of a file with the
defaults of all other keys. Constants of policies (`[store.tuning]`, `--tune`) are listed by `larder help tuning`.

Changes take effect with `larder reload`, unless the key is marked *restart*. A key that is marked with a section such
as `[site.limits]` can be set for one [site](#sites), too: there it overrides the general value.
";

    /// Returns the additional lines that a section with this key must have.
    fn required(name: &str) -> &'static [&'static str] {
        match name {
            "preserve_host" | "proxy_protocol" => &["origin = \"http://b\""],
            "site.listeners" => &["cache = { heuristic_max = \"1h\" }"],
            "rule.store" => &["vary = [\"a\"]"],
            "mirror.registries" => &["name = \"oci\""],
            "mirror.path" | "mirror.immutable" | "mirror.fresh" | "mirror.follow_redirects" | "mirror.documents" => {
                &["path = \"/a\"", "origin = \"http://b\""]
            }
            _ => match name.rsplit_once('.').map_or("", |(section, _)| section) {
                "site" => &["hosts = [\"a\"]", "origin = \"http://b\""],
                "rule" => &["fresh = \"1m\""],
                "key" => &["urls = [\"http://a/\"]", "strip = [\"b\"]"],
                "mirror" => &["name = \"pypi\""],
                "rate_limit" => &["rate = \"1MB\"", "clients = [\"10.0.0.0/8\"]"],
                "listener" => &["address = \"127.0.0.1:1\""],
                "build_cache" => &["path = \"/a\""],
                "certificate" => &["file = \"a\"", "key = \"b\""],
                "parents.members" | "site.origins" => &["url = \"http://b\""],
                _ => &[],
            },
        }
    }

    /// Returns a file with `line`, which may be empty, in the section of the key `name`, and with the other lines that
    /// the key requires.
    fn file(name: &str, line: &str) -> String {
        let (section, key) = name.rsplit_once('.').unwrap_or(("", name));
        let others = required(name).iter().filter(|other| !other.starts_with(&format!("{key} =")));
        let body = others.map(|other| format!("{other}\n")).collect::<String>();
        let of_site = section.strip_prefix("site.").filter(|part| sections_of_sites().any(|(name, _)| name == *part));
        match section {
            "" => format!("{body}{line}\n"),
            _ if of_site.is_some() => format!("[[site]]\nhosts = [\"a\"]\n[{section}]\n{line}\n"),
            "site.origins" => format!("[[site]]\nhosts = [\"a\"]\n[[site.origins]]\n{body}{line}\n"),
            name if REPEATED.contains(&name) => format!("[[{name}]]\n{body}{line}\n"),
            name => format!("[{name}]\n{body}{line}\n"),
        }
    }

    /// Returns the problems of a file with `key = value` for the key of this name, and the settings that result from
    /// it.
    fn outcome(name: &str, value: &str) -> (Vec<String>, String) {
        let key = name.rsplit_once('.').map_or(name, |(_, key)| key);
        let mut settings = RunSettings::default();
        let problems = read_settings(&file(name, &format!("{key} = {value}")), &mut settings);
        let problems = problems.into_iter().map(|problem| format!("{}; {}", problem.problem, problem.help));
        let contradiction = settings.check().err().map(|failure| failure.to_string());
        let shown = format!("{settings:?}, {contradiction:?}");
        (problems.collect(), shown)
    }

    /// Returns the keys of a section, as listed in the error about an unknown key.
    fn known(section: &str) -> BTreeSet<String> {
        let name = if section.is_empty() { "zzzzzzzz".to_owned() } else { format!("{section}.zzzzzzzz") };
        let text = file(&name, "zzzzzzzz = 1");
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
                    || name == "store.tuning"
                    || *section == "site" && sections_of_sites().any(|(part, _)| part == key)
            };
            let keys: BTreeSet<String> = known(section).into_iter().filter(|key| !is_section(key)).collect();
            let difference: Vec<_> = keys.symmetric_difference(&rows).collect();
            assert!(difference.is_empty(), "[{section}] and its rows differ: {difference:?}");
        }
        for (section, keys) in sections_of_sites() {
            let keys: BTreeSet<String> = keys.into_iter().map(|(key, _)| key.to_owned()).collect();
            assert_eq!(known(&format!("site.{section}")), keys);
        }
    }

    /// Guards against a key that sites may override, but whose override has no effect, or also changes other sites.
    #[test]
    fn every_key_of_a_site_does_to_its_policy_what_the_general_key_does_to_all() {
        let read = |text: &str| {
            let mut settings = RunSettings::default();
            assert_eq!(read_settings(text, &mut settings), [], "{text}");
            settings.proxy
        };
        let usual = SitePolicy::default();
        let mut count = 0;
        for (section, keys) in sections_of_sites() {
            for (key, _) in keys {
                let name = format!("{section}.{key}");
                let row = rows::settings().find(|row| row.name == name).unwrap();
                let line = format!("{key} = {}", row.example);
                let general = read(&file(&name, &line)).policy;
                assert!(general != usual, "{name}: the example is the default");
                let mut of_site = read(&file(&format!("site.{name}"), &line));
                assert!(of_site.policy == usual, "{name} of a site changes the general policy");
                assert!(
                    of_site.sites.remove(0).policy == Some(general),
                    "{name} of a site differs from the general one"
                );
                // Flags are applied after sites were merged.
                assert!(row.flag.is_empty(), "{name} has a flag, which would not reach the sites");
                count += 1;
            }
        }
        assert!(count >= 24, "{count}");
    }

    /// Guards against a user who writes a key of the whole proxy into a site, and does not learn where it belongs.
    #[test]
    fn key_that_is_not_a_sites_is_refused_and_its_place_is_named() {
        let proxy_wide =
            rows::settings().filter(|row| row.reader_of_site().is_none() && !row.name.starts_with("site."));
        for row in proxy_wide {
            let (section, key) = row.place();
            if !sections_of_sites().any(|(part, _)| part == section) {
                continue;
            }
            let text = file(&format!("site.{}", row.name), &format!("{key} = {}", row.example));
            let [found] = &read_settings(&text, &mut RunSettings::default())[..] else { panic!("{text}") };
            assert_eq!(found.problem, format!("unknown key `{key}`"));
            assert_eq!(found.help, format!("it is not a site's own: write it in [{section}]"), "{text}");
        }
        for (line, help) in [
            ("origin_connect_timeout = \"1s\"", "write it in [site.limits]"),
            ("workers = 2", "it applies to the whole proxy: write it at the top of the file"),
            ("rate = \"1MB\"", "it is not a site's own: write it in [[rate_limit]]"),
            ("[site.store]\nsize = \"1GB\"", "[store] applies to the whole proxy: write it outside of [[site]]"),
            ("[site.limits]\ncompress = [\"gzip\"]", "write it in [site.cache]"),
            ("[site.limits]\nstall_timeot = \"1s\"", "did you mean `stall_timeout`?"),
        ] {
            let text = format!("[[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\n{line}\n");
            let found = read_settings(&text, &mut RunSettings::default());
            assert_eq!(found.iter().map(|found| found.help.as_str()).collect::<Vec<_>>(), [help], "{text}");
        }
    }

    #[test]
    fn every_row_has_an_example_that_is_no_default_and_a_full_description() {
        for Setting { name, default, example, about, .. } in rows::settings() {
            assert!(about.len() > 10 && about.ends_with('.') || about.ends_with(')'), "{name}: {about}");
            let is_default = matches!(default, DefaultValue::Toml(value) if value == example);
            assert!(!is_default, "{name}: {example}");
        }
    }

    /// Guards against a documented value that the program refuses, or a documented default that is not the program's.
    #[test]
    fn every_documented_default_and_example_is_accepted_and_the_default_changes_nothing() {
        for Setting { name, default, example, form, .. } in rows::settings() {
            assert_eq!(outcome(name, example).0, <[String; 0]>::default(), "{name} = {example}");
            let DefaultValue::Toml(value) = *default else { continue };
            let mut without = RunSettings::default();
            assert_eq!(read_settings(&file(name, ""), &mut without), [], "{name}");
            let without = format!("{without:?}, {:?}", without.check().err().map(|failure| failure.to_string()));
            assert_eq!(outcome(name, value), (Vec::new(), without), "{name} = {value}");
            if let Some(form) = form {
                let told = format!("[default: {}]", value.trim_matches('"'));
                assert!(form.help.ends_with(&told), "{name}: {}", form.help);
            }
        }
    }

    /// Guards against a page that says "string or list" for a key that takes only one of them.
    #[test]
    fn every_type_is_what_the_reader_takes() {
        for Setting { name, kind, example, range, .. } in rows::settings() {
            let text = format!("key = {example}");
            let table = DeTable::parse(&text).unwrap();
            let value = &table.get_ref()["key"];
            if let ValueKind::List = kind {
                let one = value.get_ref().as_array().map_or(&text[value.span()], |members| &text[members[0].span()]);
                let alone = outcome(name, one);
                assert_eq!(alone.0, <[String; 0]>::default(), "{name} = {one}");
                assert_eq!(alone, outcome(name, &format!("[{one}]")), "{name} = {one}");
            }
            let wrong = match kind {
                ValueKind::Boolean => "3",
                _ if range.starts_with("true") => "{}",
                _ => "true",
            };
            let (problems, _) = outcome(name, wrong);
            let help = format!("such as {}", example_of(name, example));
            assert!(problems.len() == 1 && problems[0].contains(&help), "{name} = {wrong}: {problems:?}");
        }
    }

    fn example_of(name: &str, example: &str) -> String {
        format!("{} = {example}", name.rsplit_once('.').map_or(name, |(_, key)| key))
    }

    /// Guards against a documented range that the program does not enforce.
    #[test]
    fn every_documented_range_is_the_readers() {
        for Setting { name, kind, range, example, .. } in rows::settings().filter(|setting| !setting.range.is_empty()) {
            let written = |value: &str| match kind {
                ValueKind::Count | ValueKind::Share => value.to_owned(),
                _ => quoted(value),
            };
            let is_taken = |value: &str| {
                let (problems, settings) = outcome(name, &written(value));
                let (_, usual) = outcome(name, example);
                // A contradiction is that of the example too, unless it is about the value.
                let contradiction = |settings: &str| settings.rsplit_once("}, ").map(|(_, last)| last.to_owned());
                let found = contradiction(&settings);
                problems.is_empty() && (found == Some("None".to_owned()) || found == contradiction(&usual))
            };
            let (inside, outside) = bounds(range);
            assert!(!inside.is_empty(), "{name}: {range}");
            for value in inside {
                assert!(is_taken(&value), "{name}: {value} is refused");
            }
            for value in outside {
                assert!(!is_taken(&value), "{name}: {value} is accepted");
            }
        }
    }

    /// Returns values inside and outside a documented range, such as `1 to 1024`, `at least 64KiB` or `auto, on`.
    fn bounds(range: &str) -> (Vec<String>, Vec<String>) {
        let mut inside = Vec::new();
        let mut outside = Vec::new();
        for part in range.split(", ").map(|part| part.trim_start_matches("or ")) {
            let part = part.replace("..", "1s");
            if let Some((least, most)) = part.split_once(" to ") {
                inside.extend([least.to_owned(), most.to_owned()]);
                outside.extend([next_to(least, -1), next_to(most, 1)]);
            } else if let Some(least) = part.strip_prefix("at least ").or_else(|| part.strip_suffix(" or more")) {
                inside.push(least.to_owned());
                outside.push(next_to(least, -1));
            } else if !part.starts_with("a ") {
                inside.push(part);
                outside.push("zzzz".to_owned());
            }
        }
        if range.contains("or a ") {
            // Any further word may be such a value.
            outside.retain(|value| value != "zzzz");
        }
        (inside, outside)
    }

    /// Returns a value such as `64KiB` with its number increased by `step`.
    fn next_to(value: &str, step: i64) -> String {
        let end = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
        let (number, unit) = value.split_at(end);
        format!("{}{unit}", number.parse::<i64>().unwrap() + step)
    }

    #[test]
    fn default_file_is_accepted_and_changes_nothing() {
        let mut settings = RunSettings::default();
        assert_eq!(read_settings(&default_file(), &mut settings), []);
        assert_eq!(format!("{settings:?}"), format!("{:?}", RunSettings::default()));
    }

    /// Guards against a user who removes the mark before a line of `larder config default`, and gets an error.
    #[test]
    fn every_commented_key_of_the_default_file_can_be_uncommented() {
        let file = default_file();
        let mut count = 0;
        for (start, line) in file.match_indices('\n').map(|(end, _)| (end + 1, file[end + 1..].lines().next())) {
            let Some(line) = line.and_then(|line| line.strip_prefix(COMMENTED_OUT)) else { continue };
            if line.starts_with(' ') {
                continue;
            }
            let (key, _) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
            // This key has an effect only together with an origin.
            let origin = if key == "preserve_host" { "origin = \"http://b\"\n" } else { "" };
            let text = format!("{origin}{}{}", &file[..start], &file[start + COMMENTED_OUT.len()..]);
            assert_eq!(read_settings(&text, &mut RunSettings::default()), [], "{line}");
            count += 1;
        }
        assert!(count > 50, "{count}");
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
                "" => "Keys at the top of the file".to_owned(),
                name => format!("Keys of `{}`", heading(name)),
            };
            write!(page, "\n### {title}\n").unwrap();
            for setting in settings {
                let (_, key) = setting.place();
                write!(page, "\n#### `{}`\n\n", setting.name).unwrap();
                for line in wrapped(setting.about, 119) {
                    writeln!(page, "{line}").unwrap();
                }
                let default = setting.default_shown();
                write!(page, "\n- {}\n- default: {default}\n", setting.form_shown()).unwrap();
                writeln!(page, "- example: `{key} = {}`", setting.example).unwrap();
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let text = fs::read_to_string(&path).unwrap();
        let heading = OPENING.lines().next().unwrap();
        let topics = &text[..text.find(&format!("\n{heading}\n")).expect("the page has all keys") + 1];
        if env::var_os("LARDER_WRITE_DOCS").is_some() {
            fs::write(&path, format!("{topics}{page}")).unwrap();
        }
        let is_current = fs::read_to_string(&path).is_ok_and(|text| text == format!("{topics}{page}"));
        assert!(is_current, "{PAGE} is not made from the table: write it as its last part says");
    }
}
