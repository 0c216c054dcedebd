//! One body while it arrives or is read: the bytes that are present, the clients that want some, and the reads and
//! requests that this needs.
//!
//! [`Core`] is a state machine without I/O. A driver reports events ([`Event`]) and executes the actions that
//! [`Core::on`] returns ([`Action`]). Clients are cursors; each wants the bytes of its spans from its position on. The
//! function `plan` turns all wants into reads of the store and requests to the origin, after every event. So a client
//! that stands still delays nobody: it owns no read and no request.
//!
//! The core knows no clock, lock, store, socket or task. Time is an argument, in milliseconds of a steady clock.
//!
//! Cost: a body that streams to one client takes one call of [`Core::on`] per arriving piece and one per piece taken.
//! Within a chunk such a call plans nothing (`steady`).

mod arrivals;
mod asks;
mod chunk_map;
mod core;
mod cursors;
mod memory;
mod pieces;
mod plan;
mod runs;
mod settle;
mod span_set;
mod steady;
mod storing;
mod survey;

pub use core::Core;

use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;

/// The sizes and limits, in bytes, by which an object decides what to read, request and keep. [`Core`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Length of a chunk, the unit of storing and reading. Only the last chunk of a body may be shorter. Typically 1
    /// MiB.
    pub chunk: u64,
    /// Length of a block, the smallest read. A chunk is read in blocks while memory is too short for the whole chunk.
    /// Divides `chunk`. Typically 8 KiB.
    pub block: u64,
    /// Distance between the positions at which the nodes of a fleet divide bodies among themselves. No request crosses
    /// such a position. A multiple of `chunk`, or `u64::MAX` if bodies are not divided.
    pub cut: u64,
    /// Maximum distance for which a client waits for a response in progress: from the response's next byte to the byte
    /// that the client needs. A byte further ahead gets a request of its own. Typically 8 MiB.
    pub ahead: u64,
    /// Maximum number of bytes by which a response may be ahead of its fastest client, and reads of the store ahead of
    /// their client. Typically 4 MiB.
    pub lead: u64,
    /// Minimum number of present bytes between two gaps for which each gap gets a request of its own. Typically 256
    /// KiB.
    ///
    /// Gaps with fewer bytes between them become one request, which brings these bytes once more. That costs less than
    /// another request.
    pub gap: u64,
    /// Maximum number of bytes at the start of a body that stay in memory for later clients, if the body is not stored.
    /// Typically 16 MiB.
    pub kept: u64,
    /// Memory that an object with clients may use even if its share is smaller. Typically 8 KiB.
    pub least: u64,
}

/// A point in time, in milliseconds of a steady clock. [`Core`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// Returns the time `millis` later.
    fn after(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// The number of a cursor, which stands for one client of an object. The driver (the code around [`Core`]) chooses it;
/// it must be unique in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub u32);

/// The number of a run, which is one response that an object requested from the origin. [`Core`] chooses it and never
/// uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u32);

/// Parts of a body: ascending, disjoint, none empty. The whole body is `0..u64::MAX` while its length is unknown.
pub type Spans = SmallVec<[Range<u64>; 1]>;

/// The terms on which a client reads a body.
///
/// ```
/// # use larder_cache::object::{CursorTerms, PromiseRule};
/// // The head of the response is sent only when all bytes are certain, and nothing is requested for it.
/// let terms = CursorTerms { may_ask: false, promise: PromiseRule::All };
/// assert_ne!(terms.promise, PromiseRule::First);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CursorTerms {
    /// Whether the client may cause requests to the origin. Otherwise, it gets only bytes that are present or come for
    /// other clients, and ends at the first byte that is neither.
    pub may_ask: bool,
    /// The bytes that must be certain before the head of the client's response is sent.
    pub promise: PromiseRule,
}

/// The moment at which a client is promised its bytes, so that the head of its response may be sent. A response that
/// breaks off later cannot be replaced by an error.
///
/// ```
/// # use larder_cache::object::PromiseRule;
/// fn rule(is_head_sent: bool, can_wait: bool) -> PromiseRule {
///     match (is_head_sent, can_wait) {
///         (true, _) => PromiseRule::Given,
///         (false, true) => PromiseRule::All,
///         (false, false) => PromiseRule::First,
///     }
/// }
///
/// assert_eq!(rule(false, true), PromiseRule::All);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PromiseRule {
    /// The client gets its promise once every byte is present, or comes in a response whose head has arrived.
    All,
    /// The client gets its promise at once, because the head of its response is already final.
    Given,
    /// The client gets its promise once its first byte is present, or comes in a response whose head has arrived. The
    /// other bytes may be requested later. If the client may not cause requests, or the body cannot be continued,
    /// [`PromiseRule::All`] applies.
    First,
}

/// The actions that follow from one event, in the order in which the driver must execute them.
pub type Actions = SmallVec<[Action; 8]>;

/// The head of a response, as far as the core uses it.
pub trait Head: Clone {
    /// Returns the octets of the strong validator. `None` if the response has none or a weak one.
    fn validator(&self) -> Option<&[u8]>;
    /// Returns the length of the whole body in bytes. `None` if the head does not announce it.
    fn len(&self) -> Option<u64>;
    /// Returns whether parts of different responses can be joined: the head has a strong validator and a length, and
    /// the origin serves ranges (it sent `Accept-Ranges` or a 206).
    fn is_divisible(&self) -> bool;
    /// Returns whether the body is known to have no bytes.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
    /// Returns the same bytes, with their memory counted. The core allocated them to join small pieces.
    fn counted(&self, bytes: Bytes) -> Bytes {
        bytes
    }
}

/// An event: something that happened to the object, and that the driver reports.
#[derive(Clone, Debug)]
pub enum Event<H> {
    /// A client begins to read these spans of the body. If the length of the body is known, they must lie within it.
    Attach(CursorId, Spans, CursorTerms),
    /// The client has taken all its bytes before this position of the body. If it is the old position, the client found
    /// no bytes and waits to be woken.
    Moved(CursorId, u64),
    /// The client has disconnected.
    Left(CursorId),
    /// The response with this number brought its head, bytes, its end or a failure.
    Came(RunId, Arrival<H>),
    /// The result of [`Action::Probe`] for this chunk.
    Probed(u64, ProbeEnd),
    /// The store may have lost this chunk. It is probed before the next promise that needs it, unless it is in memory
    /// or being read. Clients that have a promise continue.
    Unsure(u64),
    /// The result of [`Action::Read`] for this range.
    Read(Range<u64>, ReadEnd),
    /// The result of [`Action::Store`] for this chunk.
    Stored(u64, StoreEnd),
    /// The result of [`Action::StorePart`] for this chunk. If the store refuses a part, whole chunks are still stored.
    StoredPart(u64, StoreEnd),
    /// A 304 changed the head. The new head must have the same validator and length.
    Updated(H),
    /// The object was purged or replaced. From now on it takes no more clients and commits no head.
    Outdated,
    /// The number of bytes that the object may have in memory, until the next such event.
    Budget(u64),
    /// The cache itself wants these bytes in the store, for example to finish a download after its client has
    /// disconnected.
    Keep(Range<u64>),
    /// The time that [`Action::Timer`] requested has come.
    Tick,
}

/// Something that a run, which is a response of the origin, brought.
#[derive(Clone, Debug)]
pub enum Arrival<H> {
    /// The head of the response. It must come first in every run, except in the one that [`Core::arriving`] begins.
    Head {
        /// The head itself.
        head: H,
        /// The part of the body that the response announces: the range of a 206 or the whole body, which is
        /// `0..u64::MAX` if its length is unknown.
        span: Range<u64>,
        /// Whether the response has the whole body (200) instead of a range (206).
        is_whole: bool,
    },
    /// The next bytes of the response's body.
    Bytes(Bytes),
    /// The response ended as announced. `Some` is the number of body bytes that the driver counted; if the core
    /// received another number, the response counts as broken.
    End(Option<u64>),
    /// The response broke off, the request was refused, or there was no connection to the origin.
    Broken,
}

/// The result of [`Action::Probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    /// The store has the whole chunk.
    Whole,
    /// The store has this part of the chunk, given as positions in the body.
    Part(Range<u64>),
    /// The store has nothing of the chunk.
    Absent,
    /// The store could not be read, so it may or may not have the chunk.
    Trouble,
}

/// The result of [`Action::Read`].
#[derive(Clone, Debug)]
pub enum ReadEnd {
    /// The bytes of the range. If there are more or fewer than requested, the result counts as [`ReadEnd::Absent`].
    Bytes(Bytes),
    /// The store no longer has the chunk.
    Absent,
    /// The store could not be read, but may still have the chunk.
    Trouble,
}

/// The result of [`Action::Store`] or [`Action::StorePart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEnd {
    /// The store has the bytes, and they can be read.
    Done,
    /// The store refused the bytes: it has no room for them, or it failed.
    Refused,
    /// This node of a fleet does not store the chunk, because another node does. The chunk is not offered again.
    Skipped,
}

/// A task that the core gives to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this request to the origin. Report its response as the run with this number.
    Ask(RunId, OriginAsk),
    /// Stop receiving the run (a response) for now, without aborting it.
    Pause(RunId),
    /// Continue to receive the run (a response) after [`Action::Pause`].
    Resume(RunId),
    /// Abort the run (a response), because nobody wants its remaining bytes.
    Stop(RunId),
    /// Find out whether the store has this chunk. Report [`Event::Probed`].
    Probe(u64),
    /// Read this range from the store. Report [`Event::Read`].
    ///
    /// The range is a whole chunk, the whole stored part of a chunk, or some blocks of either. Blocks begin and end at
    /// multiples of [`Sizes::block`], or at the ends of the chunk or its stored part.
    Read(Range<u64>),
    /// Store this whole chunk, which consists of these pieces. Report [`Event::Stored`].
    Store(u64, SmallVec<[Bytes; 4]>),
    /// Store a part of a chunk. It replaces the part of this chunk that the store may already have. Report
    /// [`Event::StoredPart`].
    StorePart {
        /// Number of the chunk.
        chunk: u64,
        /// Position in the body of the first byte of the part.
        start: u64,
        /// The bytes of the part.
        pieces: SmallVec<[Bytes; 4]>,
    },
    /// Store the head, so that later lookups find the stored chunks.
    CommitHead {
        /// Whether the store has the whole body, and its response ended as announced. Otherwise it has a part of the
        /// body.
        is_whole: bool,
    },
    /// The client is promised its bytes: the head of its response may be sent.
    Promise(CursorId),
    /// Wake the client, because its next byte is in memory.
    Wake(CursorId),
    /// The client ends for this reason. Its number is no longer in use.
    End(CursorId, CursorEnd),
    /// The run (a response) brings another representation of the resource. It no longer belongs to this object: make a
    /// new object of it.
    Other(RunId),
    /// Report [`Event::Tick`] at this time. If a timer for a later time is set, it may stay.
    Timer(Tick),
    /// The object has given up storing, so the whole body will not be in the store. A later [`Event::Updated`] still
    /// commits the head of the stored part.
    GivenUp,
}

/// A request that the driver sends to the origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginAsk {
    /// Request the whole body, without a `Range` field.
    Whole,
    /// Request a part of the body, with a `Range` field.
    Range {
        /// The requested bytes. If their end is `u64::MAX`, request everything from the first byte on.
        span: Range<u64>,
        /// Whether the request has an `If-Range` field with the validator.
        if_range: bool,
    },
}

/// The reason why a client of an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CursorEnd {
    /// The client has taken all bytes of its spans.
    Whole,
    /// The client's next byte can no longer be got, neither from the store nor from the origin. Its response breaks
    /// off.
    Broken,
    /// The client held up other clients of the body for too long, so its response breaks off.
    TooSlow,
    /// Nothing was sent to the client, and this object is outdated: attach the client to the newer object.
    MoveOver,
    /// Nothing was sent to the client, and this object cannot serve its spans: pass the client's own request to the
    /// origin.
    AskAlone,
}
