//! The scripted origin: a tower service whose answers follow from the call that leads to them.

use super::super::{
    plan::LawTally,
    stage::{Sleep, Timers},
};
use super::{
    Answer, AnswerEnd, Confirms, Rule, Shape,
    model::{Call, ResponseModel},
};
use crate::content;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, IF_NONE_MATCH, RANGE, VARY},
};
use http_body::{Body, Frame, SizeHint};
use larder_device::IgnorePoison;
use larder_http::{Timestamp, date::format_http_date};
use std::{
    error, fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};
use tower_service::Service;

/// Request field with the number of the client's call.
pub(super) const CALL: HeaderName = HeaderName::from_static("x-call");
/// Response field with the number of the response.
pub(super) const SENT: HeaderName = HeaderName::from_static("x-sent");
/// Response field that names the only client that may get the response.
pub(super) const FOR: HeaderName = HeaderName::from_static("x-for");
pub(super) const LANGUAGE: HeaderName = HeaderName::from_static("x-language");

/// Error of the origin when the schedule wants it to break off.
#[derive(Clone, Copy, Debug)]
pub(super) struct OriginGone;

impl fmt::Display for OriginGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it was to break off")
    }
}

impl error::Error for OriginGone {}

/// The origin of all resources. Each call prescribes the origin's answers to it.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) model: Arc<Mutex<ResponseModel>>,
    pub(super) timers: Arc<Timers>,
    pub(super) tally: Arc<Mutex<LawTally>>,
}

impl Service<Request<()>> for Origin {
    type Response = Response<ScriptedBody>;
    type Error = OriginGone;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, OriginGone>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), OriginGone>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let origin = self.clone();
        Box::pin(async move { origin.answer(request).await })
    }
}

/// A request that the origin is answering. Dropping it notes in the model that the request has ended.
struct OpenAsk {
    model: Arc<Mutex<ResponseModel>>,
    ask: usize,
}

impl Drop for OpenAsk {
    fn drop(&mut self) {
        self.model.lock().ignore_poison().end_ask(self.ask);
    }
}

impl Origin {
    async fn answer(self, request: Request<()>) -> Result<Response<ScriptedBody>, OriginGone> {
        self.tally.lock().ignore_poison().fetches += 1;
        let number: u64 = number_in(request.headers(), &CALL).expect("each request has its number");
        let (call, open) = {
            let mut model = self.model.lock().ignore_poison();
            let ask = model.begin_ask(number);
            (model.calls[number as usize], OpenAsk { model: Arc::clone(&self.model), ask })
        };
        self.timers.sleep(Duration::from_millis(call.answer.delay_ms)).await;
        match call.answer.end {
            AnswerEnd::Refuses => return Err(OriginGone),
            AnswerEnd::Fails => return Ok(without_body(StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new())),
            AnswerEnd::Whole | AnswerEnd::Breaks | AnswerEnd::Short | AnswerEnd::Long => {}
        }
        if *request.method() == Method::POST {
            self.model.lock().ignore_poison().begin_purge_by(&call);
            return Ok(without_body(StatusCode::NO_CONTENT, HeaderMap::new()));
        }
        Ok(self.respond(&request, &call, open))
    }

    fn respond(&self, request: &Request<()>, call: &Call, open: OpenAsk) -> Response<ScriptedBody> {
        let mut model = self.model.lock().ignore_poison();
        let content = model.content(call.key, &call.client, call.shape);
        let resource = model.resource(call.key);
        let len = resource.len + content % 7;
        let mut fields = HeaderMap::new();
        let now = Timestamp::from_millis(model.chronicle.now_ms as i64);
        fields.insert(DATE, format_http_date(now));
        let directives = match resource.rule {
            Rule::MaxAge { secs } => format!("max-age={secs}"),
            Rule::NoCache => "no-cache".to_owned(),
            Rule::NoStore => "no-store".to_owned(),
            Rule::Private => "private, max-age=60".to_owned(),
        };
        fields.insert(CACHE_CONTROL, value(&directives));
        if resource.varies {
            fields.insert(VARY, HeaderValue::from_static("x-language"));
        }
        if resource.rule == Rule::Private || call.shape == Shape::Authorized {
            fields.insert(FOR, HeaderValue::from(call.client.asker));
        }
        let tag = model.tag(content);
        if let Some(tag) = &tag {
            fields.insert(ETAG, value(tag));
        }
        let wanted = request.headers().get(IF_NONE_MATCH);
        let is_same = wanted.is_some_and(|wanted| tag.as_ref().is_some_and(|tag| wanted == tag.as_str()));
        match call.answer.confirms {
            Confirms::Otherwise if wanted.is_some() => {
                fields.insert(ETAG, HeaderValue::from_static("\"other\""));
                return without_body(StatusCode::NOT_MODIFIED, fields);
            }
            Confirms::Privately if is_same => {
                fields.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
                fields.insert(FOR, HeaderValue::from(call.client.asker));
                return without_body(StatusCode::NOT_MODIFIED, fields);
            }
            Confirms::Honestly if is_same => {
                model.confirm(open.ask, content);
                return without_body(StatusCode::NOT_MODIFIED, fields);
            }
            Confirms::Honestly | Confirms::Privately | Confirms::Otherwise | Confirms::Never => {}
        }
        if *request.method() == Method::HEAD {
            model.confirm(open.ask, content);
            fields.insert(CONTENT_LENGTH, HeaderValue::from(len));
            return without_body(StatusCode::OK, fields);
        }
        let range = match call.shape {
            Shape::Range { from, to } if call.answer.has_ranges && request.headers().contains_key(RANGE) => {
                Some(from..(to + 1).min(len))
            }
            _ => None,
        };
        let mut status = StatusCode::OK;
        if let Some(range) = &range {
            status = StatusCode::PARTIAL_CONTENT;
            fields.insert(CONTENT_RANGE, value(&format!("bytes {}-{}/{len}", range.start, range.end - 1)));
        }
        let span = range.unwrap_or(0..len);
        let sent = model.send(open.ask, content, len);
        drop(model);
        fields.insert(SENT, HeaderValue::from(sent));
        let body = ScriptedBody::new(self, call, (sent, content), span, open);
        if let Some(len) = body.announced {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        response
    }
}

/// Body of a response of the origin, sent in pieces.
pub(super) struct ScriptedBody {
    /// State of sending, or `None` if the response has no body.
    course: Option<Course>,
    announced: Option<u64>,
}

struct Course {
    model: Arc<Mutex<ResponseModel>>,
    timers: Arc<Timers>,
    answer: Answer,
    sent: u64,
    bytes: Bytes,
    at: usize,
    pause: Option<Sleep>,
    _open: OpenAsk,
}

impl ScriptedBody {
    /// Creates the body of response `sent`: the bytes in `span` of content `content`.
    fn new(origin: &Origin, call: &Call, (sent, content): (u64, u64), span: Range<u64>, open: OpenAsk) -> Self {
        let answer = call.answer;
        let whole = content::body(call.key, content, span.end + LONGER);
        let len = span.end - span.start;
        let has_length = answer.has_length || answer.end == AnswerEnd::Short || answer.end == AnswerEnd::Long;
        let end = match answer.end {
            AnswerEnd::Short | AnswerEnd::Breaks => span.start + len / 2,
            AnswerEnd::Long => span.end + LONGER,
            _ => span.end,
        };
        let course = Course {
            model: Arc::clone(&origin.model),
            timers: Arc::clone(&origin.timers),
            answer,
            sent,
            bytes: whole.slice(span.start as usize..end as usize),
            at: 0,
            pause: None,
            _open: open,
        };
        Self { course: Some(course), announced: has_length.then_some(len) }
    }
}

impl Course {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, OriginGone>>> {
        let Self { timers, pause, answer, .. } = self;
        let pause = pause.get_or_insert_with(|| timers.sleep(Duration::from_millis(answer.delay_ms / 8)));
        ready!(Pin::new(pause).poll(context));
        self.pause = None;
        let left = self.bytes.len() - self.at;
        if left == 0 {
            let is_whole = matches!(self.answer.end, AnswerEnd::Whole | AnswerEnd::Long);
            self.note_end(is_whole);
            let breaks = self.answer.end == AnswerEnd::Breaks;
            return Poll::Ready(breaks.then_some(Err(OriginGone)));
        }
        let len = (self.bytes.len() / 3).max(1).min(left);
        let piece = self.bytes.slice(self.at..self.at + len);
        self.at += len;
        // A recipient that knows the length does not ask for the end.
        if self.at == self.bytes.len() && self.answer.end == AnswerEnd::Whole || self.answer.end == AnswerEnd::Long {
            self.note_end(true);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn note_end(&self, is_complete: bool) {
        self.model.lock().ignore_poison().end(self.sent, is_complete);
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = OriginGone;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginGone>>> {
        self.course.as_mut().map_or(Poll::Ready(None), |course| course.poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.course.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        self.note_end(false);
    }
}

fn without_body(status: StatusCode, fields: HeaderMap) -> Response<ScriptedBody> {
    let mut response = Response::new(ScriptedBody { course: None, announced: None });
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).expect("a field's value")
}

/// Returns the value of field `name` as a number, or `None` if it is missing or no number.
pub(super) fn number_in(fields: &HeaderMap, name: &HeaderName) -> Option<u64> {
    fields.get(name)?.to_str().ok()?.parse().ok()
}

/// Number of bytes that an overlong body has in addition to its announced length.
const LONGER: u64 = 20;
