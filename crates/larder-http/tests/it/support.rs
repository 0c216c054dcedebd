//! Requests, responses and moments for the clause tests.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use larder_http::{
    BodyPlace, Reason, ReceivedHead, Reuse, Settings, Storability, StoredHead, Timestamp,
    date::format_http_date,
    reuse,
    storable::{self, Exchange},
};

/// When responses are received: 2026-11-21, 05:00:00 and a half.
pub(crate) const RECEIVED: Timestamp = Timestamp::from_millis(1_795_237_200_500);
pub(crate) const DAY_SECS: i64 = 86_400;

/// Fields from lines of `Name: value`; octets above 0x7F stay as they are.
pub(crate) fn fields(lines: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a line has a colon");
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a line begins with a field name");
        fields.append(name, HeaderValue::from_bytes(value.trim().as_bytes()).expect("a line holds a field value"));
    }
    fields
}

/// Returns the HTTP date `offset_secs` after the receipt.
pub(crate) fn date(offset_secs: i64) -> String {
    format_http_date(RECEIVED.plus_secs(offset_secs)).to_str().expect("dates are ASCII").to_owned()
}

/// A response to a GET, received at [`RECEIVED`] without delay.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) delay_secs: i64,
    pub(crate) request: HeaderMap,
    pub(crate) settings: Settings,
}

impl Response {
    /// Creates a 200 with these fields and, unless they include one, the Date of its receipt.
    pub(crate) fn new(lines: &str) -> Self {
        let mut fields = fields(lines);
        if !fields.contains_key("date") {
            fields.insert("date", format_http_date(RECEIVED));
        }
        Self { status: 200, fields, delay_secs: 0, request: HeaderMap::new(), settings: Settings::default() }
    }

    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn answering(self, lines: &str) -> Self {
        Self { request: fields(lines), ..self }
    }

    pub(crate) fn storability(&self) -> Storability {
        let exchange = Exchange {
            method: &Method::GET,
            request_fields: &self.request,
            status: self.status_code(),
            response_fields: &self.fields,
            request_time: RECEIVED.plus_secs(-self.delay_secs),
            response_time: RECEIVED,
        };
        storable::decide(&exchange, &self.settings)
    }

    /// Returns the reason why the response is not stored, or `None` if it is.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        match self.storability() {
            Storability::Store { .. } => None,
            Storability::Refuse { reason } => Some(reason),
        }
    }

    /// Returns the head that a cache would store, whether or not it may.
    pub(crate) fn head(&self) -> StoredHead {
        let rule = larder_http::VaryRule::from_fields(&self.fields);
        let received = ReceivedHead {
            status: self.status_code(),
            fields: self.fields.clone(),
            request_time: RECEIVED.plus_secs(-self.delay_secs),
            response_time: RECEIVED,
        };
        let selecting = rule.select(&self.request, &self.settings).unwrap_or_default();
        StoredHead::new(received, BodyPlace::Whole { len: 100 }, selecting, &self.settings.targets)
    }

    /// Returns how the stored head may be used, `after_secs` later, for a request with these fields.
    pub(crate) fn reuse(&self, after_secs: i64, request: &str) -> Reuse {
        let now = RECEIVED.plus_secs(after_secs);
        reuse::decide(&Method::GET, &fields(request), &self.head(), now, &self.settings)
    }

    /// Returns whether the response is stored and served `after_secs` later without contacting the origin.
    pub(crate) fn is_reused(&self, after_secs: i64) -> bool {
        self.is_reused_for(after_secs, "")
    }

    pub(crate) fn is_reused_for(&self, after_secs: i64, request: &str) -> bool {
        self.refusal().is_none() && matches!(self.reuse(after_secs, request), Reuse::Fresh { .. })
    }

    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("a test's status is a status")
    }
}

/// Returns an exchange 100 seconds after the receipt: a response with these fields to a request with those.
pub(crate) fn later_answer<'a>(request: &'a HeaderMap, status: StatusCode, answer: &'a HeaderMap) -> Exchange<'a> {
    let now = RECEIVED.plus_secs(100);
    Exchange {
        method: &Method::GET,
        request_fields: request,
        status,
        response_fields: answer,
        request_time: now,
        response_time: now,
    }
}

/// Returns whether a 200 with these fields is served from the cache after three seconds.
pub(crate) fn is_reused(lines: &str) -> bool {
    Response::new(lines).is_reused(3)
}
