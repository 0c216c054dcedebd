//! The account of an exchange: what is counted and logged of it, until its ticket takes that over.
//!
//! Owns: the facts that must be copied from a request before the request is consumed. `accounting` fills it.

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderName, Method, StatusCode, Version};
use larder_http::fields::media_type;

use crate::{
    figures::{access_log::OpenLogLine, outcome::Outcome},
    ground::{delays::Pacer, overload::ExchangeRoom},
    operators::{popular::PopularitySubject, query_log::QueryPlace},
    road::{
        client::ticket::{ExchangeContext, LogLine},
        served::ServedResponse,
    },
    run::worker::Worker,
};

/// Length of a usual status line together with the empty line after the head, in bytes.
const STATUS_LINE_BYTES: usize = 19;
/// Length of what surrounds a field's name and value on its line: colon, space and CRLF, in bytes.
const FIELD_LINE_BYTES: usize = 4;

/// Facts about an exchange that are counted and logged when its response has been sent.
pub(super) struct Account {
    pub(super) started: Instant,
    subject: Option<PopularitySubject>,
    /// The entry of the exchange in the query log, if that is enabled.
    pub(super) query: Option<QueryPlace>,
    /// The beginning of the exchange's line in the access log. Boxed, because few exchanges have one while they wait.
    pub(super) line: Option<Box<LineStart>>,
    /// Limits the rate of the response body. Boxed, because few exchanges are limited.
    pub(super) pacer: Option<Box<Pacer>>,
    /// Memory reserved for the exchange beyond that of its connection. The response takes it over.
    pub(super) room: Option<ExchangeRoom>,
}

impl Account {
    /// Begins the account of an exchange. Call it when the request's head has arrived.
    pub(super) fn begin() -> Self {
        Self { started: Instant::now(), subject: None, query: None, line: None, pacer: None, room: None }
    }

    /// Sets the site or resource whose popularity this request adds to.
    ///
    /// `None` for a tunnel, whose inner requests are counted instead.
    pub(super) fn set_subject(&mut self, subject: Option<PopularitySubject>) {
        self.subject = subject;
    }

    /// Takes the limit on the response body's rate.
    pub(super) fn take_pacer(&mut self) -> Option<Pacer> {
        self.pacer.take().map(|pacer| *pacer)
    }

    /// Returns the facts to count once the response has a head. `takes_time` says that the body arrives later than the
    /// head.
    pub(super) fn context(&self, outcome: Outcome, status: StatusCode, takes_time: bool) -> ExchangeContext {
        let started = self.started;
        let first_byte_us = takes_time.then(|| u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        ExchangeContext { started, first_byte_us, subject: self.subject, query: self.query, outcome, why: None, status }
    }
}

/// Facts about a request for the access log. They are copied, because the request is consumed before it is logged.
pub(super) struct LineStart {
    pub(super) worker: Arc<Worker>,
    pub(super) started: Instant,
    pub(super) client: std::net::IpAddr,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) version: Version,
    pub(super) user: Option<String>,
    pub(super) fields: Vec<Option<String>>,
}

impl LineStart {
    /// Completes the log line, except for the facts that are known only when the response has been sent.
    pub(super) fn end(self, served: &ServedResponse, steps: String) -> Box<LogLine> {
        let Self { worker, started, client, method, url, version, user, fields: request_fields } = self;
        let fields = served.response.headers();
        let wanted = &worker.shared.config.log_format.response_fields;
        let head_bytes = STATUS_LINE_BYTES
            + fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_LINE_BYTES).sum::<usize>();
        let line = OpenLogLine {
            node: worker.shared.config.fleet.node.clone(),
            started,
            client: client.to_canonical(),
            method,
            url,
            version,
            // The user name is not logged if the client was refused because of it.
            user: user.filter(|_| served.response.status() != StatusCode::PROXY_AUTHENTICATION_REQUIRED),
            outcome: served.outcome,
            why: served.why,
            steps,
            status: served.response.status(),
            origin: served.origin.as_ref().map(|origin| origin.to_string()),
            content_type: media_type(fields).map(str::to_owned),
            head_bytes: head_bytes as u64,
            request_fields,
            response_fields: wanted.iter().map(|name| text_of(fields, name)).collect(),
        };
        Box::new(LogLine { worker, line })
    }
}

/// Returns the value of a field as text, or `None` if the field is missing.
pub(super) fn text_of(fields: &HeaderMap, name: &HeaderName) -> Option<String> {
    fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
