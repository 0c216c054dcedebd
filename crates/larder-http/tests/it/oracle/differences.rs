//! Clauses that the oracle reads differently, each as a translation of a case for it.
//!
//! Order matters: a later translation may rely on an earlier one. `tests/differences.txt` has the clauses and reasons
//! in the same order.

use http::{HeaderMap, Method};
use larder_http::{Reason, Storability, VaryRule, date::parse_http_date, freshness::Lifetime, storable};

use super::case::{Case, Message, RECEIVED, date, directive_name};

/// One point in which the oracle reads a message otherwise.
pub(super) struct Difference {
    pub(super) name: &'static str,
    pub(super) translate: fn(&mut Case),
    /// A case that the two judge differently, and alike once translated.
    pub(super) example: fn() -> Case,
}

/// Returns the case in the form that the oracle understands.
pub(super) fn translated(case: &Case) -> Case {
    let mut case = case.clone();
    DIFFERENCES.iter().for_each(|difference| (difference.translate)(&mut case));
    case
}

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "set-cookie",
        translate: |case| {
            if case.is_private || case.response.value("set-cookie").is_none() {
                return;
            }
            let is_guessed = matches!(
                case.head(&VaryRule::from_fields(&HeaderMap::new())).freshness().lifetime,
                Lifetime::Heuristic { .. }
            );
            if is_guessed || case.storability() == (Storability::Refuse { reason: Reason::SetCookie }) {
                // A status that neither stores.
                case.status = 206;
            }
            case.response.remove("set-cookie");
        },
        example: || Case::new(&["s-maxage=60"], &[("set-cookie", "a=b")]),
    },
    Difference {
        name: "nothing-to-reuse",
        translate: |case| {
            // A status that neither stores.
            if is_worthless(case) {
                case.status = 206;
            }
        },
        example: || Case::new(&["public"], &[]).asked_by(&["max-stale"], &[]),
    },
    Difference {
        name: "pragma-beside-cache-control",
        translate: |case| {
            if !case.later.directives.is_empty() {
                case.later.remove("pragma");
            }
        },
        example: || Case::new(&["max-age=60"], &[]).asked_by(&["max-age=50"], &[("pragma", "no-cache")]),
    },
    Difference {
        name: "targeted-field",
        translate: translate_targeted,
        example: || Case::new(&["no-store"], &[("cdn-cache-control", "max-age=60")]),
    },
    Difference {
        name: "directive-case",
        translate: |case| {
            let lower = |text: &mut String| {
                let name = directive_name(text);
                if !text.contains(" =") && text.len() >= name.len() {
                    text.replace_range(..name.len(), &name);
                }
            };
            both(case, |message| message.directives.iter_mut().for_each(lower));
        },
        example: || Case::new(&["Max-Age=60"], &[]),
    },
    Difference {
        name: "quoted-strings",
        translate: |case| both(case, |message| message.remove_directive("ext")),
        example: || Case::new(&["max-age=60", "ext=\"a, no-store, max-age=1\""], &[]),
    },
    Difference {
        name: "malformed-lifetime",
        translate: |case| {
            for text in &mut case.response.directives {
                let name = directive_name(text);
                if (name == "max-age" || name == "s-maxage") && seconds(text).is_none() {
                    *text = format!("{name}=0");
                }
            }
        },
        example: || Case::new(&["max-age= 60"], &[]),
    },
    Difference {
        name: "first-of-repeated",
        translate: |case| {
            both(case, |message| {
                let mut seen: Vec<String> = Vec::new();
                message.directives.retain(|text| {
                    let name = directive_name(text);
                    let is_repeated = WITH_NUMBERS.contains(&name.as_str()) && seen.contains(&name);
                    seen.push(name);
                    !is_repeated
                });
            });
        },
        example: || Case::new(&["max-age=1", "max-age=2"], &[]).asked_by(&["max-stale"], &[]),
    },
    Difference {
        name: "large-numbers",
        translate: |case| {
            for text in &mut case.response.directives {
                if seconds(text) == Some(u32::MAX) {
                    *text = format!("{}={}", directive_name(text), u32::MAX);
                }
            }
        },
        example: || Case::new(&["max-age=99999999999999999999999"], &[]),
    },
    Difference {
        name: "named-fields",
        translate: |case| {
            case.response.directives.retain(|text| !(text.starts_with("no-cache=") || text.starts_with("private=")));
        },
        example: || Case::new(&["max-age=60", "no-cache=\"x-a, x-b\""], &[]),
    },
    Difference {
        name: "must-understand",
        translate: |case| {
            if case.response.has_directive("must-understand") {
                case.response.remove_directive("no-store");
                if matches!(case.status, 206 | 299 | 418 | 429 | 511 | 599) {
                    case.response.add_directive("no-store");
                }
            }
        },
        example: || Case::new(&["max-age=60", "no-store", "must-understand"], &[]),
    },
    Difference {
        name: "pragma-in-responses",
        translate: |case| case.response.remove("pragma"),
        example: || Case::new(&[], &[("expires", &date(60)), ("pragma", "no-cache")]),
    },
    Difference {
        name: "proxy-revalidate-while-fresh",
        translate: |case| {
            let shared = ["public", "must-revalidate", "s-maxage"].iter().any(|name| case.response.has_directive(name));
            if case.response.has_directive("proxy-revalidate") {
                case.response.remove_directive("proxy-revalidate");
                let is_obeyed = shared || case.request.value("authorization").is_none();
                if is_obeyed && !case.is_private {
                    case.response.add_directive("must-revalidate");
                }
            }
        },
        example: || Case::new(&["max-age=60", "proxy-revalidate"], &[]),
    },
    Difference {
        name: "stale-by-s-maxage-or-no-cache",
        translate: |case| {
            let has_s_maxage = !case.is_private && case.response.has_directive("s-maxage");
            if has_s_maxage || case.response.has_directive("no-cache") {
                case.response.add_directive("must-revalidate");
            }
        },
        example: || Case::new(&["s-maxage=1"], &[]).asked_by(&["max-stale"], &[]),
    },
    Difference {
        name: "missing-date",
        translate: |case| {
            if parsed(case.response.value("date")).is_none() {
                case.response.set("date", date(0));
            }
        },
        example: || {
            let mut case = Case::new(&[], &[("expires", &date(10))]).asked_by(&["min-fresh=7"], &[]);
            case.response.remove("date");
            case
        },
    },
    Difference {
        name: "apparent-age",
        translate: |case| {
            let received =
                case.response.value("age").and_then(|age| age.split(',').next()).and_then(plain).unwrap_or(0);
            let made = parsed(case.response.value("date")).unwrap_or(0);
            case.response.set("age", i64::from(received).max(-made).to_string());
        },
        example: || Case::new(&["max-age=60"], &[("date", &date(-5000))]),
    },
    Difference {
        name: "dates",
        translate: |case| {
            let lines = case.response.fields.iter().filter(|(name, _)| *name == "expires").count();
            if lines > 0 {
                let expires = parsed(case.response.value("expires")).filter(|_| lines == 1);
                case.response.set("expires", expires.map_or_else(|| "0".to_owned(), date));
            }
        },
        example: || Case::new(&[], &[("expires", "Thursday, 31-Dec-26 23:59:59 GMT")]),
    },
    Difference {
        name: "heuristic-bound",
        translate: |case| {
            let made = parsed(case.response.value("date")).unwrap_or(0);
            // Ten times the longest lifetime: 10 s for an error, otherwise 24 hours.
            let age_max = if case.status >= 400 { 100 } else { 864_000 };
            if let Some(modified) = parsed(case.response.value("last-modified")) {
                case.response.set("last-modified", date(modified.max(made - age_max)));
            }
        },
        example: || Case { after_secs: 90_000, ..Case::new(&[], &[("last-modified", &date(-86_400_000))]) },
    },
    Difference {
        name: "final-statuses",
        // After the bound, which is another one for errors.
        translate: |case| {
            case.status = match case.status {
                201 | 299 | 400 | 403 | 418 | 500 | 503 | 599 => 302,
                451 => 404,
                known => known,
            };
        },
        example: || Case { status: 503, ..Case::new(&["max-age=60"], &[]) },
    },
    Difference {
        name: "normal-form-of-selecting-fields",
        translate: |case| {
            for message in [&mut case.request, &mut case.later] {
                let lines: Vec<_> = message.fields.iter().filter(|(name, _)| *name == "foo").collect();
                let values = lines.iter().flat_map(|(_, value)| value.split(',')).map(str::trim);
                let joined = values.collect::<Vec<_>>().join(", ");
                if !lines.is_empty() {
                    message.set("foo", joined);
                }
            }
        },
        example: || Case {
            request: Message::of(&[], &[("foo", "1, 2")]),
            ..Case::new(&["max-age=60"], &[("vary", "foo")]).asked_by(&[], &[("foo", "1"), ("foo", "2")])
        },
    },
    Difference {
        name: "head-from-get",
        translate: |case| {
            if case.later_method == "HEAD" {
                case.later_method = "GET";
            }
        },
        example: || Case { later_method: "HEAD", ..Case::new(&["max-age=60"], &[]) },
    },
    Difference {
        name: "request-no-store",
        translate: |case| {
            if case.later.has_directive("no-store") {
                case.later.add_directive("no-cache");
            }
        },
        example: || Case::new(&["max-age=60"], &[]).asked_by(&["no-store"], &[]),
    },
    Difference {
        name: "request-max-age",
        translate: |case| {
            let asked = case.later.directives.iter().find(|text| directive_name(text) == "max-age");
            if let Some(asked) = asked.map(|text| seconds(text).unwrap_or(0)) {
                case.later.remove_directive("max-age");
                let text = asked.checked_sub(1).map_or("no-cache".to_owned(), |secs| format!("max-age={secs}"));
                case.later.add_directive(&text);
            }
        },
        example: || Case::new(&["max-age=60"], &[]).asked_by(&["max-age=3"], &[]),
    },
    Difference {
        name: "min-fresh-of-stale",
        translate: |case| {
            let asked = case.later.directives.iter().find(|text| directive_name(text) == "min-fresh");
            let is_none = asked.is_some_and(|text| seconds(text).unwrap_or(0) == 0);
            if is_none && case.later.has_directive("max-stale") {
                case.later.remove_directive("max-stale");
                case.later.add_directive("max-stale=0");
            }
        },
        example: || Case::new(&["max-age=1"], &[]).asked_by(&["max-stale", "min-fresh=0"], &[]),
    },
    Difference {
        name: "request-max-stale",
        translate: |case| {
            for text in &mut case.later.directives {
                if directive_name(text) == "max-stale" && text.contains('=') {
                    *text = format!("max-stale={}", u64::from(seconds(text).unwrap_or(0)) + 1);
                }
            }
        },
        example: || Case::new(&["max-age=1"], &[]).asked_by(&["max-stale=2"], &[]),
    },
    Difference {
        name: "credentials-in-a-private-cache",
        translate: |case| {
            let has = |message: &Message| message.value("authorization").is_some();
            if case.is_private && has(&case.request) != has(&case.later) {
                // A status that neither stores.
                case.status = 206;
            }
        },
        example: || Case {
            request: Message::of(&[], &[("authorization", "Basic x")]),
            ..Case::new(&["max-age=60"], &[]).in_private()
        },
    },
];

const WITH_NUMBERS: [&str; 4] = ["max-age", "s-maxage", "min-fresh", "max-stale"];

/// Returns whether Larder finds nothing to reuse in the response: neither a lifetime nor a validator.
fn is_worthless(case: &Case) -> bool {
    matches!(case.storability(), Storability::Refuse { reason: Reason::NothingToReuse | Reason::NoCache })
}

impl Case {
    fn storability(&self) -> Storability {
        let exchange = storable::Exchange {
            method: &Method::GET,
            request_fields: &self.request.to_fields(),
            status: self.status_code(),
            response_fields: &self.response.to_fields(),
            request_time: RECEIVED,
            response_time: RECEIVED,
        };
        storable::decide(&exchange, &self.settings())
    }
}

fn translate_targeted(case: &mut Case) {
    let Some(value) = case.response.value("cdn-cache-control") else { return };
    // In this vocabulary the dictionary is malformed exactly when it has a capital letter or a string.
    if !case.is_private && !value.contains(['M', '"']) {
        case.response.directives = value.split(", ").map(str::to_owned).collect();
        case.response.remove("expires");
    }
    case.response.remove("cdn-cache-control");
}

fn both(case: &mut Case, mut change: impl FnMut(&mut Message)) {
    change(&mut case.response);
    change(&mut case.later);
}

/// Returns the seconds of a directive as defined in RFC 9111 1.2.2 and 5.2, at most `u32::MAX`.
fn seconds(text: &str) -> Option<u32> {
    let (name, argument) = text.split_once('=')?;
    let quoted = argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if name.ends_with(' ') { None } else { plain(quoted.unwrap_or(argument)) }
}

/// Parses text that consists only of digits.
fn plain(digits: &str) -> Option<u32> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse().unwrap_or(u32::MAX))
}

/// Parses a date to seconds after the receipt.
fn parsed(value: Option<&str>) -> Option<i64> {
    let moment = parse_http_date(value?.as_bytes(), RECEIVED)?;
    Some(moment.as_secs() - RECEIVED.as_secs())
}
