//! What an HTTP cache may answer: every response of the origin, the purges, and the laws that tell them apart.
//!
//! Invariant: a response is known by its number, which it carries in a field of its own and which a cache keeps with
//! it. Laws 1, 3 to 6, 10 and 12 are judged here.

use super::super::{
    chronicle::{Chronicle, Purge, Subject},
    theatre::{DIRTY_BYTES, MEMORY_BYTES},
};
use super::{Answer, AnswerEnd, Client, Confirms, KEY_COUNT, Resource, Rule, Shape, TagKind};

/// A request that a client sends to the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) key: u64,
    pub(super) client: Client,
    pub(super) shape: Shape,
    pub(super) answer: Answer,
    pub(super) began: u64,
    began_ms: u64,
    pub(super) is_required: bool,
    /// Number of requests that the cache sent to the origin because of this call.
    pub(super) ask_count: u64,
    /// Index of the removal that the origin's answer to an unsafe request, such as a POST, has started.
    pub(super) purge: Option<usize>,
}

/// A request that the cache sends to the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    call: Call,
    began: u64,
    ended: Option<u64>,
    ended_ms: Option<u64>,
}

/// A response with a body that the origin has sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentResponse {
    pub(super) call: Call,
    pub(super) content: u64,
    /// Length of the whole representation in bytes, even if the response has only a range of it.
    pub(super) len: u64,
    pub(super) resource: Resource,
    /// Tick at which the cache asked the origin.
    began: u64,
    /// Tick at which the cache sent the last request that the origin answered with this content.
    confirmed: u64,
    pub(super) is_complete: bool,
    /// Tick at which a client had read all of the response, if Cache-Status said that it is stored.
    stored: Option<u64>,
    /// Tick at which the client whose request led to the response had read all of it.
    received: Option<u64>,
    /// Whether no other response of the resource can have been written at that tick.
    is_alone: bool,
    ended: Option<u64>,
    fresh_from_ms: u64,
    life: u64,
}

/// The properties on which the bytes of a body depend: the key, the last change of its resource, and the client's
/// language and identity if the resource depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    key: u64,
    change: u64,
    language: Option<u64>,
    asker: Option<u64>,
}

/// The statements of the cache about a response in its field Cache-Status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) is_hit: bool,
    pub(super) is_stored: bool,
    pub(super) is_collapsed: bool,
}

/// The history of all resources. It determines which responses the cache may give.
pub(super) struct ResponseModel {
    pub(super) chronicle: Chronicle,
    resources: [(Resource, u64); KEY_COUNT as usize],
    contents: Vec<Content>,
    pub(super) calls: Vec<Call>,
    asks: Vec<Ask>,
    pub(super) sent: Vec<SentResponse>,
    stored_bytes: u64,
    room_bytes: u64,
    /// Last tick at which the cache had no work left, so that everything was stored.
    rested: u64,
}

impl ResponseModel {
    pub(super) fn new(chronicle: Chronicle, room_bytes: u64) -> Self {
        let first = Resource { len: 100, rule: Rule::MaxAge { secs: 3600 }, tag: TagKind::Strong, varies: false };
        Self {
            chronicle,
            resources: [(first, 0); KEY_COUNT as usize],
            contents: Vec::new(),
            calls: Vec::new(),
            asks: Vec::new(),
            sent: Vec::new(),
            stored_bytes: 0,
            room_bytes,
            rested: 0,
        }
    }

    /// Replaces a resource of the origin by `to`.
    pub(super) fn change(&mut self, key: u64, to: Resource) {
        let now = self.chronicle.tick();
        self.resources[key as usize] = (to, now);
    }

    pub(super) fn resource(&self, key: u64) -> Resource {
        self.resources[key as usize].0
    }

    pub(super) fn begin_call(&mut self, key: u64, client: Client, shape: Shape, answer: Answer) -> Call {
        let call = Call {
            number: self.calls.len() as u64,
            key,
            client,
            shape,
            answer,
            began: self.chronicle.tick(),
            began_ms: self.chronicle.now_ms,
            is_required: matches!(shape, Shape::Plain | Shape::OnlyIfCached) && self.is_required(key),
            ask_count: 0,
            purge: None,
        };
        self.calls.push(call);
        call
    }

    /// Notes that the cache asks the origin because of call `call`. Breaks law 6 if this call could share running
    /// requests, law 10 if a stored response must be used, and law 12 if the client forbade a request to the origin.
    /// Returns the number of the new request.
    pub(super) fn begin_ask(&mut self, call: u64) -> usize {
        let began = self.chronicle.tick();
        self.calls[call as usize].ask_count += 1;
        let call = self.calls[call as usize];
        let key = call.key;
        if call.is_required && self.is_required(key) {
            self.chronicle.break_law(format!("law 10: key {key} is fetched although it must be stored"));
        }
        if call.shape == Shape::OnlyIfCached {
            self.chronicle.break_law(format!("law 12: key {key} is fetched for a client that forbids it"));
        }
        let running = self.asks.iter().filter(|ask| ask.ended.is_none() && self.can_be_shared(ask, &call));
        let running: Vec<u64> = running.map(|ask| ask.call.number).collect();
        if running.len() > 1 && self.is_calm() {
            let what = format!("law 6: key {key} is fetched although the fetches of calls {running:?} are running");
            self.chronicle.break_law(what);
        }
        self.asks.push(Ask { call, began, ended: None, ended_ms: None });
        self.asks.len() - 1
    }

    /// Returns whether `call` has to wait for the running request `ask` instead of asking the origin itself. It does
    /// not have to wait if the cache knows that responses for the key cannot be shared.
    fn can_be_shared(&self, ask: &Ask, call: &Call) -> bool {
        let key = call.key;
        let is_sharable = |ask: &Ask| {
            let Answer { end, .. } = ask.call.answer;
            ask.call.shape == Shape::Plain && end == AnswerEnd::Whole
        };
        let resource = self.resource(key);
        let is_old = |ask: &Ask| self.resources[key as usize].1 < ask.call.began;
        let of_key = |ask: &&Ask| ask.call.key == key;
        ask.call.key == key
            && call.shape == Shape::Plain
            && resource.rule == Rule::MaxAge { secs: 3600 }
            && !resource.varies
            && self.asks.iter().filter(of_key).all(|ask| is_sharable(ask) && is_old(ask))
            && !self.chronicle.purges.iter().any(|purge| purge.concerns(key, 0) && !purge.is_before(ask.call.began))
    }

    pub(super) fn end_ask(&mut self, ask: usize) {
        let now = self.chronicle.tick();
        let ask = &mut self.asks[ask];
        ask.ended.get_or_insert(now);
        ask.ended_ms.get_or_insert(self.chronicle.now_ms);
    }

    /// Returns the number of the content that the origin has now for a client, a key and a kind of request.
    pub(super) fn content(&mut self, key: u64, client: &Client, shape: Shape) -> u64 {
        let (resource, change) = self.resources[key as usize];
        let is_personal = resource.rule == Rule::Private || shape == Shape::Authorized;
        let content = Content {
            key,
            change,
            language: resource.varies.then_some(client.language),
            asker: is_personal.then_some(client.asker),
        };
        let at = self.contents.iter().position(|known| *known == content).unwrap_or_else(|| {
            self.contents.push(content);
            self.contents.len() - 1
        });
        at as u64
    }

    /// Returns the entity tag of a content, if its resource has one.
    pub(super) fn tag(&self, content: u64) -> Option<String> {
        match self.resource(self.contents.get(content as usize)?.key).tag {
            TagKind::Strong => Some(format!("\"{content}\"")),
            TagKind::Weak => Some(format!("W/\"{content}\"")),
            TagKind::None => None,
        }
    }

    /// Notes that the origin sends a response with a body to request `ask`. Returns the number of the response.
    pub(super) fn send(&mut self, ask: usize, content: u64, len: u64) -> u64 {
        let Ask { call, began, .. } = self.asks[ask];
        self.stored_bytes += len + ENTRY_BYTES;
        self.sent.push(SentResponse {
            call,
            content,
            len,
            resource: self.resource(call.key),
            began,
            confirmed: began,
            is_complete: false,
            stored: None,
            received: None,
            is_alone: false,
            ended: None,
            fresh_from_ms: self.chronicle.now_ms,
            life: self.chronicle.life,
        });
        self.sent.len() as u64 - 1
    }

    /// Notes that the origin has confirmed a content with its answer to request `ask`, such as a 304. Stored responses
    /// with this content count as fresh again, and as requested with `ask`.
    pub(super) fn confirm(&mut self, ask: usize, content: u64) {
        let now_ms = self.chronicle.now_ms;
        let began = self.asks[ask].began;
        for sent in self.sent.iter_mut().filter(|sent| sent.content == content) {
            sent.fresh_from_ms = now_ms;
            sent.confirmed = sent.confirmed.max(began);
        }
    }

    /// Notes that the body of response `number` has ended. `is_complete` says whether all its bytes were sent.
    pub(super) fn end(&mut self, number: u64, is_complete: bool) {
        let now = self.chronicle.tick();
        let sent = &mut self.sent[number as usize];
        sent.is_complete |= is_complete;
        sent.ended.get_or_insert(now);
    }

    /// Ends the present life of the cache, with a power loss if `is_power_cut`, and begins the next.
    pub(super) fn restart(&mut self, is_power_cut: bool) {
        self.chronicle.restart(is_power_cut);
        let now = self.chronicle.now;
        self.asks.iter_mut().for_each(|ask| _ = ask.ended.get_or_insert(now));
        self.sent.iter_mut().for_each(|sent| _ = sent.ended.get_or_insert(now));
    }

    /// Checks that the cache may answer `call` with the head of response `number`: laws 1 (own key and language), 3
    /// (complete), 4 (not purged), 5 (not another client's) and 12 (Cache-Status is true, and what was stored is not
    /// replaced by an older response).
    pub(super) fn judge_head(&self, call: &Call, number: u64, said: Said) -> Result<(), String> {
        let key = call.key;
        let Some(sent) = self.sent.get(number as usize).filter(|sent| sent.call.key == key) else {
            return Err(format!("law 1: key {key} has response {number}, which is none of it"));
        };
        let is_own = sent.call.number == call.number;
        let content = self.contents[sent.content as usize];
        if content.language.is_some_and(|language| language != call.client.language) {
            return Err(format!("law 1: key {key}: response {number} is of another language"));
        }
        let is_others = content.asker.is_some_and(|asker| asker != call.client.asker);
        if is_others || sent.resource.rule == Rule::NoStore && !is_own {
            return Err(format!("law 5: key {key}: response {number} is for another client"));
        }
        let is_purged =
            |purge: &&Purge| purge.concerns(key, 0) && purge.is_before(call.began) && sent.began < purge.called;
        if let Some(purge) = self.chronicle.purges.iter().find(is_purged) {
            return Err(format!("law 4: key {key}: response {number} is older than the purge of {:?}", purge.subject));
        }
        if is_own && (said.is_hit || said.is_collapsed) {
            return Err(format!("law 12: key {key}: response {number} was sent for this call: {said:?}"));
        }
        let may_be_stored =
            matches!(sent.resource.rule, Rule::MaxAge { .. } | Rule::NoCache) && call.shape != Shape::Authorized;
        if is_own && said.is_stored && !may_be_stored {
            return Err(format!("law 12: key {key}: response {number} is said to be stored, but may not be"));
        }
        if let Some(newer) = self.sent.iter().find(|newer| self.has_replaced(newer, sent, call, said)) {
            let by = newer.call.number;
            return Err(format!("law 12: key {key}: response {number} is back, although call {by} has replaced it"));
        }
        let age_ms = call.began_ms.saturating_sub(sent.fresh_from_ms);
        let is_fresh = match sent.resource.rule {
            Rule::MaxAge { secs } => age_ms <= secs * 1000 + CLOCK_SLACK_MS,
            Rule::NoCache | Rule::NoStore | Rule::Private => false,
        };
        if said.is_hit && !is_fresh && !self.may_stand_in(sent, call) {
            return Err(format!("law 12: key {key}: response {number} is a hit although it is not fresh"));
        }
        // A response that is read while it arrives need not be complete yet.
        if said.is_hit && !sent.is_complete {
            return Err(format!("law 3: key {key}: response {number} is stored although it was never complete"));
        }
        Ok(())
    }

    /// Notes that the cache has no work left.
    pub(super) fn note_rest(&mut self) {
        self.rested = self.chronicle.tick();
    }

    /// Returns whether response `newer` has replaced `sent` for good before `call` began. Its client must have sent the
    /// request after the cache had asked for `sent`. Not judged if it may have been removed since.
    fn has_replaced(&self, newer: &SentResponse, sent: &SentResponse, call: &Call, said: Said) -> bool {
        newer.call.key == call.key
            && newer.call.began > sent.confirmed
            && newer.life == self.chronicle.life
            && self.is_unpurged_since(newer.call.began, call.key)
            && (self.was_stored(newer, call) || said.is_hit && self.hides_older(newer, call))
    }

    /// Returns whether response `newer` was stored before `call` began. After that, not even a fetch may bring an older
    /// one.
    fn was_stored(&self, newer: &SentResponse, call: &Call) -> bool {
        // Clients do not wait until their responses are stored.
        newer.stored.is_some_and(|stored| stored < self.rested && self.rested < call.began)
            // Two variants may be stored in any order, and so may a variant and a response that does not vary.
            && !self.has_variants(call.key)
            && self.is_calm()
    }

    /// Returns whether no hit may give an older response to `call`, although `newer` may still be written, or its write
    /// may have failed: the client of `newer` had received it before `call` began, and memory has it meanwhile.
    ///
    /// Not judged for a body that memory cannot keep, such as one in chunks: until its head is stored, requests get the
    /// older response. If other responses of the resource are being written, `newer` is in memory while it waits for
    /// them. That is not judged if one of them is a variant. A response that the store refuses is in memory, too, and
    /// the older one is removed.
    fn hides_older(&self, newer: &SentResponse, call: &Call) -> bool {
        newer.received.is_some_and(|received| received < call.began)
            && newer.len <= HOT_BODY_BYTES_MAX
            && self.stored_bytes <= MEMORY_BYTES / 2
            && (!newer.resource.varies || newer.call.client.language == call.client.language)
            && (newer.is_alone || !self.has_variants(call.key))
            && !self.chronicle.has_lied
    }

    /// Returns whether all purges that may concern `key` were acknowledged before `tick`.
    fn is_unpurged_since(&self, tick: u64, key: u64) -> bool {
        self.chronicle.purges.iter().all(|purge| !purge.concerns(key, 0) || purge.is_before(tick))
    }

    fn has_variants(&self, key: u64) -> bool {
        self.sent.iter().any(|sent| sent.call.key == key && sent.resource.varies)
    }

    /// Returns whether a stored response may answer a call although it is stale, because the origin has failed
    /// meanwhile (RFC 9111 4.2.4).
    fn may_stand_in(&self, sent: &SentResponse, call: &Call) -> bool {
        let has_failed = |ask: &Ask| {
            // The cache learns of the failure a little later, so a call may join the fetch in between.
            let is_meanwhile = ask.ended_ms.is_some_and(|ended_ms| ended_ms >= call.began_ms);
            let fails = matches!(ask.call.answer.end, AnswerEnd::Fails | AnswerEnd::Refuses);
            ask.call.key == call.key && is_meanwhile && fails
        };
        matches!(sent.resource.rule, Rule::MaxAge { .. }) && self.asks.iter().any(has_failed)
    }

    /// Checks law 12, that Cache-Status is true: it must say that the origin was asked if the origin was asked, and
    /// only then.
    pub(super) fn judge_said(&self, call: &Call, said: Said) -> Result<(), String> {
        let count = self.calls[call.number as usize].ask_count;
        // A stale response that stands in for a failing origin is a hit, too.
        let stands_in = said.is_hit && matches!(call.answer.end, AnswerEnd::Fails | AnswerEnd::Refuses);
        let is_asked = !said.is_hit && !said.is_collapsed || stands_in && count > 0;
        // The response of another request's fetch may be stored, too.
        match is_asked == (count > 0) && (!said.is_hit || !said.is_stored) {
            true => Ok(()),
            false => Err(format!("law 12: key {}: the origin was asked {count} times: {said:?}", call.key)),
        }
    }

    /// Checks that the cache may answer `call` without a stored response (law 10: what was stored is found).
    pub(super) fn judge_miss(&self, call: &Call) -> Result<(), String> {
        match call.is_required && self.is_required(call.key) {
            true => Err(format!("law 10: key {} is not found although it was stored", call.key)),
            false => Ok(()),
        }
    }

    /// Notes that the client whose request led to response `number` has read all of it.
    pub(super) fn note_received(&mut self, number: u64) {
        let now = self.chronicle.tick();
        let SentResponse { call, resource, .. } = self.sent[number as usize];
        let is_stored_or_other = |ask: &Ask| {
            let is_other = ask.call.key != call.key || ask.call.number == call.number;
            is_other || ask.ended.is_some_and(|ended| ended < self.rested)
        };
        let may_be_stored = matches!(resource.rule, Rule::MaxAge { .. } | Rule::NoCache);
        if may_be_stored && self.sent[number as usize].received.is_none() {
            let is_alone = self.asks.iter().all(is_stored_or_other);
            let sent = &mut self.sent[number as usize];
            (sent.received, sent.is_alone) = (Some(now), is_alone);
        }
    }

    /// Notes that the client of response `number` has read all of it, and Cache-Status says that the response is
    /// stored.
    pub(super) fn note_stored(&mut self, number: u64) {
        let now = self.chronicle.tick();
        if self.is_calm() {
            self.sent[number as usize].stored.get_or_insert(now);
        }
    }

    /// Returns whether the cache must have a stored response for `key`: one was stored, is fresh for long, and cannot
    /// have been removed or replaced since.
    fn is_required(&self, key: u64) -> bool {
        let of_key = |sent: &&SentResponse| sent.call.key == key;
        let Some(last) = self.sent.iter().rfind(of_key) else { return false };
        let is_long_fresh =
            last.resource.rule == Rule::MaxAge { secs: 3600 } && self.chronicle.now_ms < last.fresh_from_ms + 3_000_000;
        let is_alone = |ask: &Ask| {
            ask.call.key != key
                || ask.call.number == last.call.number
                || ask.ended.is_some_and(|ended| ended < last.call.began)
        };
        last.stored.is_some()
            && is_long_fresh
            // Requests share the fetch of the variant that an older response leads them to, so they may miss this one.
            && !self.has_variants(key)
            && last.life == self.chronicle.life
            && self.is_calm()
            && self.asks.iter().all(is_alone)
            && self.is_unpurged_since(last.call.began, key)
    }

    /// Returns whether the store has no reason to fail or to evict: the device is healthy and there is room.
    fn is_calm(&self) -> bool {
        let open: u64 = self.sent.iter().filter(|sent| sent.ended.is_none()).map(|sent| sent.len + ENTRY_BYTES).sum();
        self.chronicle.is_harmless && self.stored_bytes < self.room_bytes && open < DIRTY_BYTES / 2
    }

    /// Notes that the origin's answer to the unsafe request `call` removes the stored responses of its key.
    pub(super) fn begin_purge_by(&mut self, call: &Call) {
        let purge = self.chronicle.begin_purge(Subject::Key(call.key));
        self.calls[call.number as usize].purge = Some(purge);
    }

    /// Returns whether the origin may answer `call` with a 304 whose entity tag differs from the one in the request.
    pub(super) fn may_confirm_otherwise(call: &Call) -> bool {
        call.answer.confirms == Confirms::Otherwise
    }
}

/// Upper bound of the bytes that an entry takes on the device in addition to its own, in this model.
const ENTRY_BYTES: u64 = 16 << 10;
/// Maximum delay in milliseconds of the cache, compared to the model, when it begins to count the age of a response.
const CLOCK_SLACK_MS: u64 = 10_000;
/// Maximum length in bytes of a body that the memory cache certainly keeps. Responses get at least half of the memory,
/// one of them at most 1/32 of that, and the allocator and the head take a quarter of a body's length in addition.
const HOT_BODY_BYTES_MAX: u64 = MEMORY_BYTES / 80;
