//! Reads a `[[rule]]` section of the configuration file, which overrides the caching rules that origins give some
//! responses.
//!
//! Owns: the section's keys. `larder_http::ruling` has their effect. Invariant: an error marks the place of the invalid
//! text.

use super::{
    section::{ConfigProblem, ConfigSection, ConfigValue},
    values::{bytes, duration},
};
use crate::ground::{
    failure::page,
    value::{self, BadValue},
};
use larder_http::{
    Ruling,
    rules::{self, BadRule, MatchTexts, MatchedPart, Rule},
    ruling::{IgnoredParts, RedirectPolicy},
};

/// Reads a `[[rule]]` section. A rule without a name is named after `number`.
pub(super) fn read(section: &mut ConfigSection<'_>, number: usize) -> Result<Rule, ConfigProblem> {
    let name = section.take("name", |value| value.parsed("a name", name));
    let texts = MatchTexts {
        hosts: texts(section, "hosts", MatchedPart::Host),
        paths: texts(section, "paths", MatchedPart::Path),
        methods: texts(section, "methods", MatchedPart::Method),
        statuses: texts(section, "statuses", MatchedPart::Status),
        types: texts(section, "types", MatchedPart::Type),
        cookies: texts(section, "cookies", MatchedPart::Condition),
        fields: texts(section, "fields", MatchedPart::Condition),
        queries: texts(section, "queries", MatchedPart::Condition),
    };
    let mut ruling = Ruling { name: name.unwrap_or_else(|| format!("rule {number}")), ..Ruling::default() };
    ruling.is_never_stored = section.take("store", ConfigValue::boolean) == Some(false);
    ruling.fresh = section.take("fresh", duration);
    section.set("immutable", &mut ruling.immutable, ConfigValue::boolean);
    ruling.stale_while_revalidate = section.take("stale_while_revalidate", duration);
    ruling.stale_if_error = section.take("stale_if_error", duration);
    let mut is_followed = |key, following| {
        if section.take(key, ConfigValue::boolean) == Some(true) {
            ruling.following = following;
        }
    };
    is_followed("follow_redirects", RedirectPolicy::Safe);
    is_followed("follow_to_http", RedirectPolicy::All);
    let fields = section.take("vary", |value| value.each("a field name", value::field_name));
    ruling.varies = fields.unwrap_or_default();
    ruling.size_max = section.take("object_size_max", bytes);
    ruling.finishes_abandoned = section.take("finish_abandoned", ConfigValue::boolean);
    if let Some(authorization) = section.take("authorization", |value| value.parsed("share or check", authorization)) {
        match authorization {
            Authorization::Share => ruling.ignored.authorization = true,
            Authorization::Check => ruling.checks_authorization = true,
        }
    }
    section.set("check_digest", &mut ruling.checks_digest, ConfigValue::boolean);
    section.set("git", &mut ruling.caches_git, ConfigValue::boolean);
    section
        .take("ignore", |value| value.each("a directive to ignore", known_word))
        .unwrap_or_default()
        .iter()
        .try_for_each(|word| ruling.ignored.add(word))
        .expect("each was tried when it was read");
    let says_nothing = Ruling { name: ruling.name.clone(), ..Ruling::default() } == ruling;
    if says_nothing {
        let help = concat!(
            "add a setting to the rule, such as fresh = \"10m\"; all keys are in ",
            page!("reference/configuration.md")
        );
        return Err(section.missing("fresh", help));
    }
    if ruling.is_never_stored && (ruling.fresh.is_some() || ruling.immutable) {
        let help = "remove `store = false`, or the lifetime";
        return Err(
            section.refused(BadValue::new("the rule gives a lifetime to responses that it does not store", help))
        );
    }
    if !texts.types.is_empty() && (ruling.checks_authorization || ruling.checks_digest || ruling.caches_git) {
        let help = "match by hosts and paths, and remove `types`";
        let problem = "a rule with `types` cannot check: the check comes before the response, and its type is not \
                       known yet";
        return Err(section.refused(BadValue::new(problem, help)));
    }
    if ruling.checks_authorization && ruling.ignored.authorization {
        let help = "remove one of the two";
        let problem = "the rule both shares responses to requests with credentials and checks each client";
        return Err(section.refused(BadValue::new(problem, help)));
    }
    Ok(Rule::new(&texts, ruling).expect("each text was tried when it was read"))
}

/// The clients that may get a stored response to a request with credentials.
#[derive(Clone, Copy)]
enum Authorization {
    /// All clients may get it.
    Share,
    /// Only clients whom the origin permits to read it may get it.
    Check,
}

fn authorization(text: &str) -> Result<Authorization, BadValue> {
    match text {
        "share" => Ok(Authorization::Share),
        "check" => Ok(Authorization::Check),
        _ => Err(BadValue::new(
            format!("unknown value for `authorization`: `{text}`"),
            "it can be share, with everybody; or check, with the clients for whom the origin confirms it each time",
        )),
    }
}

/// Reads the texts of `key`, and checks that each is valid for the part of a request that `matched` names.
fn texts(section: &mut ConfigSection<'_>, key: &'static str, matched: MatchedPart) -> Vec<String> {
    let checked = |text: &str| match matched.check(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(BadRule { expected, found }) => {
            Err(BadValue::new(format!("not valid in `{key}`: `{found}`"), format!("it can be {expected}")))
        }
    };
    section.take(key, |value| value.each("a text", checked)).unwrap_or_default()
}

/// Parses the name of a rule or a site.
pub(super) fn name(text: &str) -> Result<String, BadValue> {
    rules::check_name(text).map(|()| text.to_owned()).map_err(|BadRule { expected, found }| {
        BadValue::new(format!("not a name: `{found}`"), format!("a name is {expected}"))
    })
}

fn known_word(word: &str) -> Result<String, BadValue> {
    IgnoredParts::default().add(word).map(|()| word.to_owned()).map_err(|_| {
        let help = format!("it can be {}", IgnoredParts::WORDS.join(", "));
        BadValue::new(format!("unknown value for `ignore`: `{word}`"), help)
    })
}
