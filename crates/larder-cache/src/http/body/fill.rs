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

/// A response on its way into the store: the plan for its entry, and how much of it is done.
pub(crate) struct Fill {
    pub(super) plan: Arc<FillPlan>,
    /// Number of bytes of the body that have arrived.
    received: u64,
    /// Whether the store takes the chunks of this body. `None` until the store was asked.
    is_admitted: Option<bool>,
    /// Whether the response must not be stored, although its body is received.
    pub(super) is_refused: bool,
    /// The pieces of a short body that has arrived as a whole. Such a body is stored in the same entry as its head.
    pub(super) whole: Option<Vec<Bytes>>,
    /// Whether chunks are stored without a head, so that no lookup finds them yet.
    pub(super) is_headless: bool,
    /// A mark that hides the stored head of an incomplete body from lookups while the body arrives.
    pub(super) arrival: Option<ArrivalMark>,
    /// Whether the head was stored although the body was incomplete.
    pub(super) has_part: bool,
    /// Whether the head of the complete response was stored, or is being stored.
    pub(super) is_committed: bool,
}

/// The facts about a response that determine how its body is stored.
pub(crate) struct FillPlan {
    /// The keys under which the response is stored.
    pub place: StorePlace,
    /// The head in the form to store, except for where its body is.
    pub head: Arc<StoredHead>,
    /// Shows whether the resource was invalidated since the request was sent.
    pub work: ResourceWork,
    /// Maximum length of a body that is stored, in bytes.
    pub size_max: u64,
    /// Length of the whole body in bytes. `None` if the response does not announce it.
    pub len: Option<u64>,
    /// Whether an operator's rule demands (`true`) or forbids (`false`) that the fetch goes on when no client reads it.
    /// `None` without such a rule.
    pub finishes: Option<bool>,
    /// Whether the response brings only a part of the body.
    pub is_part: bool,
    /// Whether the head may be stored before the body is complete. It may if no stored response would be replaced.
    pub may_announce: bool,
}

impl Fill {
    /// Creates the state for a response of which nothing has arrived.
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

    /// Decides that the response is not stored.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Returns whether the fetch goes on when no client reads it, because the body is nearly complete or short.
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

    /// Returns whether a body of this length is stored in the same entry as its head.
    pub(super) fn is_short(len: Option<u64>) -> bool {
        len.is_some_and(|len| len <= CHUNK_BYTES)
    }

    /// Returns whether so much of the body is missing that its head should be stored before the body is complete.
    ///
    /// A crash then does not lose the part that has arrived.
    pub(super) fn is_long_before_its_end(&self) -> bool {
        self.plan.len.is_some_and(|len| len.saturating_sub(self.received) >= CHUNK_BYTES)
    }

    /// Returns whether the store takes the chunks of this body. The decision is made once, for all chunks. `len` is the
    /// number of bytes that are known, if the length is not announced.
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
    /// Takes the next bytes of the body into account.
    fn push(&mut self, bytes: &[u8]);

    /// Returns whether the body passes the check, after all its bytes were given to [`BodyCheck::push`].
    fn is_passed(self: Box<Self>) -> bool;
}

/// The checks that a body must pass, as [`Fetcher::checks`](crate::http::fetcher::Fetcher::checks) returns them. By
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
    /// The comparison with the digest that the body's URL or a listing names. No client may receive a complete body
    /// that fails it.
    pub named: Option<Box<dyn BodyCheck>>,
    /// The comparison with the digest that the origin sends (RFC 9530 3). A body that fails it is not stored, but
    /// clients still receive it, because they can check it themselves.
    pub repr: Option<Box<dyn BodyCheck>>,
    /// The check that the content is complete, for example that of a git pack. A body that fails it is not stored, but
    /// its client still receives it.
    pub content: Option<Box<dyn BodyCheck>>,
}

/// The result of the checks of a body that has arrived as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckVerdict {
    /// Whether the body does not have the digest that its URL or a listing names.
    pub(super) is_wrong: bool,
    /// Whether the body does not have the digest that its origin sent with it.
    pub(super) contradicts_itself: bool,
    /// Whether the body has passed all checks, and may be stored.
    pub(super) is_storable: bool,
}

impl BodyChecks {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for check in [&mut self.named, &mut self.repr, &mut self.content].into_iter().flatten() {
            check.push(bytes);
        }
    }

    /// Returns whether the body must pass any check.
    pub fn are_any(&self) -> bool {
        self.named.is_some() || self.repr.is_some() || self.content.is_some()
    }

    /// Returns how many of the bytes before `at` clients do not get until the whole body has passed its check.
    ///
    /// `end` is the end of the body, `u64::MAX` if it is unknown. If clients got the last bytes before the check, they
    /// would take a wrong body for a complete one.
    pub(super) fn held_back(&self, at: u64, end: u64) -> u64 {
        match &self.named {
            None => 0,
            Some(_) if end == u64::MAX => HELD_BACK_BYTES,
            Some(_) => at.saturating_sub(end.saturating_sub(HELD_BACK_BYTES)),
        }
    }

    /// Returns the result of the checks. Called once all bytes have arrived.
    pub(super) fn verdict(self) -> CheckVerdict {
        let Self { named, repr, content } = self;
        let is_wrong = named.is_some_and(|check| !check.is_passed());
        let contradicts_itself = repr.is_some_and(|check| !check.is_passed());
        let is_incomplete = content.is_some_and(|check| !check.is_passed());
        CheckVerdict { is_wrong, contradicts_itself, is_storable: !(is_wrong || contradicts_itself || is_incomplete) }
    }
}

/// Number of missing bytes below which a fetch is finished even if no client reads it.
const SMALL_REST_BYTES: u64 = 256 << 10;
/// Number of bytes at the end of a body that clients get only once the whole body has passed its check.
const HELD_BACK_BYTES: u64 = 64 << 10;
