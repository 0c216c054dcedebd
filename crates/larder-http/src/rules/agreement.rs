//! Decides whether the rule that was applied to a stored response applies to another request.
//!
//! A rule's conditions on the request are not part of the key. So a stored response may be a hit only for requests to
//! which the same rule applies. Invariant: a response never answers a request that another rule applies to. Cost: a few
//! comparisons if no rule has conditions; otherwise the search for the request's rule.

use http::header::COOKIE;

use super::{RuledRequest, Rules};
use crate::{Ruling, StoredHead};

/// The relation of a request to the rule under which a response was stored. It decides whether a response that one rule
/// made storable may answer a request to which another rule applies.
///
/// ```
/// # use http::{HeaderMap, Method, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
/// use larder_http::{Rules, rules::{RuleAgreement, RuledRequest}};
///
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let (status, fields) = (StatusCode::OK, HeaderMap::new());
/// # let received = ReceivedHead { status, fields: fields.clone(), request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// # let (method, authority) = (&Method::GET, "a.example");
/// # let request = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// // No rule was applied to `stored`, and none applies to the request.
/// assert_eq!(Rules::agree([&Rules::default()].into_iter(), &request, &stored), RuleAgreement::Same);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAgreement {
    /// The rule that was applied to the stored response applies to this request, too.
    Same,
    /// The rule that was applied to the stored response applies to this request, but without its lifetime, because the
    /// request has a Cookie.
    OwnLifetime,
    /// Another rule applies to this request, and the response to it may replace the stored response.
    Replace,
    /// Another rule applies to this request. The stored response does not answer it, but is kept for other requests.
    Bypass,
}

impl Rules {
    /// Decides whether the rule that was applied to a stored response applies to a request. `all` are the rules in
    /// force, in order of precedence.
    pub fn agree<'a>(
        all: impl Iterator<Item = &'a Self> + Clone,
        request: &RuledRequest<'_>,
        stored: &StoredHead,
    ) -> RuleAgreement {
        let freshness = stored.freshness();
        if freshness.conditions != 0 || all.clone().any(|rules| rules.have_conditions) {
            let ruling = all.clone().find_map(|rules| rules.find(request, stored.status(), stored.fields()));
            let conditions = ruling.map_or(0, |ruling| ruling.conditions);
            if conditions != freshness.conditions || ruling.is_some_and(|ruling| ruling.is_never_stored) {
                let is_in_force =
                    |rules: &Self| rules.all.iter().any(|rule| rule.ruling.conditions == freshness.conditions);
                // The response of a rule that is gone must not stay in the way of others.
                let is_outdated = freshness.conditions != 0 && !all.clone().any(is_in_force);
                let is_kept = ruling.is_some_and(Ruling::gives_lifetime);
                return if is_outdated || is_kept { RuleAgreement::Replace } else { RuleAgreement::Bypass };
            }
        }
        let is_excluded = freshness.excludes_cookies && request.fields.contains_key(COOKIE);
        if is_excluded { RuleAgreement::OwnLifetime } else { RuleAgreement::Same }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

    use super::*;
    use crate::{
        BodyPlace, ReceivedHead, SelectingFields, Timestamp,
        rules::{MatchTexts, Rule},
        targeted::TargetList,
    };

    fn rule(cookies: &[&str], ruling: Ruling) -> Rule {
        let cookies = cookies.iter().map(ToString::to_string).collect();
        Rule::new(&MatchTexts { cookies, ..MatchTexts::default() }, Ruling { name: "a".into(), ..ruling }).unwrap()
    }

    fn lasting() -> Ruling {
        Ruling { fresh: Some(Duration::from_mins(1)), ..Ruling::default() }
    }

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        lines.iter().copied().map(field).collect()
    }

    fn request<'a>(fields: &'a HeaderMap) -> RuledRequest<'a> {
        RuledRequest { method: &Method::GET, scheme: "http", authority: "a", path: "/", fields }
    }

    /// Returns the head that is stored under `rules` for a request with the fields `asked`.
    fn stored(rules: &Rules, asked: &HeaderMap, lines: &[(&'static str, &'static str)]) -> StoredHead {
        let mut fields = fields(lines);
        if let Some(ruling) = rules.find(&request(asked), StatusCode::OK, &fields) {
            ruling.put(&mut fields);
        }
        let now = Timestamp::from_millis(1_000_000);
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
        StoredHead::new(received, BodyPlace::Whole { len: 0 }, SelectingFields::default(), &TargetList::default())
    }

    #[test]
    fn response_answers_only_requests_that_its_rule_applies_to() {
        let none = HeaderMap::new();
        let ann = fields(&[("cookie", "session=ann")]);
        let plain = Rules::new(vec![rule(&[], lasting())]);
        let lax = Rules::new(vec![rule(&[], {
            let mut ruling = lasting();
            ruling.ignored.cookie = true;
            ruling
        })]);
        let visitors = Rules::new(vec![rule(&["!session"], lasting())]);
        let both = Rules::new(vec![rule(&["!session"], lasting()), rule(&["session"], lasting())]);
        let never = Ruling { is_never_stored: true, ..Ruling::default() };
        let kept_out = Rules::new(vec![rule(&["session"], never), rule(&["!other"], lasting())]);
        let nothing = Rules::default();
        for (then, by, now, asked, expected) in [
            (&plain, &none, &plain, &none, RuleAgreement::Same),
            (&plain, &none, &plain, &ann, RuleAgreement::OwnLifetime),
            (&plain, &none, &nothing, &ann, RuleAgreement::OwnLifetime),
            (&plain, &ann, &plain, &none, RuleAgreement::Same),
            (&plain, &ann, &plain, &ann, RuleAgreement::Same),
            (&lax, &none, &lax, &ann, RuleAgreement::Same),
            (&visitors, &none, &visitors, &none, RuleAgreement::Same),
            (&visitors, &none, &visitors, &ann, RuleAgreement::Bypass),
            (&visitors, &ann, &visitors, &none, RuleAgreement::Replace),
            (&visitors, &none, &nothing, &none, RuleAgreement::Replace),
            (&visitors, &none, &plain, &none, RuleAgreement::Replace),
            (&both, &none, &both, &ann, RuleAgreement::Replace),
            (&both, &ann, &both, &ann, RuleAgreement::Same),
            (&kept_out, &none, &kept_out, &ann, RuleAgreement::Bypass),
            (&nothing, &none, &kept_out, &ann, RuleAgreement::Bypass),
            (&nothing, &none, &nothing, &ann, RuleAgreement::Same),
        ] {
            let found = Rules::agree([now].into_iter(), &request(asked), &stored(then, by, &[]));
            assert_eq!(found, expected, "{then:?} {by:?} {now:?} {asked:?}");
        }
    }

    #[test]
    fn own_lifetime_is_that_of_the_origin_and_ends_with_what_the_rule_ignored() {
        let none = HeaderMap::new();
        let settings = crate::Settings::default();
        let lifetime = |ignored: &[&str], control| {
            let mut ruling = lasting();
            ignored.iter().for_each(|word| ruling.ignored.add(word).unwrap());
            let head = stored(&Rules::new(vec![rule(&[], ruling)]), &none, &[("cache-control", control)]);
            Some(head.for_cookies()?.freshness().lifetime_millis(&settings))
        };
        assert_eq!(lifetime(&[], "max-age=5"), Some(5000));
        assert_eq!(lifetime(&[], "no-cache, max-age=5"), Some(5000));
        assert_eq!(lifetime(&["client no-cache"], "x"), Some(0));
        for ignored in ["private", "no-store", "set-cookie"] {
            assert_eq!(lifetime(&[ignored], "max-age=5"), None, "{ignored}");
        }
        let head = stored(&Rules::new(vec![rule(&[], lasting())]), &none, &[("cache-control", "no-cache, max-age=5")]);
        assert!(!head.freshness().no_cache && head.for_cookies().unwrap().freshness().no_cache);
        let purged = head.stale_since(Timestamp::from_millis(1_001_000)).for_cookies().unwrap();
        assert_eq!(purged.freshness().purged_at(), Some(Timestamp::from_millis(1_001_000)));
    }
}
