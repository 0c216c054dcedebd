//! The clients of a body: how they come, take bytes, and leave.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use crate::object::{CursorEnd, CursorId, CursorTerms, Event, PromiseRule, Spans};
use bytes::Bytes;
use http::HeaderMap;
use larder_store::ReclaimGuard;

use super::{
    continuation::ContinuedBody,
    cursor::BodyCursor,
    error::BodyError,
    fill::Fill,
    long_body::LongBody,
    orders::Orders,
    state::{Asker, BodyState},
};
use crate::{
    chunk_format::{CHUNK_BYTES, chunks_of},
    http::{body_budget::SHARE_BYTES_MIN, fetcher::Fetcher},
};

impl<F: Fetcher> LongBody<F> {
    /// Adds a client that reads `spans`, which must lie within the body. If bytes are missing, they are requested with
    /// the client's request `asked` through `means`.
    pub fn attach(self: &Arc<Self>, means: &Arc<F>, asked: &Arc<F::Asked>, spans: Spans) -> BodyCursor<F> {
        self.attach_by(self.means.terms(asked, &self.chunks), means, asked, spans)
    }

    /// Adds a client that has already waited for the head of this response. Its own head is final, so it does not wait
    /// until all its bytes are certain.
    pub fn attach_waiting(self: &Arc<Self>, means: &Arc<F>, asked: &Arc<F::Asked>, spans: Spans) -> BodyCursor<F> {
        let terms = CursorTerms { promise: PromiseRule::Given, ..self.means.terms(asked, &self.chunks) };
        self.attach_by(terms, means, asked, spans)
    }

    fn attach_by(
        self: &Arc<Self>,
        terms: CursorTerms,
        means: &Arc<F>,
        asked: &Arc<F::Asked>,
        spans: Spans,
    ) -> BodyCursor<F> {
        let asker = Asker { asked: Arc::clone(asked), means: Arc::clone(means) };
        let id = self.enter(Some(asker), spans.clone(), terms);
        BodyCursor::new(Arc::clone(self), id, terms, &spans)
    }

    /// Adds a client on the given terms. If it may cause requests, missing bytes are requested with `asker` from now
    /// on.
    pub(super) fn enter(self: &Arc<Self>, asker: Option<Asker<F>>, spans: Spans, terms: CursorTerms) -> CursorId {
        let mut orders = Orders::default();
        let id = {
            let mut state = self.lock();
            if let Some(asker) = asker.filter(|_| terms.may_ask) {
                state.asker = asker;
            }
            self.doubt_moved(&mut state, &spans, &mut orders);
            let id = state.add_cursor();
            self.update_share(&mut state, &mut orders);
            state.step(self.now(), Event::Attach(id, spans, terms), &mut orders);
            id
        };
        self.execute(orders);
        id
    }

    /// Tells the core which chunks of `spans` have moved in the store since they were seen, or have left it. It probes
    /// for them again.
    fn doubt_moved(&self, state: &mut BodyState<F>, spans: &Spans, orders: &mut Orders<F>) {
        let Some(len) = state.core.len().filter(|len| *len > CHUNK_BYTES) else { return };
        for span in spans {
            for number in chunks_of(&(span.start..span.end.min(len))) {
                if state.core.is_in_store(number) && !self.chunks.was_seen(number) {
                    state.step(self.now(), Event::Unsure(number), orders);
                }
            }
        }
    }

    /// Removes a client. If nobody else reads the body, a fetch that is nearly complete is finished all the same.
    pub(super) fn leave(self: &Arc<Self>, id: CursorId) {
        let mut orders = Orders::default();
        {
            let mut state = self.lock();
            state.remove_cursor(id);
            state.step(self.now(), Event::Left(id), &mut orders);
            let is_worth_it = state.fill.as_ref().is_some_and(Fill::is_worth_finishing);
            if state.is_unread() && is_worth_it && !state.core.is_complete() {
                state.step(self.now(), Event::Keep(0..u64::MAX), &mut orders);
            }
        }
        self.execute(orders);
    }

    /// Continues to receive and store the whole body, even without clients.
    pub fn keep(self: &Arc<Self>) {
        self.on(Event::Keep(0..u64::MAX));
    }

    /// Waits until the body promises a client all its bytes. Returns the response that brings the missing ones, or
    /// `None` if none are missing. Fails if the body cannot give this promise.
    pub(super) fn poll_promise(
        &self,
        id: CursorId,
        context: &Context<'_>,
    ) -> Poll<Result<Option<ContinuedBody>, CursorEnd>> {
        let mut state = self.lock();
        let slot = state.cursor(id);
        match (slot.is_promised, slot.end) {
            (true, _) => Poll::Ready(Ok(slot.continued)),
            (false, Some(end)) => Poll::Ready(Err(end)),
            (false, None) => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns a client's next bytes and their position in the body, or the reason why no more come.
    pub(super) fn poll_bytes(
        self: &Arc<Self>,
        id: CursorId,
        context: &Context<'_>,
    ) -> Poll<Result<(u64, Bytes), CursorEnd>> {
        let mut orders = Orders::default();
        let polled = {
            let mut state = self.lock();
            self.update_share(&mut state, &mut orders);
            self.take_bytes(&mut state, (id, context), &mut orders)
        };
        self.execute(orders);
        polled
    }

    fn take_bytes(
        &self,
        state: &mut BodyState<F>,
        (id, context): (CursorId, &Context<'_>),
        orders: &mut Orders<F>,
    ) -> Poll<Result<(u64, Bytes), CursorEnd>> {
        let position = state.core.position(id);
        if let Some((position, bytes)) = position.zip(state.core.bytes_at(id)) {
            let bytes = self.portion(bytes);
            let moved = Event::Moved(id, position + bytes.len() as u64);
            state.step(self.now(), moved, orders);
            return Poll::Ready(Ok((position, bytes)));
        }
        let slot = state.cursor(id);
        if let Some(end) = slot.end {
            return Poll::Ready(Err(end));
        }
        slot.waker = Some(context.waker().clone());
        if let Some(position) = position.filter(|_| !std::mem::replace(&mut slot.is_waiting, true)) {
            state.step(self.now(), Event::Moved(id, position), orders);
        }
        Poll::Pending
    }

    /// Returns the part of `bytes` that a client gets at once. If memory is short, this is a copy of a few bytes, so
    /// that a client that stops reading holds little memory.
    fn portion(&self, bytes: Bytes) -> Bytes {
        let budget = self.budget();
        if !budget.is_scarce() {
            return bytes;
        }
        budget.count(Bytes::copy_from_slice(&bytes[..bytes.len().min(SHARE_BYTES_MIN as usize)]))
    }

    /// Returns the position in the body of a client's next byte. `None` if the core has ended the client.
    pub(super) fn position(&self, id: CursorId) -> Option<u64> {
        self.lock().core.position(id)
    }

    /// Returns the trailers that came after the body, if any.
    pub(super) fn trailers(&self) -> Option<HeaderMap> {
        self.lock().trailers.clone()
    }

    /// Returns the error with which a client's body breaks off, when the core ended the client for the reason `end`.
    pub(super) fn error(&self, end: CursorEnd) -> BodyError {
        let state = self.lock();
        let is_arriving = state.fill.as_ref().is_some_and(|fill| !fill.is_committed);
        match end {
            CursorEnd::TooSlow => BodyError::TooSlow,
            CursorEnd::Whole | CursorEnd::Broken | CursorEnd::MoveOver | CursorEnd::AskAlone => {
                if is_arriving {
                    state.error.unwrap_or(BodyError::OriginBroke)
                } else {
                    BodyError::PartMissing
                }
            }
        }
    }

    /// Returns a guard that keeps a chunk in the store while a client is on its way to it. `None` if the chunk is not
    /// in the store, or the body is too short to need one.
    pub(super) fn protect(&self, number: u64) -> Option<ReclaimGuard> {
        let store = self.means.cache().shared.store.as_ref()?;
        self.chunks.body_len().filter(|len| *len > CHUNK_BYTES)?;
        Some(store.protect(&self.chunks.chunk_key(number)))
    }
}
