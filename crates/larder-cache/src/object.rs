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

/// The sizes that the plan works with, in bytes. [`Core`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Length of a chunk, the unit that is stored and read. The last chunk of a body is shorter. Typically 1 MiB.
    pub chunk: u64,
    /// The smallest read. A chunk is read in blocks while memory does not allow the whole. Divides `chunk`. Typically 8
    /// KiB.
    pub block: u64,
    /// Length at whose multiples a fleet's nodes divide bodies. No request crosses such a position. A multiple of
    /// `chunk`, or `u64::MAX` if nothing is divided.
    pub cut: u64,
    /// Greatest distance from a run's next byte to a byte for which a client waits for this run. A byte further ahead
    /// gets a request of its own. Typically 8 MiB.
    pub ahead: u64,
    /// Most bytes by which a run may be ahead of its fastest cursor, and reads of the store ahead of a cursor.
    /// Typically 4 MiB.
    pub lead: u64,
    /// Number of present bytes between two gaps from which each gap gets its own request. Typically 256 KiB.
    ///
    /// With fewer present bytes between them, gaps become one request. A run receives fewer present bytes again, rather
    /// than being stopped.
    pub gap: u64,
    /// Most bytes that stay in memory as the start of a body, for later clients, if the body is not stored. Typically
    /// 16 MiB.
    pub kept: u64,
    /// The memory that an object with a cursor may use even if memory is short. Typically 8 KiB.
    pub least: u64,
}

/// A time of a steady clock, in milliseconds. [`Core`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// Returns the time `millis` later.
    fn after(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// The number of a client of one object. The driver chooses it; it is unique in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub u32);

/// The number of a run, which is one response of the origin that this object requested. [`Core`] chooses the number and
/// uses it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u32);

/// Parts of a body: ascending, disjoint, none empty. A body of unknown length is `0..u64::MAX`.
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
    /// Whether the client may cause requests to the origin. A client that may not gets only bytes that are present or
    /// come for other clients, and ends at the first gap.
    pub may_ask: bool,
    /// The bytes that must be certain before the head of the client's response is sent.
    pub promise: PromiseRule,
}

/// When a client is promised its bytes, so that the head of its response may be sent. A response that breaks off later
/// cannot be replaced by an error.
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
    /// Promised once every byte is present, or comes in a run whose head has arrived.
    All,
    /// Promised at once, because the head of the client's response is already final.
    Given,
    /// Promised once the first byte is present, or comes in a run whose head has arrived. The other bytes may be
    /// requested later. If the client may not ask, or the body cannot be continued, the rule is [`PromiseRule::All`].
    First,
}

/// The actions of one event, in the order in which the driver executes them.
pub type Actions = SmallVec<[Action; 8]>;

/// The facts that the core needs of a response's head.
pub trait Head: Clone {
    /// Returns the octets of the strong validator. `None` if the response has none or a weak one.
    fn validator(&self) -> Option<&[u8]>;
    /// Returns the length of the whole body in bytes, if it is announced.
    fn len(&self) -> Option<u64>;
    /// Returns whether parts of different responses can be joined: the head has a strong validator and a length, and
    /// the origin serves ranges (it sent `Accept-Ranges` or a 206).
    fn is_divisible(&self) -> bool;
    /// Returns whether the body is known to have no bytes.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
    /// Returns the same bytes, after the driver has counted memory that the core allocated to join small pieces.
    fn counted(&self, bytes: Bytes) -> Bytes {
        bytes
    }
}

/// Something that happened to the object.
#[derive(Clone, Debug)]
pub enum Event<H> {
    /// A client begins to read these spans. If the length of the body is known, they lie within it.
    Attach(CursorId, Spans, CursorTerms),
    /// The client has taken all its bytes before this position of the body. If the position has not changed, the client
    /// is ready and found no bytes.
    Moved(CursorId, u64),
    /// The client has gone.
    Left(CursorId),
    /// The run brought something.
    Came(RunId, Arrival<H>),
    /// The result of probing the store for this chunk.
    Probed(u64, ProbeEnd),
    /// This chunk may have left the store. It is probed before the next promise that needs it, unless it is in memory
    /// or being read. Clients that have a promise continue.
    Unsure(u64),
    /// The result of reading this range, which [`Action::Read`] named.
    Read(Range<u64>, ReadEnd),
    /// The result of [`Action::Store`].
    Stored(u64, StoreEnd),
    /// The result of [`Action::StorePart`]. If the store refuses a part, whole chunks are still stored.
    StoredPart(u64, StoreEnd),
    /// A 304 changed the head. Its validator and length are the same.
    Updated(H),
    /// The object was purged or replaced. It takes no more cursors and commits nothing more.
    Outdated,
    /// The bytes that the object may hold in memory.
    Budget(u64),
    /// The cache itself wants these bytes in the store, for example to finish a download that its client left.
    Keep(Range<u64>),
    /// The cache itself no longer wants the bytes of [`Event::Keep`].
    Unkeep,
    /// Time has passed: a timer that [`Action::Timer`] requested.
    Tick,
}

/// An event of a run.
#[derive(Clone, Debug)]
pub enum Arrival<H> {
    /// The head of the response. It is the first arrival of every run, except for the run that [`Core::arriving`]
    /// begins.
    Head {
        /// The head.
        head: H,
        /// The part of the body that the response announces: the whole (`0..u64::MAX` without a length) or the range of
        /// a 206.
        span: Range<u64>,
        /// Whether the response is a 200.
        is_whole: bool,
    },
    /// The next bytes of the body.
    Bytes(Bytes),
    /// The response ended as announced, after this many bytes if the driver counted them. The driver keeps the proof.
    End(Option<u64>),
    /// The response broke off, was refused, or there was no connection.
    Broken,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    /// The store has the whole chunk.
    Whole,
    /// The store has this part of the chunk, given as positions in the body.
    Part(Range<u64>),
    /// The store has nothing of the chunk.
    Absent,
    /// The store could not be read. The chunk may be there.
    Trouble,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub enum ReadEnd {
    /// All bytes of the range. Any other number of bytes counts as [`ReadEnd::Absent`].
    Bytes(Bytes),
    /// The store does not have the chunk any more.
    Absent,
    /// The store could not be read. The chunk may still be there.
    Trouble,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEnd {
    /// The store has the bytes, and they can be read.
    Done,
    /// The store refused the bytes, for lack of room or because it failed.
    Refused,
    /// The driver does not keep this chunk, because another node of the fleet does. The chunk is not offered again.
    Skipped,
}

/// A task of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a request to the origin; its response is the run.
    Ask(RunId, OriginAsk),
    /// Receive no more bytes of the run for now.
    Pause(RunId),
    /// Receive bytes of the run again.
    Resume(RunId),
    /// Abort the run. None of its bytes are wanted any more.
    Stop(RunId),
    /// Find out whether the store has this chunk; report [`Event::Probed`].
    Probe(u64),
    /// Read this range from the store; report [`Event::Read`]. The range is a whole chunk, the whole stored part of a
    /// chunk, or some blocks of either. Blocks begin and end at multiples of [`Sizes::block`], or at the ends of the
    /// chunk or its stored part.
    Read(Range<u64>),
    /// Store this chunk, which consists of these pieces; report [`Event::Stored`].
    Store(u64, SmallVec<[Bytes; 4]>),
    /// Store a part of a chunk, instead of the part that the store may have; report [`Event::StoredPart`].
    StorePart {
        /// The chunk.
        chunk: u64,
        /// The first byte of the part, as a position in the body.
        start: u64,
        /// The bytes of the part.
        pieces: SmallVec<[Bytes; 4]>,
    },
    /// Store the head, so that later lookups find what is stored.
    CommitHead {
        /// Whether the whole body is stored, and its response ended as announced. Otherwise, only a part is stored.
        is_whole: bool,
    },
    /// The head of the client's response may be sent.
    Promise(CursorId),
    /// Wake the client, because there are bytes for its cursor.
    Wake(CursorId),
    /// The cursor ends and is gone.
    End(CursorId, CursorEnd),
    /// The run brings another representation. It no longer belongs to this object, and the driver makes a new object of
    /// it.
    Other(RunId),
    /// Report [`Event::Tick`] at this time. An earlier request for a later time need not be withdrawn.
    Timer(Tick),
    /// The object stores no further chunks, so its body does not become whole in the store. A later [`Event::Updated`]
    /// still commits the head of the stored part.
    GivenUp,
}

/// A request to the origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginAsk {
    /// The whole body.
    Whole,
    /// A part of the body.
    Range {
        /// The first byte and the end. An end of `u64::MAX` requests everything after the first byte.
        span: Range<u64>,
        /// Whether the request has an `If-Range` field with the validator.
        if_range: bool,
    },
}

/// Why a cursor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CursorEnd {
    /// The client has taken all bytes of its spans.
    Whole,
    /// No source has the next byte.
    Broken,
    /// The client held up other clients for too long.
    TooSlow,
    /// Nothing was sent to the client, and there is a newer object: attach the client to that object.
    MoveOver,
    /// Nothing was sent, and this object cannot serve the spans: pass the client's own request to the origin.
    AskAlone,
}
