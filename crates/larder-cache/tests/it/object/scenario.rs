//! What a scenario fixes: the clients' ranges, the origin's and the store's habits, and how often each misfortune may
//! happen.

use larder_cache::object::{CursorTerms, PromiseRule, Sizes};
use std::ops::Range;

/// Length of every version of the body: four chunks of four bytes.
pub(crate) const LEN: u64 = 16;
pub(crate) const SIZES: Sizes =
    Sizes { chunk: 4, block: 2, cut: u64::MAX, ahead: 8, lead: 4, gap: 1, kept: 4, least: 4 };

/// Returns the byte of a version at a position. It names both, so that no byte of another place can pass for it.
pub(crate) fn byte_of(version: u8, position: u64) -> u8 {
    version << 6 | position as u8
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) start: Start,
    pub(crate) clients: Vec<Reader>,
    pub(crate) origin: OriginKind,
    pub(crate) purse: Purse,
    /// The object's share of the memory.
    pub(crate) budget: u64,
    /// Bytes of an arrival.
    pub(crate) piece: u64,
    /// So many of the first clients may leave early.
    pub(crate) leavers: usize,
    /// Events and actions are written to the journal.
    pub(crate) is_traced: bool,
}

impl Scenario {
    /// Returns the scenario with other clients.
    pub(crate) fn with_readers(self, readers: &[&[Range<u64>]]) -> Self {
        let knows_len = self.origin.knows_len;
        Self { clients: readers.iter().map(|spans| Reader::new(spans, knows_len)).collect(), ..self }
    }

    /// Returns the scenario in which one client reads on other terms.
    pub(crate) fn with_terms(mut self, client: usize, may_ask: bool, promise: PromiseRule) -> Self {
        self.clients[client].terms = CursorTerms { may_ask, promise };
        self
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// The store's entry, without these bytes. It has at most one part of each chunk.
    Stored { missing: Vec<Range<u64>> },
    /// The head of a response has just come.
    Arriving { span: Range<u64>, is_whole: bool, is_stored: bool },
}

/// What a client wants.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) spans: Vec<Range<u64>>,
    pub(crate) terms: CursorTerms,
    /// Positions of the bytes that it must get, in order.
    pub(crate) selection: Vec<u64>,
}

impl Reader {
    /// Creates a reader. One that wants the end of a body without a length wants what comes.
    pub(crate) fn new(spans: &[Range<u64>], knows_len: bool) -> Self {
        let selection = spans.iter().cloned().flatten().collect();
        let end = |end| if end == LEN && !knows_len { u64::MAX } else { end };
        let terms = CursorTerms { may_ask: true, promise: PromiseRule::All };
        Self { spans: spans.iter().map(|span| span.start..end(span.end)).collect(), terms, selection }
    }
}

/// What the origin always does.
#[derive(Clone, Debug)]
pub(crate) struct OriginKind {
    pub(crate) has_validator: bool,
    pub(crate) knows_len: bool,
    pub(crate) takes_ranges: bool,
    /// Its heads say that it takes ranges.
    pub(crate) claims_ranges: bool,
}

/// How often each misfortune, or event from outside, may still happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Purse {
    /// Responses that break off, or requests that are refused.
    pub(crate) breaks: u8,
    /// Changes of the origin's version, to and fro.
    pub(crate) changes: u8,
    /// Wrong starts, wrong lengths and bytes beyond the promise.
    pub(crate) lies: u8,
    /// Responses to ranges that end early, as RFC 9110 15.3.7 allows.
    pub(crate) shorts: u8,
    /// Chunks that the store loses.
    pub(crate) losses: u8,
    pub(crate) troubles: u8,
    /// Times that the driver doubts whether the store still has a chunk.
    pub(crate) doubts: u8,
    pub(crate) refusals: u8,
    /// Chunks that the driver does not keep.
    pub(crate) skips: u8,
    pub(crate) updates: u8,
    pub(crate) outdates: u8,
    /// Times that the share shrinks to nothing.
    pub(crate) squeezes: u8,
    pub(crate) keeps: u8,
    /// Timers that fire although something else is due: the origin or the store is slow.
    pub(crate) early_ticks: u8,
}

impl Purse {
    /// Returns a purse with the contents of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            breaks: self.breaks + other.breaks,
            changes: self.changes + other.changes,
            lies: self.lies + other.lies,
            shorts: self.shorts + other.shorts,
            losses: self.losses + other.losses,
            troubles: self.troubles + other.troubles,
            doubts: self.doubts + other.doubts,
            refusals: self.refusals + other.refusals,
            skips: self.skips + other.skips,
            updates: self.updates + other.updates,
            outdates: self.outdates + other.outdates,
            squeezes: self.squeezes + other.squeezes,
            keeps: self.keeps + other.keeps,
            early_ticks: self.early_ticks + other.early_ticks,
        }
    }
}
