//! Reads one section of the configuration file.
//!
//! Owns: taking keys from the section, and reporting unknown keys with the nearest known key. A key counts as known
//! once it has been taken. Invariant: a section without problems has no key that was not taken.
//!
//! Reading continues after a problem, so that one run shows all problems. A key with an invalid value counts as absent.
//! Problems of the section as a whole are then dropped, because they may be consequences, such as a missing key.

use super::table;
use crate::ground::{
    failure::page,
    value::{self, BadValue},
};
use std::{mem, ops::Range};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

/// A fault in the configuration file, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfigProblem {
    pub(super) span: Range<usize>,
    pub(super) problem: String,
    pub(super) label: String,
    pub(super) help: String,
    /// Problems of other members of the same list.
    pub(super) more: Vec<ConfigProblem>,
}

impl ConfigProblem {
    /// Returns the problem of a key at `span` that has no effect without the key `other`.
    pub(super) fn alone(span: Range<usize>, key: &str, other: &str, help: &str) -> Self {
        Self {
            span,
            problem: format!("`{key}` has no effect without `{other}`"),
            label: format!("there is no `{other}`"),
            help: help.to_owned(),
            more: Vec::new(),
        }
    }
}

/// A section of the configuration file while it is being read.
pub(super) struct ConfigSection<'a> {
    /// The name of the section as in the file, such as `[store]`. Empty at the top of the file.
    name: String,
    span: Range<usize>,
    left: Vec<(Spanned<DeString<'a>>, Spanned<DeValue<'a>>)>,
    known: Vec<&'static str>,
    /// The problems found so far, including those of sections inside this one.
    problems: Vec<ConfigProblem>,
}

/// A value in the configuration file, and its place.
pub(super) struct ConfigValue<'a> {
    value: Spanned<DeValue<'a>>,
    /// An example of the key with a value, and the words that it accepts, for errors about the type. May be empty.
    example: String,
}

impl<'a> ConfigSection<'a> {
    /// Parses a configuration file. Returns the top section.
    pub(super) fn parse(text: &'a str) -> Result<Self, ConfigProblem> {
        match DeTable::parse(text) {
            Ok(table) => {
                let span = table.span();
                Ok(Self::new(String::new(), span, table.into_inner()))
            }
            Err(error) => Err(ConfigProblem {
                span: error.span().unwrap_or(0..0),
                problem: "the file is not valid TOML".to_owned(),
                label: error.message().lines().collect::<Vec<_>>().join(", "),
                help: concat!(
                    "see ",
                    page!("reference/configuration.md"),
                    " for an example, and https://toml.io for the syntax"
                )
                .to_owned(),
                more: Vec::new(),
            }),
        }
    }

    fn new(name: String, span: Range<usize>, table: DeTable<'a>) -> Self {
        Self { name, span, left: table.into_iter().collect(), known: Vec::new(), problems: Vec::new() }
    }

    /// Takes `key` and reads its value with `read`. Returns `None` if the key is absent or its value is invalid.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(ConfigValue<'a>) -> Result<T, ConfigProblem>,
    ) -> Option<T> {
        self.known.push(key);
        let position = self.left.iter().position(|(name, _)| name.get_ref() == key)?;
        let (_, value) = self.left.swap_remove(position);
        let example = table::example(&self.name_of(key));
        read(ConfigValue { value, example }).map_err(|problem| self.report(problem)).ok()
    }

    /// Returns the full name of a key or section in this section, such as `site.cache`.
    fn name_of(&self, key: &str) -> String {
        let section = self.name.trim_matches(['[', ']']);
        if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
    }

    /// Adds a problem to the problems of this section.
    pub(super) fn report(&mut self, mut problem: ConfigProblem) {
        let more = mem::take(&mut problem.more);
        self.problems.push(problem);
        self.problems.extend(more);
    }

    /// Returns whether any problem was found in the section.
    pub(super) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Takes `key` and stores the value that `read` returns in `target`.
    ///
    /// If the key is absent or its value is invalid, `target` does not change.
    pub(super) fn set<T>(
        &mut self,
        key: &'static str,
        target: &mut T,
        read: impl FnOnce(ConfigValue<'a>) -> Result<T, ConfigProblem>,
    ) {
        if let Some(value) = self.take(key, read) {
            *target = value;
        }
    }

    /// Takes the section `[key]` and reads it with `read`. Does nothing if the section is absent.
    pub(super) fn table(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut ConfigSection<'a>) -> Result<(), ConfigProblem>,
    ) {
        let name = format!("[{}]", self.name_of(key));
        let section = self.take(key, |value| value.section(name));
        section.and_then(|section| section.read(read, &mut self.problems));
    }

    /// Takes every section `[[key]]` and reads each with `read`. Returns the results of the valid ones.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut ConfigSection<'a>) -> Result<T, ConfigProblem>,
    ) -> Vec<T> {
        let name = format!("[[{}]]", self.name_of(key));
        let section = |value: ConfigValue<'a>| value.section(name.clone());
        let sections = self.take(key, |value| value.list(&format!("tables headed {name}"), section));
        let read = |section: Self| section.read(&mut read, &mut self.problems);
        sections.unwrap_or_default().into_iter().filter_map(read).collect()
    }

    /// Takes sections like [`Self::tables`]. `read` also receives the number of each section, counted from 1.
    pub(super) fn numbered_tables<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&mut ConfigSection<'a>, usize) -> Result<T, ConfigProblem>,
    ) -> Vec<T> {
        let mut number = 0;
        self.tables(key, |section| {
            number += 1;
            read(section, number)
        })
    }

    /// Returns the problem of a missing key.
    pub(super) fn missing(&self, key: &str, help: &str) -> ConfigProblem {
        ConfigProblem {
            span: self.span.clone(),
            problem: format!("{} has no `{key}`", self.name),
            label: format!("`{key}` is missing here"),
            help: help.to_owned(),
            more: Vec::new(),
        }
    }

    /// Returns the problem of keys that contradict each other.
    pub(super) fn refused(&self, bad: BadValue) -> ConfigProblem {
        refused(self.span.clone(), bad)
    }

    /// Reads the section with `read`, and adds its problems to `problems`.
    fn read<T>(
        mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ConfigProblem>,
        problems: &mut Vec<ConfigProblem>,
    ) -> Option<T> {
        let result = match read(&mut self) {
            Ok(result) => {
                self.report_unknown_keys();
                Some(result)
            }
            // `read` stopped at a problem, so the keys that it would have taken are unknown and must not be reported.
            Err(problem) => {
                if !self.has_problems() {
                    self.report(problem);
                }
                None
            }
        };
        problems.extend(self.problems);
        result
    }

    /// Returns all problems of the file, in the order of their places. Call it on the top section when all keys were
    /// taken.
    pub(super) fn finish(mut self) -> Vec<ConfigProblem> {
        self.report_unknown_keys();
        self.problems.sort_by_key(|problem| problem.span.start);
        self.problems
    }

    fn report_unknown_keys(&mut self) {
        let place = if self.name.is_empty() { "the top of the file" } else { &self.name };
        let unknown = self.left.drain(..).map(|(key, _)| {
            let name = key.get_ref();
            ConfigProblem {
                span: key.span(),
                problem: format!("unknown key `{name}`"),
                label: format!("not a key of {place}"),
                help: match (help_elsewhere(&self.name, name), value::nearest(name, self.known.iter().copied())) {
                    (Some(help), _) => help,
                    (None, Some(known)) => format!("did you mean `{known}`?"),
                    (None, None) => format!("the keys here are {}", self.known.join(", ")),
                },
                more: Vec::new(),
            }
        });
        self.problems.extend(unknown);
    }
}

impl<'a> ConfigValue<'a> {
    /// Creates the value of a flag: the list of all given values if `is_list` is true, otherwise the last given value.
    pub(super) fn of_flag(values: &'a [String], is_list: bool) -> Self {
        let string = |value: &'a String| Spanned::new(0..0, DeValue::String(value.as_str().into()));
        let value = match values {
            [.., last] if !is_list => string(last),
            all => Spanned::new(0..0, DeValue::Array(all.iter().map(string).collect())),
        };
        Self { value, example: String::new() }
    }

    /// Returns the place of the value in the file.
    pub(super) fn span(&self) -> Range<usize> {
        self.value.span()
    }

    /// Reads a string with `parse`. For a number, `parse` gets its text in the file.
    pub(super) fn parsed<T>(
        self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Result<T, ConfigProblem> {
        let text = match self.value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.unexpected(what)),
        };
        parse(text).map_err(|bad| self.refused(bad))
    }

    /// Reads a list, whose members are read with `read`.
    pub(super) fn list<T>(
        self,
        what: &str,
        read: impl FnMut(Self) -> Result<T, ConfigProblem>,
    ) -> Result<Vec<T>, ConfigProblem> {
        if !self.value.get_ref().is_array() {
            return Err(self.unexpected(what));
        }
        let DeValue::Array(members) = self.value.into_inner() else { unreachable!("it is an array") };
        let mut values = Vec::new();
        let mut wrong = Vec::new();
        let member = |value| Self { value, example: self.example.clone() };
        for outcome in members.into_iter().map(member).map(read) {
            match outcome {
                Ok(value) => values.push(value),
                Err(problem) => wrong.push(problem),
            }
        }
        let mut wrong = wrong.into_iter();
        wrong.next().map_or(Ok(values), |first| Err(ConfigProblem { more: wrong.collect(), ..first }))
    }

    /// Reads one value like [`Self::parsed`], or each member of a list.
    pub(super) fn each<T>(
        self,
        what: &str,
        mut parse: impl FnMut(&str) -> Result<T, BadValue>,
    ) -> Result<Vec<T>, ConfigProblem> {
        if self.value.get_ref().is_array() {
            return self.list(what, |member| member.parsed(what, &mut parse));
        }
        self.parsed(what, parse).map(|one| vec![one])
    }

    /// Reads a value like [`Self::parsed`], and also accepts a boolean.
    pub(super) fn parsed_or_boolean<T>(
        self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Result<T, ConfigProblem> {
        match self.value.get_ref().as_bool() {
            Some(is_on) => parse(if is_on { "true" } else { "false" }).map_err(|bad| self.refused(bad)),
            None => self.parsed(what, parse),
        }
    }

    /// Reads `true` or `false`.
    pub(super) fn boolean(self) -> Result<bool, ConfigProblem> {
        self.value.get_ref().as_bool().ok_or_else(|| self.unexpected("true or false"))
    }

    fn section(self, name: String) -> Result<ConfigSection<'a>, ConfigProblem> {
        let span = self.value.span();
        if !self.value.get_ref().is_table() {
            return Err(self.unexpected(&format!("a table headed {name}")));
        }
        let DeValue::Table(table) = self.value.into_inner() else { unreachable!("it is a table") };
        Ok(ConfigSection::new(name, span, table))
    }

    fn unexpected(&self, what: &str) -> ConfigProblem {
        let found = self.value.get_ref().type_str();
        ConfigProblem {
            span: self.value.span(),
            problem: format!("expected {what}, found: {found}"),
            label: format!("this is of type {found}"),
            help: if self.example.is_empty() {
                format!("write {what} here")
            } else {
                format!("write {what} here, such as {}", self.example)
            },
            more: Vec::new(),
        }
    }

    fn refused(&self, bad: BadValue) -> ConfigProblem {
        refused(self.value.span(), bad)
    }
}

/// Returns the section where a misplaced key belongs, or the key to write instead. `None` if nothing is known.
fn help_elsewhere(section: &str, key: &str) -> Option<String> {
    key_for_peer(section, key).map(str::to_owned).or_else(|| table::place_beyond_site(section, key))
}

/// Returns advice for a key that other proxies, or earlier versions, have at the top of their files.
fn key_for_peer(section: &str, key: &str) -> Option<&'static str> {
    match (section, key) {
        ("", "port" | "http_port") => Some("write `listen`, such as listen = [\"127.0.0.1:3128\"]"),
        ("", "upstream" | "proxy_pass") => Some(
            "for one server, write `origin`, such as origin = \"http://127.0.0.1:9000\"; for several, write a [[site]] \
             with `hosts` and `origin` for each",
        ),
        ("", "delay") => Some("it is now called [[rate_limit]], with the same keys"),
        _ => None,
    }
}

fn refused(span: Range<usize>, bad: BadValue) -> ConfigProblem {
    ConfigProblem { span, problem: bad.problem, label: "refused".to_owned(), help: bad.help, more: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, problem: &str, at: &str, help: &str) {
        let mut top = ConfigSection::parse(text).unwrap_or_else(|_| panic!("{text}"));
        top.take("listen", |value| value.list("a list", |value| value.parsed("text", |t| Ok(t.to_owned()))));
        top.table("store", |store| {
            store.take("size", |value| value.parsed("a size", crate::ground::size::parse));
            store.take("sync", ConfigValue::boolean);
            Ok(())
        });
        top.tables("site", |site| match site.take("origin", |value| value.parsed("a URL", |t| Ok(t.len()))) {
            Some(_) => Ok(()),
            None => Err(site.missing("origin", "say where")),
        });
        let [found] = &top.finish()[..] else { panic!("{text}: one problem is expected") };
        assert_eq!(found.problem, problem, "{text}");
        assert_eq!(&text[found.span.clone()], at, "{text}");
        assert!(found.help.contains(help), "{text}: {}", found.help);
    }

    #[test]
    fn an_unknown_key_is_pointed_at_and_the_nearest_is_named() {
        check("[store]\nsise = 1", "unknown key `sise`", "sise", "did you mean `size`?");
        check("[stores]\nsize = 1", "unknown key `stores`", "stores", "did you mean `store`?");
        check("[store]\nquux = 1", "unknown key `quux`", "quux", "the keys here are size, sync");
        check("[[site]]\norigin = \"a\"\nhots = 1", "unknown key `hots`", "hots", "the keys here are origin");
    }

    #[test]
    fn a_bad_value_is_pointed_at() {
        let size = "a size is a number and a unit";
        check("[store]\nsize = \"1XB\"", "unknown unit in size: `1XB`", "\"1XB\"", size);
        check("[store]\nsize = [1]", "expected a size, found: array", "[1]", "write a size here");
        check("[store]\nsync = 1", "expected true or false, found: integer", "1", "write true or false here");
        check("listen = [1, true]", "expected text, found: boolean", "true", "write text here");
        check("store = 1", "expected a table headed [store], found: integer", "1", "write a table");
        check("[site]", "expected tables headed [[site]], found: table", "[site]", "[[site]]");
    }

    /// Guards against a user who is told the type that is expected, and has to look up how it is written.
    #[test]
    fn wrong_type_is_answered_with_an_example() {
        let listen = "write text here, such as listen = [\"127.0.0.1:3128\", \"[::1]:3128\"]";
        check("listen = [1, true]", "expected text, found: boolean", "true", listen);
        check("[store]\nsize = true", "expected a size, found: boolean", "true", "such as size = [\"100GB\", \"2TB\"]");
    }

    #[test]
    fn keys_of_other_proxies_are_answered_with_the_keys_here() {
        for (key, help) in [
            ("port", "write `listen`"),
            ("http_port", "write `listen`"),
            ("upstream", "write `origin`"),
            ("proxy_pass", "write `origin`"),
            ("delay", "[[rate_limit]]"),
        ] {
            check(&format!("{key} = 1"), &format!("unknown key `{key}`"), key, help);
        }
        check("[store]\nport = 1", "unknown key `port`", "port", "the keys here are size, sync");
    }

    #[test]
    fn a_missing_key_is_pointed_at() {
        check("[[site]]\n", "[[site]] has no `origin`", "[[site]]", "say where");
    }

    #[test]
    fn broken_syntax_is_pointed_at() {
        let found = ConfigSection::parse("[store\nsize = 1").err().expect("broken");
        assert_eq!((found.problem.as_str(), found.span.start), ("the file is not valid TOML", 6));
        assert!(!found.label.is_empty() && !found.label.contains('\n'));
    }
}
