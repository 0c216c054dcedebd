//! A response, the request it answers, and a later request, in the form that both crates receive.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Method, Request, StatusCode};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use larder_http::{
    BodyPlace, ReceivedHead, Reuse, Settings, Storability, StoredHead, Timestamp, VaryRule, date::format_http_date,
    reuse, storable,
};
use proptest::prelude::*;

use crate::support::fields;

/// Time of receipt of all responses: the end of a second, so that all ages are whole seconds.
pub(super) const RECEIVED: Timestamp = Timestamp::from_millis(1_795_237_200_999);

/// Directives and other fields of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    pub(super) directives: Vec<String>,
    pub(super) fields: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    /// Whether the cache is private.
    pub(super) is_private: bool,
    pub(super) status: u16,
    pub(super) response: Message,
    pub(super) request: Message,
    pub(super) later_method: &'static str,
    pub(super) later: Message,
    pub(super) after_secs: u32,
}

/// The outcome of the later request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is answered from the cache, with this Age.
    Reused { age_secs: u64 },
    /// It is forwarded to the origin.
    Asks,
}

impl Message {
    pub(super) fn of(directives: &[&str], fields: &[(&'static str, &str)]) -> Self {
        let directives = directives.iter().map(|text| (*text).to_owned()).collect();
        Self { directives, fields: fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect() }
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.fields.retain(|(known, _)| *known != name);
    }

    pub(super) fn set(&mut self, name: &'static str, value: String) {
        self.remove(name);
        self.fields.push((name, value));
    }

    pub(super) fn has_directive(&self, name: &str) -> bool {
        self.directives.iter().any(|text| directive_name(text) == name)
    }

    pub(super) fn remove_directive(&mut self, name: &str) {
        self.directives.retain(|text| directive_name(text) != name);
    }

    pub(super) fn add_directive(&mut self, text: &str) {
        self.directives.push(text.to_owned());
    }

    pub(super) fn to_fields(&self) -> HeaderMap {
        let mut lines = String::new();
        for (name, value) in &self.fields {
            lines += &format!("{name}: {value}\n");
        }
        // The first directive has its own line, so that lines must be joined.
        let mut directives = self.directives.iter();
        if let Some(first) = directives.next() {
            lines += &format!("Cache-Control: {first}\n");
        }
        let rest: Vec<_> = directives.map(String::as_str).collect();
        if !rest.is_empty() {
            lines += &format!("Cache-Control: {}\n", rest.join(", "));
        }
        fields(&lines)
    }
}

impl Case {
    /// Returns a case of a 200 with these directives and fields that is requested again after three seconds.
    pub(super) fn new(directives: &[&str], fields: &[(&'static str, &str)]) -> Self {
        let mut response = Message::of(directives, fields);
        if response.value("date").is_none() {
            response.set("date", date(0));
        }
        let request = Message::default();
        let later = Message::default();
        Self { is_private: false, status: 200, response, request, later_method: "GET", later, after_secs: 3 }
    }

    pub(super) fn in_private(self) -> Self {
        Self { is_private: true, ..self }
    }

    pub(super) fn settings(&self) -> Settings {
        if self.is_private { Settings::private() } else { Settings::default() }
    }

    pub(super) fn asked_by(self, directives: &[&str], fields: &[(&'static str, &str)]) -> Self {
        Self { later: Message::of(directives, fields), ..self }
    }

    pub(super) fn ours(&self) -> Verdict {
        let settings = self.settings();
        let request = self.request.to_fields();
        let response = self.response.to_fields();
        let later = self.later.to_fields();
        let exchange = storable::Exchange {
            method: &Method::GET,
            request_fields: &request,
            status: self.status_code(),
            response_fields: &response,
            request_time: RECEIVED,
            response_time: RECEIVED,
        };
        let Storability::Store { rule, .. } = storable::decide(&exchange, &settings) else { return Verdict::Asks };
        let head = self.head(&rule);
        if !head.matches(&later, &settings) {
            return Verdict::Asks;
        }
        let now = RECEIVED.plus_secs(i64::from(self.after_secs));
        match reuse::decide(&self.method(), &later, &head, now, &settings) {
            Reuse::Fresh { age, .. } => Verdict::Reused { age_secs: age.age_secs },
            Reuse::Stale { .. } | Reuse::MustValidate { .. } | Reuse::NotUsable { .. } => Verdict::Asks,
        }
    }

    pub(super) fn theirs(&self) -> Verdict {
        let policy = self.policy();
        if !policy.is_storable() {
            return Verdict::Asks;
        }
        let now = system_time(RECEIVED) + Duration::from_secs(u64::from(self.after_secs));
        match policy.before_request(&to_request(self.method(), &self.later), now) {
            BeforeRequest::Fresh(_) => Verdict::Reused { age_secs: policy.age(now).as_secs() },
            BeforeRequest::Stale { .. } => Verdict::Asks,
        }
    }

    pub(super) fn policy(&self) -> CachePolicy {
        let mut response = http::Response::new(());
        *response.status_mut() = self.status_code();
        *response.headers_mut() = self.response.to_fields();
        let options = CacheOptions {
            immutable_min_time_to_live: Duration::ZERO,
            shared: !self.is_private,
            ..CacheOptions::default()
        };
        CachePolicy::new_options(&to_request(Method::GET, &self.request), &response, system_time(RECEIVED), options)
    }

    pub(super) fn head(&self, rule: &VaryRule) -> StoredHead {
        let settings = self.settings();
        let selecting = rule.select(&self.request.to_fields(), &settings).unwrap_or_default();
        let received = ReceivedHead {
            status: self.status_code(),
            fields: self.response.to_fields(),
            request_time: RECEIVED,
            response_time: RECEIVED,
        };
        StoredHead::new(received, BodyPlace::Whole { len: 100 }, selecting, &settings.targets)
    }

    fn method(&self) -> Method {
        Method::from_bytes(self.later_method.as_bytes()).expect("a case's method is a method")
    }

    pub(super) fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("a case's status is a status")
    }
}

/// Returns a directive's name in lower case.
pub(super) fn directive_name(text: &str) -> String {
    text.split('=').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the date `offset_secs` after the receipt.
pub(super) fn date(offset_secs: i64) -> String {
    format_http_date(RECEIVED.plus_secs(offset_secs)).to_str().expect("dates are ASCII").to_owned()
}

pub(super) fn to_request(method: Method, message: &Message) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = http::Uri::from_static("http://a.example/");
    *request.headers_mut() = message.to_fields();
    request
}

pub(super) fn system_time(moment: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(moment.as_millis().unsigned_abs())
}

/// Generates any case within the vocabulary that the translations know.
pub(super) fn any_case() -> impl Strategy<Value = Case> {
    let status = prop_oneof![4 => Just(200), 3 => proptest::sample::select(STATUSES)];
    let method = prop_oneof![8 => Just("GET"), 1 => Just("HEAD"), 1 => Just("POST")];
    let request = (few(REQUEST_DIRECTIVES), any_request_fields());
    let later = (few(LATER_DIRECTIVES), any_request_fields());
    let after_secs = proptest::sample::select(&[0u32, 1, 3, 9, 10, 61, 90_000][..]);
    (any::<bool>(), status, any_response(), request, method, later, after_secs).prop_map(
        |(is_private, status, response, request, later_method, later, after_secs)| Case {
            is_private,
            status,
            response,
            request: Message { directives: request.0, fields: request.1 },
            later_method,
            later: Message { directives: later.0, fields: later.1 },
            after_secs,
        },
    )
}

fn any_response() -> impl Strategy<Value = Message> {
    let dates = (maybe(DATES), maybe(EXPIRES), maybe(MODIFIED), maybe(AGES));
    let rest = (maybe(TARGETED), maybe(VARIES), maybe(&["\"a\"", "W/\"a\""]), maybe(&["no-cache"]), maybe(&["a=b"]));
    (few(RESPONSE_DIRECTIVES), dates, rest).prop_map(|(directives, (made, expires, modified, age), rest)| {
        let mut fields = Vec::new();
        let moment = |text: &str| text.parse().map_or_else(|_| text.to_owned(), date);
        fields.extend(made.map(|text| ("date", moment(text))));
        // Each line of the field is separate.
        fields.extend(expires.iter().flat_map(|text| text.split('|')).map(|text| ("expires", moment(text))));
        fields.extend(modified.map(|text| ("last-modified", moment(text))));
        fields.extend(age.map(|text| ("age", text.to_owned())));
        let (targeted, vary, tag, pragma, cookie) = rest;
        fields.extend(targeted.map(|text| ("cdn-cache-control", text.to_owned())));
        fields.extend(vary.iter().flat_map(|text| text.split('|')).map(|text| ("vary", text.to_owned())));
        fields.extend(tag.map(|text| ("etag", text.to_owned())));
        fields.extend(pragma.map(|text| ("pragma", text.to_owned())));
        fields.extend(cookie.map(|text| ("set-cookie", text.to_owned())));
        Message { directives, fields }
    })
}

fn any_request_fields() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let values = (maybe(&["Basic x"]), maybe(&["no-cache", "foo"]), maybe(FOOS), maybe(&["x"]));
    values.prop_map(|(authorization, pragma, first, second)| {
        let mut fields = Vec::new();
        fields.extend(authorization.map(|text| ("authorization", text.to_owned())));
        fields.extend(pragma.map(|text| ("pragma", text.to_owned())));
        fields.extend(first.iter().flat_map(|text| text.split('|')).map(|text| ("foo", text.to_owned())));
        fields.extend(second.map(|text| ("bar", text.to_owned())));
        fields
    })
}

fn maybe(values: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![3 => Just(None), 1 => proptest::sample::select(values).prop_map(Some)]
}

fn few(values: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let one = proptest::sample::select(values).prop_map(str::to_owned);
    proptest::collection::vec(one, 0..4)
}

const STATUSES: &[u16] = &[
    201, 203, 204, 206, 299, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 418, 429, 451, 500, 501, 503,
    511, 599,
];
const RESPONSE_DIRECTIVES: &[&str] = &[
    "max-age=0",
    "max-age=10",
    "max-age=60",
    "max-age=60",
    "max-age=3600",
    "max-age=99999999999999999999999",
    "s-maxage=0",
    "s-maxage=10",
    "s-maxage=3600",
    "Max-Age=60",
    "max-age=\"60\"",
    "max-age",
    "max-age=",
    "max-age= 60",
    "max-age =60",
    "max-age=+60",
    "max-age='60'",
    "max-age=60.0",
    "max-age=6x",
    "s-maxage=x",
    "no-cache",
    "no-cache=\"x-a, x-b\"",
    "No-Store",
    "no-store",
    "private",
    "private=\"x-a\"",
    "public",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "must-understand",
    "immutable",
    "stale-while-revalidate=60",
    "stale-if-error=60",
    "ext=\"a, no-store, max-age=1\"",
    "ext",
];
const REQUEST_DIRECTIVES: &[&str] = &["no-store", "max-age=0", "ext"];
const LATER_DIRECTIVES: &[&str] = &[
    "max-age=0",
    "max-age=3",
    "max-age=60",
    "Max-Age=3",
    "max-age",
    "max-age=x",
    "min-fresh=0",
    "min-fresh=7",
    "min-fresh=x",
    "max-stale",
    "max-stale=0",
    "max-stale=51",
    "max-stale=1000",
    "max-stale=x",
    "no-cache",
    "no-store",
    "only-if-cached",
    "stale-if-error=60",
    "ext=\"a, no-cache\"",
];
/// Seconds from the receipt, or a text.
const DATES: &[&str] = &["0", "-10", "-50", "-5000", "50", "yesterday"];
const EXPIRES: &[&str] = &[
    "60",
    "10",
    "0",
    "-10",
    "5000",
    "never",
    "0|60",
    "Thursday, 31-Dec-26 23:59:59 GMT",
    "Thu Dec 31 23:59:59 2026",
    "Thu, 31 Dec 2026 23:59:59 UTC",
    "Thu, 31 Dec 2026 23:59:59 +0000",
    "31 Dec 2026 23:59:59 GMT",
];
const MODIFIED: &[&str] = &["-100", "-864000", "-86400000", "0", "100", "never"];
const AGES: &[&str] = &["0", "5", "58", "4000", "5, 4000", "x", "-5", "+5", "5.0"];
const TARGETED: &[&str] = &[
    "max-age=60",
    "max-age=0",
    "no-store",
    "max-age=60, private",
    "max-age=\"60\"",
    "Max-Age=60",
    "public",
    "no-cache, max-age=60",
];
const VARIES: &[&str] = &["foo", "Foo, Bar", "foo|bar", "*", "foo, *", ", foo,"];
const FOOS: &[&str] = &["1", "1, 2", "1,2", "1|2", "2"];
