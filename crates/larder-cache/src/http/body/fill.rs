//! How an arriving body becomes an entry of the store.
//!
//! Owns: the place and the head of the entry, the store's decision about it, and the checks that the body must pass.
//!
//! Invariants: the store gets the head of a complete response only with the proof that the body is complete. If a body
//! broke off, or every client left it, its head is stored only as that of an incomplete representation (RFC 9111 3.3).
//! That requires the total length and a strong validator, so that the remainder can be fetched. Chunks without a head
//! are never found.
//!
//! The head of an incomplete representation is stored while the body is still arriving, so that a crash does not lose
//! the bytes received. This process hides the head until the fetch ends (module `arrivals`).

use std::sync::Arc;

use bytes::Bytes;
use larder_http::StoredHead;
use larder_store::Store;

use crate::http::{
    ResponseCache,
    arrivals::ArrivalMark,
    entry::CHUNK_BYTES,
    storing::{StoreAdmission, StorePlace},
    work::ResourceWork,
};

/// The entry that an arriving body becomes.
pub(crate) struct Fill {
    pub(super) plan: Arc<FillPlan>,
    /// Number of bytes received.
    received: u64,
    /// Whether the store accepts the chunks of this body. `None` until the store was asked.
    is_admitted: Option<bool>,
    /// Whether the body must not become a stored response.
    pub(super) is_refused: bool,
    /// A whole short body, which becomes one entry with its head.
    pub(super) whole: Option<Vec<Bytes>>,
    /// Whether chunks are stored, but not the head that leads to them.
    pub(super) is_headless: bool,
    /// Hides the head of a part while the body is arriving.
    pub(super) arrival: Option<ArrivalMark>,
    /// Whether the head is stored for a body that is incomplete.
    pub(super) has_part: bool,
    /// Whether the whole response is stored.
    pub(super) is_committed: bool,
}

/// The facts about a response that decide how its body is stored.
pub(crate) struct FillPlan {
    /// The keys under which the response is stored.
    pub place: StorePlace,
    /// The head in the form to store, without the body's place.
    pub head: Arc<StoredHead>,
    /// The work on the resource, to detect invalidations since the request was sent.
    pub work: ResourceWork,
    /// Longest body that is stored, in bytes.
    pub size_max: u64,
    /// Length of the whole body, if it is announced.
    pub len: Option<u64>,
    /// Whether a rule demands or forbids finishing the fetch without clients. `None` without such a rule.
    pub finishes: Option<bool>,
    /// Whether the response brings only a part of the body.
    pub is_part: bool,
    /// Whether the head may be stored before the body has ended, because it replaces no stored response.
    pub may_announce: bool,
}

impl Fill {
    /// Creates the entry that a response becomes.
    pub(super) fn new(plan: FillPlan) -> Self {
        Self {
            plan: Arc::new(plan),
            received: 0,
            is_admitted: None,
            is_refused: false,
            whole: None,
            is_headless: false,
            arrival: None,
            has_part: false,
            is_committed: false,
        }
    }

    /// Counts bytes that have arrived.
    pub(super) fn note_received(&mut self, len: u64) {
        self.received += len;
    }

    /// Prevents the body from becoming a stored response.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Returns whether a fetch without clients is continued, because it is nearly complete or small.
    pub(super) fn is_worth_finishing(&self) -> bool {
        if self.plan.is_part {
            return false;
        }
        if let Some(finishes) = self.plan.finishes {
            return finishes;
        }
        match self.plan.len {
            Some(len) => len.saturating_sub(self.received) < SMALL_REST_BYTES || self.received >= len / 2,
            None => self.received < CHUNK_BYTES,
        }
    }

    /// Returns whether a body of this length becomes one entry with its head.
    pub(super) fn is_short(len: Option<u64>) -> bool {
        len.is_some_and(|len| len <= CHUNK_BYTES)
    }

    /// Returns whether enough of the body is still missing to store its head before the body is complete.
    ///
    /// Then a crash does not lose the part that has arrived.
    pub(super) fn is_long_before_its_end(&self) -> bool {
        self.plan.len.is_some_and(|len| len.saturating_sub(self.received) >= CHUNK_BYTES)
    }

    /// Returns whether the store takes the chunks of this body, of which `len` bytes are known. It takes either all of
    /// them or none.
    pub(super) fn admits_chunks(&mut self, cache: &ResponseCache, len: u64) -> bool {
        let len = self.plan.len.unwrap_or(len);
        if self.is_refused || len > self.plan.size_max {
            return false;
        }
        let place = &self.plan.place;
        let is_let_in = |store: &Store| match place.admission {
            StoreAdmission::Granted => true,
            StoreAdmission::Refused => false,
            StoreAdmission::Open => cache.shared.pins.name(&place.key) || store.admits(&place.key, len),
        };
        *self.is_admitted.get_or_insert_with(|| cache.shared.store.as_ref().is_some_and(is_let_in))
    }
}

/// A check of a body while it passes, such as a comparison with a known digest.
///
/// ```
/// use larder_cache::http::body::fill::BodyCheck;
///
/// /// Accepts bodies that are text, because a captive portal's page is not the requested archive.
/// struct IsText(bool);
///
/// impl BodyCheck for IsText {
///     fn push(&mut self, bytes: &[u8]) {
///         self.0 &= !bytes.contains(&0);
///     }
///
///     fn is_passed(self: Box<Self>) -> bool {
///         self.0
///     }
/// }
///
/// let mut check = Box::new(IsText(true));
/// check.push(b"hello\0");
/// assert!(!check.is_passed());
/// ```
pub trait BodyCheck: Send {
    /// Processes the next bytes of the body.
    fn push(&mut self, bytes: &[u8]);

    /// Returns whether the whole body passes the check.
    fn is_passed(self: Box<Self>) -> bool;
}

/// The checks of a body while it passes, as [`Fetcher::checks`](crate::http::fetcher::Fetcher::checks) returns them. By
/// default there are none.
///
/// ```
/// use larder_cache::http::body::fill::{BodyCheck, BodyChecks};
/// # struct DigestCheck;
/// # impl BodyCheck for DigestCheck {
/// #     fn push(&mut self, _: &[u8]) {}
/// #     fn is_passed(self: Box<Self>) -> bool { true }
/// # }
///
/// assert!(!BodyChecks::default().are_any());
/// // `DigestCheck` implements `BodyCheck`.
/// let checks = BodyChecks { named: Some(Box::new(DigestCheck)), ..BodyChecks::default() };
/// assert!(checks.are_any());
/// ```
#[derive(Default)]
pub struct BodyChecks {
    /// The check against the digest that the body's URL or a listing names. No client may receive a complete body that
    /// fails it.
    pub named: Option<Box<dyn BodyCheck>>,
    /// The check against the digest that the origin names (RFC 9530 3). Clients still receive a body that fails it,
    /// because they can check it themselves, but it is not stored.
    pub repr: Option<Box<dyn BodyCheck>>,
    /// The check whether the content is complete. A body that fails it still reaches its client, but is not stored.
    pub content: Option<Box<dyn BodyCheck>>,
}

/// The result of the checks of a body that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckVerdict {
    /// Whether the body contradicts the digest in its URL or a listing.
    pub(super) is_wrong: bool,
    /// Whether the body contradicts the digest that its origin names.
    pub(super) contradicts_itself: bool,
    /// Whether the body may be stored.
    pub(super) is_storable: bool,
}

impl BodyChecks {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for check in [&mut self.named, &mut self.repr, &mut self.content].into_iter().flatten() {
            check.push(bytes);
        }
    }

    /// Returns whether there is anything to check.
    pub fn are_any(&self) -> bool {
        self.named.is_some() || self.repr.is_some() || self.content.is_some()
    }

    /// Returns how many of the bytes before `at` are held back from clients until the check has passed.
    ///
    /// `end` is the end of the body, if it is known. Without this, a client could take a wrong body for a complete one.
    pub(super) fn held_back(&self, at: u64, end: u64) -> u64 {
        match &self.named {
            None => 0,
            Some(_) if end == u64::MAX => HELD_BACK_BYTES,
            Some(_) => at.saturating_sub(end.saturating_sub(HELD_BACK_BYTES)),
        }
    }

    /// Returns the result, once all bytes have passed.
    pub(super) fn verdict(self) -> CheckVerdict {
        let Self { named, repr, content } = self;
        let is_wrong = named.is_some_and(|check| !check.is_passed());
        let contradicts_itself = repr.is_some_and(|check| !check.is_passed());
        let is_incomplete = content.is_some_and(|check| !check.is_passed());
        CheckVerdict { is_wrong, contradicts_itself, is_storable: !(is_wrong || contradicts_itself || is_incomplete) }
    }
}

/// A fetch with fewer bytes left is finished even without clients.
const SMALL_REST_BYTES: u64 = 256 << 10;
/// Number of bytes at the end of a body that clients get only once the whole body has passed its check.
const HELD_BACK_BYTES: u64 = 64 << 10;
