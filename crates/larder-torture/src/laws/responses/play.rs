//! Plays single acts: sends requests to the cache, reads the responses, and passes what they say to the model.

use super::super::{
    chronicle::Subject,
    plan::LawTally,
    stage::{ActorFuture, Timers},
};
use super::{
    Answer, AnswerEnd, Client, ClientReads, ResponseAct, Shape,
    model::{Call, ResponseModel, Said},
    origin::{CALL, FOR, LANGUAGE, Origin, SENT, number_in, value},
};
use crate::content;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_NONE_MATCH, RANGE},
};
use http_body::Body;
use larder_device::IgnorePoison;
use larder_tower::{CacheBody, CacheLayer, HttpCache};
use std::{
    future::poll_fn,
    ops::Range,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tower_layer::Layer;
use tower_service::Service;

/// The parts that every act needs. `stands` is set when the client of this act stops reading.
#[derive(Clone)]
pub(super) struct ResponseProps {
    pub(super) cache: HttpCache,
    pub(super) model: Arc<Mutex<ResponseModel>>,
    pub(super) tally: Arc<Mutex<LawTally>>,
    pub(super) timers: Arc<Timers>,
    pub(super) stands: Arc<AtomicBool>,
}

type Reply = Response<CacheBody>;

impl ResponseProps {
    /// Returns a future that does the act and judges what the cache returns.
    pub(super) fn play(self, act: ResponseAct) -> ActorFuture {
        match act {
            ResponseAct::Get { key, client, shape, answer } => {
                Box::pin(async move { self.get(key, client, shape, answer).await })
            }
            ResponseAct::Post { key, client, answer } => Box::pin(async move { self.post(key, client, answer).await }),
            ResponseAct::Remove { .. } | ResponseAct::Clear => {
                let subject = act.subject().expect("it is a purge");
                Box::pin(async move { self.purge(subject).await })
            }
            ResponseAct::Sync => Box::pin(async move {
                let called = self.model(|model| model.chronicle.tick());
                if self.cache.cache().sync().await.is_ok() {
                    self.model(|model| model.chronicle.note_sync(called));
                }
                Ok(())
            }),
            ResponseAct::Change { .. }
            | ResponseAct::Wait { .. }
            | ResponseAct::AwaitCalls
            | ResponseAct::Kill { .. } => {
                unreachable!("no call of the cache")
            }
        }
    }

    fn model<T>(&self, use_it: impl FnOnce(&mut ResponseModel) -> T) -> T {
        use_it(&mut self.model.lock().ignore_poison())
    }

    async fn send(&self, call: &Call, method: Method, fields: HeaderMap) -> Option<Reply> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri_of(call.key);
        *request.headers_mut() = fields;
        request.headers_mut().insert(CALL, HeaderValue::from(call.number));
        request.headers_mut().insert(LANGUAGE, HeaderValue::from(call.client.language));
        let origin =
            Origin { model: Arc::clone(&self.model), timers: Arc::clone(&self.timers), tally: Arc::clone(&self.tally) };
        CacheLayer::new(self.cache.clone()).layer(origin).call(request).await.ok()
    }

    async fn get(self, key: u64, client: Client, shape: Shape, answer: Answer) -> Result<(), String> {
        let (call, tag) = self.model(|model| {
            let content = model.content(key, &client, shape);
            let tag = match shape {
                Shape::Conditional { is_current: true } => model.tag(content),
                Shape::Conditional { is_current: false } => Some("\"unknown\"".to_owned()),
                _ => None,
            };
            (model.begin_call(key, client, shape, answer), tag)
        });
        let mut fields = HeaderMap::new();
        let mut method = Method::GET;
        match shape {
            Shape::Plain | Shape::Conditional { .. } => {}
            Shape::Range { from, to } => _ = fields.insert(RANGE, value(&format!("bytes={from}-{to}"))),
            Shape::Head => method = Method::HEAD,
            Shape::NoCache => _ = fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            Shape::OnlyIfCached => _ = fields.insert(CACHE_CONTROL, HeaderValue::from_static("only-if-cached")),
            Shape::Authorized => _ = fields.insert(AUTHORIZATION, value(&format!("Basic {}", client.asker))),
        }
        if let Some(tag) = &tag {
            fields.insert(IF_NONE_MATCH, value(tag));
        }
        self.tally.lock().ignore_poison().required += u64::from(call.is_required);
        let Some(response) = self.send(&call, method, fields).await else {
            return self.judge_failure(&call, answer.end == AnswerEnd::Refuses);
        };
        let said = said(response.headers());
        if let Some(asker) = number_in(response.headers(), &FOR).filter(|asker| *asker != client.asker) {
            return Err(format!("law 5: key {key}: fields for client {asker}"));
        }
        let status = response.status();
        if shape == Shape::OnlyIfCached && status == StatusCode::GATEWAY_TIMEOUT {
            return self.model(|model| model.judge_miss(&call));
        }
        let Some(said) = said else { return Err(format!("law 12: key {key}: a response without Cache-Status")) };
        self.model(|model| model.judge_said(&call, said))?;
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT if shape != Shape::Head => {
                let number = number_in(response.headers(), &SENT);
                let Some(number) = number else { return Err(format!("law 1: key {key}: a response without a number")) };
                self.model(|model| model.judge_head(&call, number, said))?;
                self.tally.lock().ignore_poison().hits += u64::from(said.is_hit);
                self.read(&call, number, said, response).await
            }
            StatusCode::NOT_MODIFIED => {
                let got = response.headers().get(ETAG).and_then(|got| got.to_str().ok());
                let is_own = got.is_none_or(|got| tag.as_deref() == Some(got));
                match is_own || ResponseModel::may_confirm_otherwise(&call) {
                    true => Ok(()),
                    false => Err(format!("law 1: key {key}: a 304 for {got:?} to a client that has {tag:?}")),
                }
            }
            StatusCode::OK => Ok(()),
            _ => self.judge_failure(&call, answer.end == AnswerEnd::Fails),
        }
    }

    /// Checks law 9: the cache returns an error only if it asked the origin and the origin failed.
    fn judge_failure(&self, call: &Call, has_failed: bool) -> Result<(), String> {
        let is_asked = self.model(|model| model.calls[call.number as usize].ask_count > 0);
        match is_asked && has_failed {
            true => Ok(()),
            false => Err(format!("law 9: key {}: an error that the origin did not send", call.key)),
        }
    }

    /// Reads the body of response `number` as the client of `call` does, and checks each piece.
    async fn read(&self, call: &Call, number: u64, said: Said, response: Reply) -> Result<(), String> {
        let key = call.key;
        let sent = self.model(|model| model.sent[number as usize]);
        let stated = number_in(response.headers(), &CONTENT_LENGTH);
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        let span = if is_part { part_in(response.headers(), sent.len) } else { Some(0..sent.len) };
        let Some(span) = span else { return Err(format!("law 1: key {key}: response {number} has another length")) };
        let limit = match call.client.reads {
            ClientReads::Leaves(frames) | ClientReads::Stands(frames) => Some(frames),
            ClientReads::Whole | ClientReads::Gone(_) => None,
        };
        let mut body = pin!(response.into_body());
        let mut at = span.start;
        let mut frames = 0;
        loop {
            if limit == Some(frames) {
                if matches!(call.client.reads, ClientReads::Leaves(_)) {
                    return Ok(());
                }
                self.stands.store(true, Relaxed);
                self.timers.sleep(Duration::ZERO).await;
            }
            frames += 1;
            let is_over = stated == Some(at - span.start);
            let frame = match poll_fn(|context| body.as_mut().poll_frame(context)).await {
                // The rest is not a part of the message.
                _ if is_over => break,
                Some(Ok(frame)) => frame,
                None => break,
                Some(Err(_)) => return Ok(()),
            };
            let Ok(bytes) = frame.into_data() else { continue };
            let end = at + bytes.len() as u64;
            if stated.is_some_and(|stated| end - span.start > stated) {
                // A client that counts finds the message broken.
                return Ok(());
            }
            if end > span.end || !content::is_body(key, sent.content, at..end, &bytes) {
                return Err(format!("law 1: key {key}: {at}..{end} of response {number} has other bytes"));
            }
            at = end;
        }
        if stated.is_some_and(|stated| stated != at - span.start) {
            // A client that counts finds the message broken, unless the cache has promised the whole of it.
            let is_promised = said.is_hit || said.is_collapsed;
            return if is_promised { Err(format!("law 3: key {key}: response {number} ends at {at}")) } else { Ok(()) };
        }
        let is_complete = self.model(|model| model.sent[number as usize].is_complete);
        // A part of a body that breaks off behind it is all there.
        if at != span.end || span.end == sent.len && !is_complete {
            return Err(format!("law 3: key {key}: response {number} ends well at {at} of {span:?}"));
        }
        self.tally.lock().ignore_poison().answers += 1;
        if matches!(call.shape, Shape::Plain | Shape::NoCache) && sent.call.number == call.number {
            self.model(|model| {
                model.note_received(number);
                if said.is_stored {
                    model.note_stored(number);
                }
            });
        }
        Ok(())
    }

    async fn post(self, key: u64, client: Client, answer: Answer) -> Result<(), String> {
        let call = self.model(|model| model.begin_call(key, client, Shape::NoCache, answer));
        let Some(response) = self.send(&call, Method::POST, HeaderMap::new()).await else { return Ok(()) };
        if response.status().is_success() {
            let purge = self.model(|model| model.calls[call.number as usize].purge);
            let Some(purge) = purge else { return Err(format!("law 12: key {key}: a change without its origin")) };
            self.model(|model| model.chronicle.acknowledge(purge));
            self.tally.lock().ignore_poison().purges += 1;
        }
        Ok(())
    }

    async fn purge(self, subject: Subject) -> Result<(), String> {
        let purge = self.model(|model| model.chronicle.begin_purge(subject));
        let outcome = match subject {
            Subject::Key(key) => self.cache.remove(&uri_of(key)).await,
            Subject::All | Subject::Tag(_) => self.cache.cache().clear().await,
        };
        if outcome.is_ok() {
            self.model(|model| model.chronicle.acknowledge(purge));
            self.tally.lock().ignore_poison().purges += 1;
        }
        Ok(())
    }
}

fn uri_of(key: u64) -> Uri {
    Uri::try_from(content::key_bytes(key)).expect("keys are URIs")
}

/// Returns what the field Cache-Status of a response says, or `None` if it is missing.
fn said(fields: &HeaderMap) -> Option<Said> {
    let status = fields.get("cache-status")?.to_str().ok()?;
    let has = |wanted: &str| status.split(';').any(|part| part.trim() == wanted);
    Some(Said { is_hit: has("hit"), is_stored: has("stored"), is_collapsed: has("collapsed") })
}

/// Returns the range in Content-Range, if the field says that the whole has `len` bytes.
fn part_in(fields: &HeaderMap, len: u64) -> Option<Range<u64>> {
    let (range, whole) = fields.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let first = first.parse().ok()?;
    let last: u64 = last.parse().ok()?;
    (whole.parse() == Ok(len)).then_some(first..last + 1)
}
