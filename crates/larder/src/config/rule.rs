//! `[[rule]]` in the configuration file: what is said of some responses in place of their origins.
//!
//! Owns: its keys. Does not: know what a rule does (see `larder_http::ruling`). Invariant: each wrong text is pointed at where
//! it stands.

use super::{
    duration, each,
    section::{Problem, Section, Value},
};
use crate::value::BadValue;
use larder_http::{
    Ruling,
    rules::{BadRule, MatchTexts, Rule},
    ruling::{Ignored, Storing},
};

/// Reads one; `number` names it if it has no name.
pub(super) fn read(section: &mut Section<'_>, number: usize) -> Result<Rule, Problem> {
    let name = section.take("name", |value| value.parsed("a name", name))?;
    let texts = MatchTexts {
        hosts: texts(section, "hosts", |text| MatchTexts { hosts: vec![text], ..MatchTexts::default() })?,
        paths: texts(section, "paths", |text| MatchTexts { paths: vec![text], ..MatchTexts::default() })?,
        methods: texts(section, "methods", |text| MatchTexts { methods: vec![text], ..MatchTexts::default() })?,
        statuses: texts(section, "statuses", |text| MatchTexts { statuses: vec![text], ..MatchTexts::default() })?,
        types: texts(section, "types", |text| MatchTexts { types: vec![text], ..MatchTexts::default() })?,
    };
    let mut ruling = Ruling { name: name.unwrap_or_else(|| format!("rule {number}")), ..Ruling::default() };
    if section.take("store", Value::boolean)? == Some(false) {
        ruling.is_stored = Storing::Never;
    }
    ruling.fresh = section.take("fresh", duration)?;
    section.set("immutable", &mut ruling.immutable, Value::boolean)?;
    ruling.stale_while_revalidate = section.take("stale_while_revalidate", duration)?;
    ruling.stale_on_error = section.take("stale_on_error", duration)?;
    section
        .take("ignore", |value| each(value, "what is not heeded", |word| ignored(word, &mut ruling.ignored.clone())))?
        .unwrap_or_default()
        .iter()
        .try_for_each(|word| ruling.ignored.add(word))
        .expect("each was tried when it was read");
    let says_nothing = Ruling { name: ruling.name.clone(), ..Ruling::default() } == ruling;
    if says_nothing {
        let help = "say what is different, such as fresh = \"10m\"; see docs/configuration.md for all keys";
        return Err(section.missing("fresh", help));
    }
    if ruling.is_stored == Storing::Never && (ruling.fresh.is_some() || ruling.immutable) {
        let help = "take out `store = false`, or the lifetime";
        return Err(section.refused(BadValue::new("a rule that stores nothing and gives a lifetime", help)));
    }
    Ok(Rule::new(&texts, ruling).expect("each text was tried when it was read"))
}

/// Reads the texts of `key`, each tried in a rule of its own, which `alone` makes of it.
fn texts(
    section: &mut Section<'_>,
    key: &'static str,
    alone: impl Fn(String) -> MatchTexts,
) -> Result<Vec<String>, Problem> {
    let tried = |text: &str| {
        let ruling = Ruling { name: key.to_owned(), ..Ruling::default() };
        let refused = |BadRule { expected, found }| {
            BadValue::new(format!("this names nothing in `{key}`: `{found}`"), format!("it can be {expected}"))
        };
        Rule::new(&alone(text.to_owned()), ruling).map(|_| text.to_owned()).map_err(refused)
    };
    let found = section.take(key, |value| value.one_or_each("a text", tried))?;
    Ok(found.unwrap_or_default())
}

fn name(text: &str) -> Result<String, BadValue> {
    let ruling = Ruling { name: text.to_owned(), ..Ruling::default() };
    match Rule::new(&MatchTexts::default(), ruling) {
        Ok(_) => Ok(text.to_owned()),
        Err(BadRule { expected, found }) => {
            Err(BadValue::new(format!("not a name for a rule: `{found}`"), format!("it is {expected}")))
        }
    }
}

fn ignored(word: &str, all: &mut Ignored) -> Result<String, BadValue> {
    all.add(word).map(|()| word.to_owned()).map_err(|_| {
        let help = format!("it can be {}", Ignored::WORDS.join(", "));
        BadValue::new(format!("nothing that a rule can ignore: `{word}`"), help)
    })
}
