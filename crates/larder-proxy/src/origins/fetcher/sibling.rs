//! Contacts the node of the fleet that owns a resource before the resource's origin.
//!
//! Owns: which requests go to a sibling, and when the sibling is bypassed. Invariants: a request goes through one
//! sibling at most. The origin can still be contacted whatever a sibling does: a sibling that is silent, unreachable,
//! or returns an error of its own is bypassed.
//!
//! A sibling responds with a 102 at once and every half second, so a slow origin does not make it look silent.
//! Invariant: no request waits for a sibling that shows no sign of life for longer than [`SIGN_PATIENCE`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::{Method, header, response};
use larder_cache::http::fetcher::{ClientRequest as _, RequestEdits};

use crate::{
    ground::{
        cache::{body::continuation::MissingRange, chunks::ChunkedBody, mark::OriginMark},
        errors::Failure,
    },
    origins::{
        body::OriginBody,
        fetcher::OriginFetcher,
        http1::InterimTaker,
        pool::{AskingClient, ReplayableRequest, RetryRule},
    },
    targets::{
        asked::RequestHead,
        siblings::{PEER_FIELD, PeerProof, PeerWords, SiblingNode, SiblingOutcome},
    },
};

impl OriginFetcher {
    /// Requests a piece of a resource from the node that owns it.
    ///
    /// Returns `None` if the origin must be contacted: this node is the owner, the response cannot be shared between
    /// nodes, or the owner did not answer.
    pub(super) async fn ask_sibling(
        &self,
        asked: &RequestHead,
        edits: &RequestEdits,
        piece: u64,
    ) -> Option<(response::Parts, OriginBody)> {
        let siblings = self.siblings.as_ref()?;
        let key = asked.key.as_ref().filter(|_| may_be_shared(asked))?;
        if self.cache.shared.uncollapsible.contains(key) {
            return None;
        }
        let sibling = siblings.owner(key, piece)?;
        let words = PeerWords::new(siblings, key, &self.cache.shared.purges)?;
        let url = asked.uri()?;
        let mark = OriginMark::of_key(key).name();
        let signs = Arc::new(SiblingSigns::new());
        let make = || {
            let mut request = asked.outgoing(&self.marks, edits);
            *request.uri_mut() = url.clone();
            words.put(siblings, (&sibling.name, mark), &url, request.headers_mut());
            request
        };
        let origin = sibling.origin.clone();
        let repeat = RetryRule::Safe;
        let client = AskingClient { ends: None, interim: Some(listener(asked, &signs)) };
        let outgoing = ReplayableRequest { origin, choice: None, key: None, repeat, client: Some(&client), make };
        let asking = self.origins.ask_sibling(outgoing, &PEER_FIELD);
        let answered = tokio::select! {
            biased;
            answered = asking => answered,
            () = signs.end(siblings.patience) => Err(Failure::Timeout { host: sibling.name.to_string() }),
        };
        let (mut head, body) = self.judge(&sibling, answered)?;
        match words.take_proof(siblings, head.status, &mut head.headers) {
            PeerProof::Given => {}
            PeerProof::Refused(difference) => {
                siblings.note_difference(&sibling, difference);
                return None;
            }
            PeerProof::Missing => {
                sibling.note(SiblingOutcome::Failed("it cannot answer for a resource that it owns"));
                let node = &*sibling.name;
                let status = head.status.as_u16();
                tracing::debug!(node, status, "a node of the fleet cannot answer for a resource that it owns");
                return None;
            }
        }
        siblings.note_answer(&sibling);
        words.settle(siblings, key, &sibling.name);
        self.metrics.sibling_responses.add(1);
        asked.put_ruling(&self.cache.shared.rules, head.status, &mut head.headers);
        Some((head, body))
    }

    /// Returns whether the nodes divide a body of `len` bytes into pieces for this request.
    ///
    /// That also requires that the origin answers range requests.
    pub(super) fn may_divide(&self, asked: &RequestHead, len: u64) -> bool {
        let is_for_nodes = asked.is_by_sibling || may_be_shared(asked);
        let known = self.siblings.as_ref().zip(asked.key.as_ref()).filter(|_| is_for_nodes);
        // A pinned body must be complete on its owner's disk.
        known.is_some_and(|(siblings, key)| siblings.divide(key, len) && !self.cache.shared.pins.name(key))
    }

    /// Returns whether the nodes divide a stored body into pieces for this request.
    pub(super) fn divides_stored(&self, asked: &RequestHead, chunks: &ChunkedBody) -> bool {
        chunks.is_divisible && chunks.body_len().is_some_and(|len| self.may_divide(asked, len))
    }

    /// Returns the number of the piece that contains `position`. `None` if the body is not divided.
    pub(super) fn piece_of(&self, asked: &RequestHead, missing: &MissingRange<'_>, position: u64) -> Option<u64> {
        let is_divided = missing.is_divisible && self.may_divide(asked, missing.len);
        self.siblings.as_ref().filter(|_| is_divided).map(|siblings| siblings.pieces.number(position))
    }

    /// Records that the origin ignores range requests for a resource: it sent the whole body when a piece was
    /// requested.
    pub(super) fn note_whole(&self, asked: &RequestHead) {
        if let Some((siblings, key)) = self.siblings.as_ref().zip(asked.key.as_ref()) {
            siblings.pieces.note_whole(key);
        }
    }

    fn judge<T>(&self, sibling: &SiblingNode, answered: Result<T, Failure>) -> Option<T> {
        let failure = match answered {
            Ok(answered) => return Some(answered),
            Err(failure) => failure,
        };
        sibling.note(match &failure {
            Failure::Unusable { fault, .. } => SiblingOutcome::Unreachable(&fault.why),
            Failure::Broken { why, .. } => SiblingOutcome::Failed(why),
            _ => SiblingOutcome::Silent,
        });
        tracing::debug!(node = &*sibling.name, %failure, "a node of the fleet is passed by");
        self.metrics.sibling_bypasses.add(1);
        None
    }
}

/// Returns whether the nodes may share responses to a request.
fn may_be_shared(asked: &RequestHead) -> bool {
    let is_plain = asked.method == Method::GET && asked.question.is_none() && !asked.has_body();
    is_plain && !asked.is_by_sibling && !asked.has(&header::AUTHORIZATION) && !asked.directives.no_store
}

/// Returns the function that receives the interim responses of a sibling, another node of the fleet.
///
/// Each of them shows that the sibling is alive. Those that came from the origin are also forwarded to the client.
fn listener(asked: &RequestHead, signs: &Arc<SiblingSigns>) -> InterimTaker {
    let signs = Arc::clone(signs);
    let sink = asked.asking.interim.clone();
    Arc::new(move |status, fields| {
        signs.note();
        if let Some(sink) = sink.as_ref().filter(|_| !fields.contains_key(&PEER_FIELD)) {
            sink(status, fields);
        }
    })
}

/// The last sign of life of a sibling (another node of the fleet) that has sent no response yet.
struct SiblingSigns {
    begun: Instant,
    /// Milliseconds from the request to the last sign of life. 0 before the first one.
    last_millis: AtomicU64,
}

impl SiblingSigns {
    fn new() -> Self {
        Self { begun: Instant::now(), last_millis: AtomicU64::new(0) }
    }

    fn note(&self) {
        self.last_millis.store((self.begun.elapsed().as_millis() as u64).max(1), Relaxed);
    }

    /// Completes when the sibling (the other node) has sent no sign of life for too long: `patience` for the first,
    /// then [`SIGN_PATIENCE`].
    async fn end(&self, patience: Duration) {
        let mut end = patience;
        loop {
            tokio::time::sleep_until((self.begun + end).into()).await;
            let last = match self.last_millis.load(Relaxed) {
                0 => return,
                last => Duration::from_millis(last),
            };
            let next = last + SIGN_PATIENCE.max(patience);
            if next <= end {
                return;
            }
            end = next;
        }
    }
}

/// Maximum time between two signs of life. Nodes send one every half second (`road::client::interim`).
const SIGN_PATIENCE: Duration = Duration::from_secs(2);
