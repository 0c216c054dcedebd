//! Probes, reads and writes the store for a body.
//!
//! Owns: the order in which the parts of an entry become visible, and the time for which the store may delay clients.
//! `cache::chunks` has the keys, and `cache::storing` stores heads.

use std::{
    ops::Range,
    pin::pin,
    sync::{Arc, MutexGuard},
};

use crate::object::{Event, ProbeEnd, ReadEnd, StoreEnd};
use bytes::Bytes;
use larder_http::{BodyPlace, StoredHead};

use super::{fill::Fill, head::BodyHead, long_body::LongBody, state::BodyState};
use crate::http::{
    chunks::{AbsenceReason, PlacedBytes},
    committed_body::CommittedBody,
    entry::CHUNK_BYTES,
    fetcher::{FetchEvent, Fetcher},
    patience::ReadPatience,
    storing,
};

impl<F: Fetcher> LongBody<F> {
    pub(super) fn begin_probe(self: &Arc<Self>, chunk: u64) -> Option<Event<BodyHead>> {
        let body = Arc::clone(self);
        let probing = async move { Event::Probed(chunk, body.chunks.probe(chunk).await) };
        self.start(probing, Event::Probed(chunk, ProbeEnd::Trouble))
    }

    pub(super) fn begin_read(self: &Arc<Self>, range: Range<u64>) -> Option<Event<BodyHead>> {
        if let Some(bytes) = self.lock().fill.as_ref().and_then(|fill| fill.whole_part(&range)) {
            return Some(Event::Read(range, ReadEnd::Bytes(bytes)));
        }
        let lost = Event::Read(range.clone(), ReadEnd::Trouble);
        // Counted before the read, so that the reads that begin together see each other.
        let reserved = self.budget().reserve(range.end - range.start);
        let body = Arc::clone(self);
        let reading = async move {
            // If memory is short, the read first waits for others.
            let _turn = body.budget().begin_read().await;
            // If there is no other source, giving up early would be useless.
            let patience = if body.chunks.can_go_on() { ReadPatience::Short } else { ReadPatience::Long };
            let end = match body.chunks.read(range.start / CHUNK_BYTES, range.clone(), patience).await {
                Ok(bytes) => ReadEnd::Bytes(reserved.hold(bytes)),
                Err(AbsenceReason::Gap) => ReadEnd::Absent,
                Err(AbsenceReason::Trouble) => ReadEnd::Trouble,
            };
            Event::Read(range, end)
        };
        self.start(reading, lost)
    }

    /// Stores a chunk. A body that is short enough is instead kept in memory, and stored in the same entry as its head.
    pub(super) fn begin_store(self: &Arc<Self>, chunk: u64, pieces: Vec<Bytes>) -> Option<Event<BodyHead>> {
        {
            let mut state = self.lock();
            let len = state.core.len();
            let BodyState { fill, unkept, .. } = &mut *state;
            if let Some(fill) = fill {
                if fill.is_refused {
                    return Some(Event::Stored(chunk, StoreEnd::Refused));
                }
                if Fill::is_short(len) && len <= Some(fill.plan.size_max) {
                    fill.whole = Some(pieces);
                    return Some(Event::Stored(chunk, StoreEnd::Done));
                }
                if !fill.admits_chunks(self.means.cache(), (chunk + 1) * CHUNK_BYTES) {
                    return Some(Event::Stored(chunk, StoreEnd::Refused));
                }
            }
            if is_unkept(unkept, &self.chunks.span(chunk)) {
                return Some(Event::Stored(chunk, StoreEnd::Skipped));
            }
        }
        let body = Arc::clone(self);
        let storing = async move {
            let len = pieces.iter().map(Bytes::len).sum::<usize>() as u64;
            let end = match body.hold_up.bounded(len, body.chunks.store_chunk(chunk, pieces)).await {
                Some(true) => StoreEnd::Done,
                Some(false) => StoreEnd::Refused,
                None => {
                    body.means.cache().shared.patience.note_behind();
                    StoreEnd::Refused
                }
            };
            Event::Stored(chunk, end)
        };
        self.start(storing, Event::Stored(chunk, StoreEnd::Refused))
    }

    /// Stores a part of a chunk: `part` is its position in the body, and its bytes.
    pub(super) fn begin_store_part(self: &Arc<Self>, chunk: u64, part: (u64, Vec<Bytes>)) -> Option<Event<BodyHead>> {
        let (start, pieces) = part;
        let end = start + pieces.iter().map(Bytes::len).sum::<usize>() as u64;
        {
            let mut state = self.lock();
            let is_kept = match &mut state.fill {
                Some(fill) => fill.admits_chunks(self.means.cache(), end),
                None => true,
            };
            if !is_kept || is_unkept(&state.unkept, &(start..end)) {
                return Some(Event::StoredPart(chunk, StoreEnd::Skipped));
            }
        }
        let body = Arc::clone(self);
        let storing = async move {
            let arrived = PlacedBytes { start, bytes: pieces.concat().into() };
            let end = if body.chunks.store_fragment(chunk, arrived).await { StoreEnd::Done } else { StoreEnd::Refused };
            Event::StoredPart(chunk, end)
        };
        self.start(storing, Event::StoredPart(chunk, StoreEnd::Refused))
    }

    /// Stores the head, so that later lookups find the stored bytes. Does nothing for a body that was opened from the
    /// store, because its head is there.
    pub(super) fn begin_commit(self: &Arc<Self>, is_whole: bool) -> Option<Event<BodyHead>> {
        let mut state = self.lock();
        if is_whole {
            let completed = Self::completed(&mut state)?;
            let fill = state.fill.as_mut().filter(|fill| !fill.is_committed)?;
            fill.is_committed = true;
            let body = match &fill.whole {
                Some(pieces) => CommittedBody::Whole(completed, pieces.clone()),
                None if completed.is_empty() => CommittedBody::Whole(completed, Vec::new()),
                None => CommittedBody::Chunks(completed),
            };
            return self.commit(state, body);
        }
        let fill = state.fill.as_mut()?;
        fill.is_headless = true;
        let is_due = fill.plan.is_part || fill.plan.may_announce && fill.is_long_before_its_end();
        if is_due { self.announce(state) } else { None }
    }

    /// Stores the head of an incomplete body, and hides it from lookups while the body arrives.
    fn announce(self: &Arc<Self>, mut state: MutexGuard<'_, BodyState<F>>) -> Option<Event<BodyHead>> {
        let fill = state.fill.as_mut()?;
        fill.is_headless = false;
        fill.has_part = true;
        if fill.arrival.is_none() && !fill.plan.is_part {
            fill.arrival = Some(self.means.cache().shared.arrivals.begin(self.chunks.place.representation));
        }
        self.commit(state, CommittedBody::Part)
    }

    /// Begins to store the head. `body` says where its body is: in the same entry, or in chunks.
    fn commit(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, BodyState<F>>,
        body: CommittedBody,
    ) -> Option<Event<BodyHead>> {
        let len = state.core.len()?;
        let fill = state.fill.as_mut()?;
        let place = match body {
            CommittedBody::Whole(..) => BodyPlace::Whole { len },
            CommittedBody::Chunks(_) | CommittedBody::Part => {
                BodyPlace::Chunks { len, representation: self.chunks.place.representation }
            }
        };
        let plan = Arc::clone(&fill.plan);
        let placed = (plan.head.body() != place).then(|| StoredHead::clone(&plan.head).with_body(place));
        let is_whole = !matches!(body, CommittedBody::Part);
        state.commits += 1;
        drop(state);
        let ended = CommitGuard(Arc::clone(self));
        let this = Arc::clone(self);
        let committing = async move {
            let cache = &this.chunks.cache;
            let head = placed.as_ref().unwrap_or(&plan.head);
            // Pinned where it is made: awaited as a value, its kilobytes would be copied once more.
            pin!(storing::commit(cache, &plan.place, head, body, &plan.work)).await;
            if is_whole {
                if !plan.is_part {
                    this.means.note(FetchEvent::Stored { primary: &plan.place.primary, head });
                }
                let arrival = this.lock().fill.as_mut().and_then(|fill| fill.arrival.take());
                drop(arrival);
            }
            drop(ended);
            Event::Tick
        };
        self.start(committing, Event::Tick)
    }

    /// Removes the stored head, because the origin now has another representation.
    pub(super) fn begin_forget(self: &Arc<Self>) -> Option<Event<BodyHead>> {
        let body = Arc::clone(self);
        let forgetting = async move {
            body.chunks.forget().await;
            Event::Tick
        };
        self.start(forgetting, Event::Tick)
    }

    /// Reports that the response is not stored, if the store or the origin was too slow for it.
    ///
    /// Called once for a body, however many of its chunks the store did not take.
    pub(super) fn note_given_up(&self) -> Option<Event<BodyHead>> {
        let why = if self.hold_up.is_over() {
            "the store cannot keep up"
        } else if self.budget().is_scarce() {
            "memory is short and the origin is slow"
        } else {
            return None;
        };
        self.means.note(FetchEvent::GivenUp);
        tracing::debug!("a response is not stored: {why}");
        None
    }

    /// Reports that the body does not have the digest that `named_by` names.
    pub(super) fn note_mismatch(&self, named_by: &str) {
        let asked = Arc::clone(&self.lock().asker.asked);
        self.means.note(FetchEvent::Mismatched { asked: &asked, named_by });
    }
}

/// Whether a response that has arrived, or has broken off, is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandedBody {
    /// The response is stored, as far as it arrived.
    Kept,
    /// The response arrived, but is not stored.
    Unkept,
}

/// The last step of storing a response, after it has arrived or broken off.
impl<F: Fetcher> LongBody<F> {
    /// Waits until everything of an arriving response that will be stored is stored, and ends its storing.
    ///
    /// The stored parts of an incomplete body stay if the remainder can be requested; otherwise they are forgotten.
    /// `is_current` returns whether no later fetch of the resource has begun.
    pub async fn land(self: &Arc<Self>, is_current: impl Fn() -> bool) -> LandedBody {
        self.settled().await;
        let announced = {
            let mut state = self.lock();
            let Some(fill) = &mut state.fill else { return LandedBody::Kept };
            if fill.is_headless && !fill.is_committed && self.chunks.can_go_on() && is_current() {
                self.announce(state)
            } else {
                None
            }
        };
        if let Some(event) = announced {
            self.on(event);
        }
        self.settled().await;
        let mut state = self.lock();
        let is_unkept = state.core.is_complete();
        let Some(fill) = &mut state.fill else { return LandedBody::Kept };
        let arrival = fill.arrival.take();
        let is_kept = fill.is_committed || fill.has_part || !is_unkept;
        drop(state);
        drop(arrival);
        if is_kept { LandedBody::Kept } else { LandedBody::Unkept }
    }
}

/// A guard that ends a commit of the head on drop, even if the commit's task is dropped.
struct CommitGuard<F: Fetcher>(Arc<LongBody<F>>);

impl<F: Fetcher> Drop for CommitGuard<F> {
    fn drop(&mut self) {
        self.0.lock().commits -= 1;
        self.0.note_rest();
    }
}

fn is_unkept(unkept: &[Range<u64>], span: &Range<u64>) -> bool {
    unkept.iter().any(|other| other.start < span.end && span.start < other.end)
}

impl Fill {
    /// Returns the bytes `range` of a short body that is kept in memory until its head is stored. `None` for any other
    /// body.
    fn whole_part(&self, range: &Range<u64>) -> Option<Bytes> {
        let pieces = self.whole.as_ref()?;
        if let [piece] = &pieces[..] {
            return (range.end <= piece.len() as u64).then(|| piece.slice(range.start as usize..range.end as usize));
        }
        let all = Bytes::from(pieces.concat());
        (range.end <= all.len() as u64).then(|| all.slice(range.start as usize..range.end as usize))
    }
}
