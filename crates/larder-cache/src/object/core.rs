//! The state machine of one body: applies an event, then settles what follows from it for clients, store, memory and
//! runs.

use super::{
    Action, Actions, CursorEnd, CursorId, Event, Head, OriginAsk, RunId, Sizes, Tick,
    chunk_map::ChunkMap,
    cursors::Cursor,
    memory::Patience,
    plan::{Verdict, View, plan},
    runs::{OriginRun, Retries, Trouble},
};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;

/// One body: its head, its known bytes, the clients that read it and the responses that fill it.
///
/// Events for a cursor (a client) or a run (a response) that has ended are ignored: they may have been sent before it
/// ended.
///
/// ```
/// use larder_cache::object::{Actions, Arrival, Core, CursorId, CursorTerms, Event, Head, PromiseRule, Sizes, Tick};
///
/// #[derive(Clone)]
/// struct Announced(u64);
///
/// impl Head for Announced {
///     fn validator(&self) -> Option<&[u8]> {
///         None
///     }
///     fn len(&self) -> Option<u64> {
///         Some(self.0)
///     }
///     fn is_divisible(&self) -> bool {
///         false
///     }
/// }
///
/// let (chunk, block, cut) = (1 << 20, 8 << 10, u64::MAX);
/// let (ahead, lead, gap) = (8 << 20, 4 << 20, 256 << 10);
/// let sizes = Sizes { chunk, block, cut, ahead, lead, gap, kept: 16 << 20, least: 64 << 10 };
/// // A response of 5 bytes has begun to arrive. It is not stored.
/// let (mut core, run) = Core::arriving(sizes, Announced(5), 0..5, true, false);
/// let mut actions = Actions::new();
/// let client = CursorId(1);
/// let terms = CursorTerms { may_ask: true, promise: PromiseRule::All };
/// core.on(Tick(0), Event::Attach(client, [0..5].into_iter().collect(), terms), &mut actions);
/// core.on(Tick(1), Event::Came(run, Arrival::Bytes("hello".into())), &mut actions);
/// assert_eq!(core.bytes_at(client).expect("promised"), "hello");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Core<H> {
    pub(super) sizes: Sizes,
    pub(super) head: H,
    pub(super) map: ChunkMap,
    pub(super) runs: SmallVec<[OriginRun; 2]>,
    /// The clients, sorted by their numbers.
    pub(super) cursors: Vec<Cursor>,
    pub(super) keep: Option<Range<u64>>,
    pub(super) is_storing: bool,
    /// Whether the response that began the object brings only a part of the body. Parts of such a body are stored even
    /// if no further request can complete it.
    is_part: bool,
    pub(super) committed: CommittedExtent,
    /// Whether the body is known to end with its last byte: the byte came in a response that ended as announced, or was
    /// found in the store.
    pub(super) is_end_proved: bool,
    pub(super) is_outdated: bool,
    /// Whether the origin has answered a request for a range with the whole body, so it does not support ranges.
    pub(super) has_no_ranges: bool,
    pub(super) share: u64,
    pub(super) next_run: u32,
    pub(super) retries: Retries,
    pub(super) trouble: Trouble,
    /// The deadlines for storing. Set while a client waits because memory is full of bytes that the store has not
    /// taken.
    pub(super) patience: Option<Patience>,
    timer: Option<Tick>,
}

/// The extent of the body that the head in the store announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CommittedExtent {
    /// No head of the body was committed to the store.
    Nothing,
    /// The head in the store announces a part of the body.
    Part,
    /// The head in the store announces the whole body.
    Whole,
}

impl<H: Head> Core<H> {
    /// Creates the object of an entry in the store. Its chunks must be probed before they are read.
    ///
    /// # Panics
    /// If the head has no length: the head of a stored body always has one. If a chunk has no bytes.
    pub fn stored(sizes: Sizes, head: H) -> Self {
        let len = head.len().expect("the head of a stored body has a length");
        let map = ChunkMap::unprobed(sizes, len);
        Self {
            committed: CommittedExtent::Part,
            is_end_proved: len == 0,
            is_storing: true,
            ..Self::new(sizes, head, map)
        }
    }

    /// Creates the object of a response whose head has come: a 200 if `is_whole`, otherwise a 206 with `span`. Returns
    /// the number of the run (the response in progress) that brings its body. Nothing is stored unless `is_stored`.
    ///
    /// # Panics
    /// If a chunk has no bytes.
    pub fn arriving(sizes: Sizes, head: H, span: Range<u64>, is_whole: bool, is_stored: bool) -> (Self, RunId) {
        let map = ChunkMap::empty(sizes, head.len());
        let mut core = Self { is_storing: is_stored, is_part: !is_whole, ..Self::new(sizes, head, map) };
        let id = core.new_run_id();
        let span = if is_whole { 0..core.map.end() } else { span };
        core.runs.push(OriginRun::open(id, span));
        (core, id)
    }

    fn new(sizes: Sizes, head: H, map: ChunkMap) -> Self {
        Self {
            sizes,
            head,
            map,
            runs: SmallVec::new(),
            cursors: Vec::new(),
            keep: None,
            is_storing: false,
            is_part: false,
            committed: CommittedExtent::Nothing,
            is_end_proved: false,
            is_outdated: false,
            has_no_ranges: false,
            share: u64::MAX,
            next_run: 0,
            retries: Retries::default(),
            trouble: Trouble::default(),
            patience: None,
            timer: None,
        }
    }

    /// Applies an event, and adds to `actions` what the caller must do. Memory is unlimited until the first
    /// [`Event::Budget`].
    pub fn on(&mut self, now: Tick, event: Event<H>, actions: &mut Actions) {
        let step = self.step_of(&event);
        let twin = step.as_ref().filter(|_| cfg!(debug_assertions)).map(|_| (self.clone(), event.clone()));
        let before = actions.len();
        self.expire(now, actions);
        self.apply(now, event, actions);
        if step.is_some_and(|step| self.follow_step(&step, actions)) {
            let is_equal = twin.is_none_or(|(twin, event)| twin.reaches(now, event, (self, &actions[before..])));
            debug_assert!(is_equal, "the short way ends elsewhere: {actions:?}");
        } else {
            self.follow(now, actions);
        }
        debug_assert!(self.is_consistent());
    }

    /// Takes all steps that follow from the state after an event: for clients, store, memory and responses.
    fn follow(&mut self, now: Tick, actions: &mut Actions) {
        self.drop_vain_want();
        self.settle(now, actions);
        self.store_chunks(now, actions);
        self.make_room(now, actions);
        while self.carry_out_plan(now, actions) || self.end_stranded(now, actions) {
            self.release(now);
            self.drop_vain_want();
        }
        self.complete_chunks(now, actions);
        self.store_parts(actions);
        self.set_timer(now, actions);
    }

    /// Forgets the span that the cache itself wants to store, if no response is in progress and none can continue this
    /// body. Otherwise the object would never be at rest.
    fn drop_vain_want(&mut self) {
        if self.runs.is_empty() && !self.can_continue() {
            self.keep = None;
        }
    }

    /// Returns whether applying the event without the shortcut in `steady` leads to the expected state and actions.
    /// Called with debug assertions only.
    fn reaches(mut self, now: Tick, event: Event<H>, expected: (&Self, &[Action])) -> bool {
        let (other, expected_actions) = expected;
        let mut actions = Actions::new();
        self.expire(now, &mut actions);
        self.apply(now, event, &mut actions);
        self.follow(now, &mut actions);
        let are_equal = self.map == other.map && self.runs == other.runs && self.cursors == other.cursors;
        let are_times_equal = self.timer == other.timer && self.patience == other.patience;
        let is_rest_equal = self.retries == other.retries && self.is_storing == other.is_storing;
        are_equal && are_times_equal && is_rest_equal && actions.as_slice() == expected_actions
    }

    /// Returns bytes that the cursor (the client) can take now. They begin at its position, and end with their piece in
    /// memory or with the requested span.
    ///
    /// `None` if the byte at the cursor's position is not in memory, if the cursor has no promise yet, or if it has
    /// ended.
    pub fn bytes_at(&self, cursor: CursorId) -> Option<Bytes> {
        let cursor = self.cursor(cursor).filter(|cursor| cursor.is_promised && !cursor.is_at_end())?;
        let bytes = self.map.get(cursor.position())?;
        let left = cursor.span_end() - cursor.position();
        Some(bytes.slice(..left.min(bytes.len() as u64) as usize))
    }

    /// Returns the position in the body of the next byte that the cursor takes. After the last byte of a span, this is
    /// the first byte of the next span. `None` if the cursor has ended.
    pub fn position(&self, cursor: CursorId) -> Option<u64> {
        self.cursor(cursor).map(Cursor::position)
    }

    /// Returns the number of bytes in memory.
    pub fn held_bytes(&self) -> u64 {
        self.map.held_bytes()
    }

    /// Returns the length of the body: from the start if the head announces it, otherwise from the end of the response
    /// on.
    #[expect(clippy::len_without_is_empty, reason = "the length may be unknown, so there is no emptiness to ask for")]
    pub fn len(&self) -> Option<u64> {
        self.map.len()
    }

    /// Returns whether the whole body is in memory or in the store. Its end must be proved: the last byte came in a
    /// response that ended as announced, or was found in the store.
    pub fn is_complete(&self) -> bool {
        self.is_end_proved && self.map.len().is_some_and(|len| self.map.has_all(0..len))
    }

    /// Returns the number of cursors, which are the clients of the object.
    pub fn cursor_count(&self) -> usize {
        self.cursors.len()
    }

    /// Returns the number of the response in progress that brings the first bytes the cursor still needs. `None` if no
    /// response brings any.
    pub fn awaited_run(&self, cursor: CursorId) -> Option<RunId> {
        let cursor = self.cursor(cursor)?;
        let survey = self.view(Tick(0)).survey(cursor.remaining());
        survey.runs.first().map(|&run| self.runs[run].id)
    }

    /// Returns whether the object is idle apart from its clients: no response of the origin is in progress, no chunk is
    /// being written, and the cache does not want to store any span for itself. Clients may still read.
    pub fn is_at_rest(&self) -> bool {
        self.runs.is_empty() && self.keep.is_none() && !self.map.is_writing()
    }

    /// Returns whether a chunk, or a part of one, is being written to the store.
    pub fn is_writing(&self) -> bool {
        self.map.is_writing()
    }

    /// Returns whether the object has no clients and no work in progress, so that the driver may drop it.
    pub fn is_idle(&self) -> bool {
        self.cursors.is_empty() && self.is_at_rest() && !self.map.is_reading_or_probing()
    }

    /// Returns whether the store may have a part of the body without the remainder.
    pub(super) fn keeps_parts(&self) -> bool {
        self.is_part || self.is_divisible()
    }

    /// Returns whether the start of the chunk can be read from the store, as far as is known: the store can lose chunks
    /// at any time.
    pub fn is_in_store(&self, chunk: u64) -> bool {
        self.map.is_readable(self.map.span_of(chunk).start)
    }

    /// Returns the head of the body, as it is after the last [`Event::Updated`].
    pub fn head(&self) -> &H {
        &self.head
    }

    fn apply(&mut self, now: Tick, event: Event<H>, actions: &mut Actions) {
        match event {
            Event::Attach(id, spans, terms) => self.attach(Cursor::new(id, spans, terms, now), actions),
            Event::Moved(id, position) => self.move_cursor(now, id, position),
            Event::Left(id) => self.cursors.retain(|cursor| cursor.id != id),
            Event::Came(id, arrival) => self.arrive(now, id, arrival, actions),
            Event::Probed(chunk, end) => self.end_probe(now, chunk, &end, actions),
            Event::Unsure(chunk) => self.map.doubt(chunk),
            Event::Read(range, found) => self.end_read(now, range, found, actions),
            Event::Stored(chunk, end) => self.end_store(now, (chunk, end), actions),
            Event::StoredPart(chunk, end) => self.end_part(chunk, end, actions),
            Event::Updated(head) => self.update(head, actions),
            Event::Outdated => self.outdate(actions),
            Event::Budget(share) => self.share = share,
            Event::Keep(span) => self.keep = self.keepable(span).filter(|keep| self.lacks_stored(keep)),
            Event::Tick => self.timer = self.timer.filter(|timer| *timer > now),
        }
    }

    pub(super) fn cursor(&self, id: CursorId) -> Option<&Cursor> {
        self.cursors.binary_search_by_key(&id, |cursor| cursor.id).ok().map(|at| &self.cursors[at])
    }

    fn attach(&mut self, mut cursor: Cursor, actions: &mut Actions) {
        if self.is_outdated {
            actions.push(Action::End(cursor.id, CursorEnd::MoveOver));
            return;
        }
        let place = self.cursors.binary_search_by_key(&cursor.id, |other| other.id);
        let place = place.expect_err("the number of a cursor is unique");
        cursor.clip(self.map.end());
        self.cursors.insert(place, cursor);
    }

    fn move_cursor(&mut self, now: Tick, id: CursorId, position: u64) {
        if let Ok(at) = self.cursors.binary_search_by_key(&id, |cursor| cursor.id) {
            self.cursors[at].move_to(position, now);
        }
    }

    /// Returns whether the store lacks bytes of `span` that this node would store.
    fn lacks_stored(&self, span: &Range<u64>) -> bool {
        !self.map.unstored_of(span.clone()).is_empty()
    }

    /// Extends `span` to whole chunks within the body. `None` if they cannot be stored.
    fn keepable(&self, span: Range<u64>) -> Option<Range<u64>> {
        let span = span.start..span.end.min(self.map.end());
        if !self.is_storing || self.is_outdated || span.is_empty() {
            return None;
        }
        let first = self.map.span_of(self.map.chunk_of(span.start));
        let last = self.map.span_of(self.map.chunk_of(span.end - 1));
        Some(first.start..last.end)
    }

    fn update(&mut self, head: H, actions: &mut Actions) {
        self.head = head;
        if self.committed != CommittedExtent::Nothing && !self.is_outdated {
            actions.push(Action::CommitHead { is_whole: self.committed == CommittedExtent::Whole });
        }
    }

    /// Marks the object as outdated, so that it accepts no more cursors (clients). Cursors to which nothing was sent
    /// move to the newer object.
    pub(super) fn outdate(&mut self, actions: &mut Actions) {
        self.is_outdated = true;
        self.keep = None;
        self.end_cursors(actions, |_, cursor| (!cursor.is_promised).then_some(CursorEnd::MoveOver));
    }

    /// Ends the cursors (clients) for which `end` returns a reason.
    pub(super) fn end_cursors(&mut self, actions: &mut Actions, end: impl Fn(&Self, &Cursor) -> Option<CursorEnd>) {
        let reason = |cursor: &Cursor| end(self, cursor).map(|reason| (cursor.id, reason));
        let ended: SmallVec<[(CursorId, CursorEnd); 4]> = self.cursors.iter().filter_map(reason).collect();
        self.cursors.retain(|cursor| ended.iter().all(|(id, _)| *id != cursor.id));
        actions.extend(ended.into_iter().map(|(id, reason)| Action::End(id, reason)));
    }
}

/// Executes plans, and ends responses and clients whose time is over.
impl<H: Head> Core<H> {
    /// Returns how many bytes of the body may be in memory.
    pub(super) fn room(&self) -> u64 {
        let least = if self.cursors.is_empty() { 1 } else { self.sizes.least.max(1) };
        self.share.max(least)
    }

    /// Returns the facts on which a plan depends, as they are at `now`.
    pub(super) fn view(&self, now: Tick) -> View<'_> {
        View {
            sizes: self.sizes,
            map: &self.map,
            runs: &self.runs,
            cursors: &self.cursors,
            keep: self.keep.clone(),
            now,
            is_storing: self.is_storing,
            is_divisible: self.is_divisible(),
            may_ask: self.can_continue() && self.retries.ask_at.is_none(),
            may_read: self.trouble.read_at.is_none(),
            reach: if self.has_no_ranges { u64::MAX } else { self.sizes.ahead },
            room: self.room(),
        }
    }

    /// Makes a plan and executes it. Returns `true` if that stopped a response, so that another plan must be made.
    fn carry_out_plan(&mut self, now: Tick, actions: &mut Actions) -> bool {
        let plan = plan(&self.view(now));
        for chunk in plan.probes {
            self.map.begin_probe(chunk);
            actions.push(Action::Probe(chunk));
        }
        for range in plan.reads {
            self.map.begin_read(range.clone());
            actions.push(Action::Read(range));
        }
        for (run, verdict) in self.runs.iter_mut().zip(&plan.verdicts) {
            run.follow(*verdict, now, actions);
        }
        let stopped: SmallVec<[RunId; 2]> = self
            .runs
            .iter()
            .zip(&plan.verdicts)
            .filter(|(_, verdict)| **verdict == Verdict::Stop)
            .map(|(run, _)| run.id)
            .collect();
        for ask in plan.asks {
            self.ask(ask, actions);
        }
        self.stop_runs(actions, |_, run| stopped.contains(&run.id));
        !stopped.is_empty()
    }

    /// Returns whether a response can be stopped without harm. Another request must be able to bring its missing bytes,
    /// and each client that waits for them must be allowed to cause that request.
    fn can_continue_later(&self, run: &OriginRun) -> bool {
        let needs = |part: Range<u64>| part.start < run.end && run.next < part.end;
        let mut others = self.cursors.iter().filter(|cursor| cursor.is_promised && !cursor.terms.may_ask);
        self.can_continue() && !others.any(|cursor| cursor.remaining().any(needs))
    }

    fn ask(&mut self, ask: OriginAsk, actions: &mut Actions) {
        let id = self.new_run_id();
        self.runs.push(OriginRun::asked(id, &ask, self.map.len()));
        actions.push(Action::Ask(id, ask));
    }

    fn new_run_id(&mut self) -> RunId {
        self.next_run += 1;
        RunId(self.next_run - 1)
    }

    /// Stops the responses in progress for which `is_over` is true.
    pub(super) fn stop_runs(&mut self, actions: &mut Actions, is_over: impl Fn(&Self, &OriginRun) -> bool) {
        let over: SmallVec<[RunId; 2]> = self.runs.iter().filter(|run| is_over(self, run)).map(|run| run.id).collect();
        self.runs.retain(|run| !over.contains(&run.id));
        actions.extend(over.into_iter().map(Action::Stop));
    }

    /// Stops responses that were paused or unwanted for too long, and ends cursors (clients) that held up others for
    /// too long.
    fn expire(&mut self, now: Tick, actions: &mut Actions) {
        let has_come = |time: Option<Tick>| time.is_some_and(|time| time <= now);
        let mut runs = self.runs.iter();
        let mut cursors = self.cursors.iter();
        let is_due = has_come(self.retries.ask_at)
            || has_come(self.trouble.read_at)
            || runs.any(|run| has_come(run.paused_until) || has_come(run.unwanted_until))
            || cursors.any(|cursor| has_come(cursor.holds_until));
        if !is_due {
            return;
        }
        self.retries.ask_at = self.retries.ask_at.filter(|time| *time > now);
        self.trouble.read_at = self.trouble.read_at.filter(|time| *time > now);
        // The cache's own want does not wait for clients, so memory was short for all this time.
        let is_stuck = |run: &OriginRun| {
            has_come(run.paused_until) && self.keep.as_ref().is_some_and(|keep| keep.contains(&run.next))
        };
        if self.runs.iter().any(is_stuck) {
            self.keep = None;
        }
        self.stop_runs(actions, |core, run| {
            has_come(run.unwanted_until) || has_come(run.paused_until) && core.can_continue_later(run)
        });
        self.end_cursors(actions, |_, cursor| has_come(cursor.holds_until).then_some(CursorEnd::TooSlow));
    }

    /// Sets the timer to the next deadline, such as the end of a pause, of a retry delay or of a client's patience.
    fn set_timer(&mut self, now: Tick, actions: &mut Actions) {
        let paused = self.runs.iter().filter(|run| self.can_continue_later(run)).filter_map(|run| run.paused_until);
        let unwanted = self.runs.iter().filter_map(|run| run.unwanted_until);
        let holding = self.cursors.iter().filter_map(|cursor| cursor.holds_until);
        let is_blocked = self.block(now).is_some();
        let standing = self.cursors.iter().filter(|_| is_blocked).map(|cursor| cursor.stands_from);
        let overdue = self.map.overdue_at().filter(|_| self.patience.is_some());
        let patient = self.patience.map(Patience::end);
        let waits = [self.retries.ask_at, self.trouble.read_at, patient, overdue].into_iter().flatten();
        let times = paused.chain(unwanted).chain(holding).chain(standing).chain(waits);
        let Some(next) = times.filter(|time| *time > now).min() else {
            return;
        };
        if self.timer.is_none_or(|timer| next < timer) {
            self.timer = Some(next);
            actions.push(Action::Timer(next));
        }
    }

    fn is_consistent(&self) -> bool {
        let are_sorted = self.cursors.is_sorted_by(|before, after| before.id < after.id);
        let are_in_body = self.runs.iter().all(|run| run.next <= run.end && run.end <= self.map.end());
        are_sorted && are_in_body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Arrival, CursorEnd, CursorTerms, ProbeEnd, PromiseRule, ReadEnd, StoreEnd};
    use smallvec::smallvec;

    const SIZES: Sizes = Sizes { chunk: 4, block: 4, cut: u64::MAX, ahead: 8, lead: 8, gap: 2, kept: 0, least: 4 };
    const TERMS: CursorTerms = CursorTerms { may_ask: true, promise: PromiseRule::All };
    const A: CursorId = CursorId(1);
    const B: CursorId = CursorId(2);
    const FIRST: RunId = RunId(0);

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct TestHead {
        tag: Option<&'static [u8]>,
        len: Option<u64>,
    }

    impl Head for TestHead {
        fn validator(&self) -> Option<&[u8]> {
            self.tag
        }
        fn len(&self) -> Option<u64> {
            self.len
        }
        fn is_divisible(&self) -> bool {
            self.tag.is_some() && self.len.is_some()
        }
    }

    /// Drives a core in a test, and returns its actions.
    struct Driver {
        core: Core<TestHead>,
        now: Tick,
    }

    fn divisible(len: u64) -> TestHead {
        TestHead { tag: Some(b"a"), len: Some(len) }
    }

    fn plain(len: Option<u64>) -> TestHead {
        TestHead { tag: None, len }
    }

    fn bytes(span: Range<u64>) -> Bytes {
        span.map(|at| at as u8).collect()
    }

    impl Driver {
        fn stored(len: u64) -> Self {
            Self { core: Core::stored(SIZES, divisible(len)), now: Tick(0) }
        }

        fn arriving(head: TestHead, is_stored: bool) -> Self {
            let span = 0..head.len.unwrap_or(u64::MAX);
            let (core, run) = Core::arriving(SIZES, head, span, true, is_stored);
            assert_eq!(run, FIRST);
            Self { core, now: Tick(0) }
        }

        /// Applies an event to the core. Returns its actions without those that set a timer.
        fn on(&mut self, event: Event<TestHead>) -> Vec<Action> {
            let mut actions = Actions::new();
            self.core.on(self.now, event, &mut actions);
            actions.into_iter().filter(|action| !matches!(action, Action::Timer(_))).collect()
        }

        fn attach(&mut self, cursor: CursorId, span: Range<u64>) -> Vec<Action> {
            self.on(Event::Attach(cursor, smallvec![span], TERMS))
        }

        fn came(&mut self, run: RunId, span: Range<u64>) -> Vec<Action> {
            self.on(Event::Came(run, Arrival::Bytes(bytes(span))))
        }

        fn head(&mut self, run: RunId, head: TestHead, span: Range<u64>, is_whole: bool) -> Vec<Action> {
            self.on(Event::Came(run, Arrival::Head { head, span, is_whole }))
        }

        fn broken(&mut self, run: RunId) -> Vec<Action> {
            self.on(Event::Came(run, Arrival::Broken))
        }

        fn end(&mut self, run: RunId) -> Vec<Action> {
            self.on(Event::Came(run, Arrival::End(None)))
        }

        fn after(&mut self, millis: u64) -> Vec<Action> {
            self.now = self.now.after(millis);
            self.on(Event::Tick)
        }

        fn probed(&mut self, found: &[bool]) -> Vec<Action> {
            found.iter().zip(0..).flat_map(|(found, chunk)| self.on(Event::Probed(chunk, probe_end(*found)))).collect()
        }
    }

    fn probe_end(is_found: bool) -> ProbeEnd {
        if is_found { ProbeEnd::Whole } else { ProbeEnd::Absent }
    }

    fn range(run: u32, span: Range<u64>) -> Action {
        Action::Ask(RunId(run), OriginAsk::Range { span, if_range: true })
    }

    fn store(chunk: u64, span: Range<u64>) -> Action {
        Action::Store(chunk, smallvec![bytes(span)])
    }

    #[test]
    fn body_streams_to_a_client_is_stored_and_committed() {
        let mut driver = Driver::arriving(divisible(6), true);
        assert_eq!(driver.attach(A, 0..6), [Action::Promise(A)]);
        assert_eq!(driver.came(FIRST, 0..4), [Action::Wake(A), store(0, 0..4)]);
        assert_eq!(driver.core.bytes_at(A), Some(bytes(0..4)));
        assert_eq!(driver.on(Event::Moved(A, 4)), []);
        assert_eq!(driver.on(Event::Stored(0, StoreEnd::Done)), [Action::CommitHead { is_whole: false }]);
        assert_eq!(driver.core.held_bytes(), 0);
        assert_eq!(driver.came(FIRST, 4..6), [Action::Wake(A)]);
        assert_eq!(driver.on(Event::Moved(A, 6)), []);
        assert_eq!(driver.end(FIRST), [Action::End(A, CursorEnd::Whole), store(1, 4..6)]);
        assert_eq!(driver.on(Event::Stored(1, StoreEnd::Done)), [Action::CommitHead { is_whole: true }]);
        assert!(driver.core.is_idle());
    }

    #[test]
    fn length_is_known_when_the_response_has_ended() {
        let mut driver = Driver::arriving(plain(None), true);
        assert_eq!(driver.attach(A, 0..u64::MAX), [Action::Promise(A)]);
        assert_eq!(driver.came(FIRST, 0..3), [Action::Wake(A)]);
        assert_eq!(driver.on(Event::Moved(A, 3)), []);
        assert_eq!(driver.end(FIRST), [Action::End(A, CursorEnd::Whole), store(0, 0..3)]);
    }

    #[test]
    fn hit_is_promised_when_all_chunks_are_probed() {
        let mut driver = Driver::stored(8);
        assert_eq!(driver.attach(A, 0..8), [Action::Probe(0), Action::Probe(1)]);
        assert_eq!(driver.on(Event::Probed(0, ProbeEnd::Whole)), []);
        assert_eq!(
            driver.on(Event::Probed(1, ProbeEnd::Whole)),
            [Action::Promise(A), Action::Read(0..4), Action::Read(4..8)]
        );
        assert_eq!(driver.on(Event::Read(0..4, ReadEnd::Bytes(bytes(0..4)))), [Action::Wake(A)]);
        assert_eq!(driver.on(Event::Moved(A, 4)), []);
        assert_eq!(driver.core.held_bytes(), 0);
        assert_eq!(driver.on(Event::Read(4..8, ReadEnd::Bytes(bytes(4..8)))), [Action::Wake(A)]);
        assert_eq!(driver.on(Event::Moved(A, 8)), [Action::End(A, CursorEnd::Whole)]);
        assert!(driver.core.is_idle());
    }

    #[test]
    fn gap_is_promised_when_the_origin_has_agreed_to_fill_it() {
        let mut driver = Driver::stored(12);
        driver.attach(A, 0..12);
        assert_eq!(driver.probed(&[true, false, true]), [range(0, 4..8)]);
        assert_eq!(driver.head(FIRST, divisible(12), 4..8, false), [Action::Promise(A), Action::Read(0..4)]);
    }

    #[test]
    fn client_without_a_promise_asks_alone_when_the_origin_fails() {
        let mut driver = Driver::stored(12);
        driver.attach(A, 0..12);
        driver.probed(&[true, false, true]);
        assert_eq!(driver.broken(FIRST), [Action::End(A, CursorEnd::AskAlone)]);
    }

    #[test]
    fn other_representation_leaves_and_unpromised_clients_move_over() {
        let mut driver = Driver::stored(8);
        driver.attach(A, 0..8);
        driver.probed(&[true, false]);
        let other = TestHead { tag: Some(b"b"), len: Some(8) };
        let expected = [Action::Other(FIRST), Action::End(A, CursorEnd::MoveOver)];
        assert_eq!(driver.head(FIRST, other, 0..8, true), expected);
        assert_eq!(driver.attach(B, 0..8), [Action::End(B, CursorEnd::MoveOver)]);
    }

    #[test]
    fn promised_client_gets_two_retries_after_another_representation() {
        let mut driver = Driver::arriving(divisible(8), false);
        driver.attach(A, 0..8);
        assert_eq!(driver.broken(FIRST), []);
        assert_eq!(driver.after(100), [Action::Ask(RunId(1), OriginAsk::Whole)]);
        let other = TestHead { tag: Some(b"b"), len: Some(8) };
        let retry = [Action::Other(RunId(1)), Action::Ask(RunId(2), OriginAsk::Whole)];
        assert_eq!(driver.head(RunId(1), other.clone(), 0..8, true), retry);
        let retry = [Action::Other(RunId(2)), Action::Ask(RunId(3), OriginAsk::Whole)];
        assert_eq!(driver.head(RunId(2), other.clone(), 0..8, true), retry);
        let expected = [Action::Other(RunId(3)), Action::End(A, CursorEnd::Broken)];
        assert_eq!(driver.head(RunId(3), other, 0..8, true), expected);
    }

    #[test]
    fn run_that_breaks_off_is_continued_then_its_clients_end() {
        let mut driver = Driver::arriving(divisible(8), false);
        driver.attach(A, 0..8);
        driver.came(FIRST, 0..3);
        driver.on(Event::Moved(A, 3));
        assert_eq!(driver.broken(FIRST), []);
        assert_eq!(driver.after(100), [range(1, 3..8)]);
        assert_eq!(driver.broken(RunId(1)), []);
        assert_eq!(driver.after(1_500), [range(2, 3..8)]);
        assert_eq!(driver.broken(RunId(2)), [Action::End(A, CursorEnd::Broken)]);
    }

    #[test]
    fn client_of_an_indivisible_body_gets_what_is_present_before_it_ends() {
        let mut driver = Driver::arriving(plain(Some(8)), false);
        driver.attach(A, 0..8);
        driver.came(FIRST, 0..3);
        assert_eq!(driver.broken(FIRST), []);
        assert_eq!(driver.core.bytes_at(A), Some(bytes(0..3)));
        assert_eq!(driver.on(Event::Moved(A, 3)), [Action::End(A, CursorEnd::Broken)]);
    }

    #[test]
    fn bytes_beyond_the_announced_ones_are_not_kept() {
        let mut driver = Driver::arriving(plain(Some(3)), false);
        driver.attach(A, 0..3);
        let expected = [Action::Stop(FIRST), Action::Wake(A)];
        assert_eq!(driver.came(FIRST, 0..5), expected);
        assert_eq!(driver.core.held_bytes(), 3);
        assert_eq!(driver.attach(B, 0..3), [Action::End(B, CursorEnd::AskAlone)]);
        assert_eq!(driver.on(Event::Moved(A, 3)), [Action::End(A, CursorEnd::Broken)]);
    }

    #[test]
    fn range_that_starts_elsewhere_is_stopped() {
        let mut driver = Driver::stored(12);
        driver.attach(A, 0..12);
        driver.probed(&[true, false, true]);
        let expected = [Action::Stop(FIRST), Action::End(A, CursorEnd::AskAlone)];
        assert_eq!(driver.head(FIRST, divisible(12), 0..4, false), expected);
    }

    #[test]
    fn whole_response_to_a_range_request_serves_all() {
        let mut driver = Driver::stored(32);
        driver.attach(A, 4..8);
        driver.attach(B, 24..28);
        assert_eq!(driver.probed(&[false; 8]), [range(0, 4..8), range(1, 24..28)]);
        let expected = [Action::Stop(RunId(1)), Action::Promise(A), Action::Promise(B)];
        assert_eq!(driver.head(FIRST, divisible(32), 0..32, true), expected);
    }

    #[test]
    fn client_far_ahead_of_an_indivisible_run_asks_alone() {
        let mut driver = Driver::arriving(plain(Some(32)), true);
        driver.attach(A, 0..32);
        assert_eq!(driver.attach(B, 24..32), [Action::End(B, CursorEnd::AskAlone)]);
    }

    #[test]
    fn client_far_ahead_of_a_divisible_run_gets_its_own() {
        let mut driver = Driver::arriving(divisible(32), true);
        driver.attach(A, 0..32);
        assert_eq!(driver.attach(B, 24..32), [range(1, 24..32)]);
    }

    #[test]
    fn run_waits_for_the_fastest_client_and_is_stopped_after_a_while() {
        let mut driver = Driver::arriving(divisible(32), true);
        driver.attach(A, 0..32);
        driver.came(FIRST, 0..4);
        assert!(driver.came(FIRST, 4..8).contains(&Action::Pause(FIRST)));
        assert_eq!(driver.on(Event::Moved(A, 2)), [Action::Resume(FIRST)]);
        assert!(driver.came(FIRST, 8..12).contains(&Action::Pause(FIRST)));
        assert_eq!(driver.after(29_999), []);
        assert_eq!(driver.after(1), [Action::Stop(FIRST)]);
    }

    #[test]
    fn run_that_nobody_wants_is_stopped_after_a_second() {
        let mut driver = Driver::arriving(divisible(32), true);
        driver.attach(A, 0..32);
        assert_eq!(driver.on(Event::Left(A)), [Action::Pause(FIRST)]);
        assert_eq!(driver.after(999), []);
        assert_eq!(driver.after(1), [Action::Stop(FIRST)]);
        assert!(driver.core.is_idle());
    }

    #[test]
    fn kept_run_goes_on_without_clients_until_all_is_stored() {
        let mut driver = Driver::arriving(divisible(8), true);
        driver.attach(A, 0..8);
        driver.on(Event::Keep(0..8));
        assert_eq!(driver.on(Event::Left(A)), []);
        assert_eq!(driver.came(FIRST, 0..8), [store(0, 0..4)]);
        assert_eq!(driver.end(FIRST), [store(1, 4..8)]);
        driver.on(Event::Stored(0, StoreEnd::Done));
        assert_eq!(driver.on(Event::Stored(1, StoreEnd::Done)), [Action::CommitHead { is_whole: true }]);
        assert!(driver.core.is_idle());
    }

    /// Guards against a fetch that never ends, because its last client left after the response had broken off.
    #[test]
    fn body_that_nothing_can_continue_is_not_wanted_by_the_cache() {
        let mut driver = Driver::arriving(plain(Some(8)), true);
        driver.attach(A, 0..8);
        driver.came(FIRST, 0..4);
        driver.on(Event::Came(FIRST, Arrival::Broken));
        driver.on(Event::Left(A));
        driver.on(Event::Keep(0..8));
        driver.on(Event::Stored(0, StoreEnd::Done));
        assert!(driver.core.is_idle());
    }

    #[test]
    fn slow_client_of_a_divisible_unstored_body_is_left_behind_at_once() {
        let mut driver = Driver::arriving(divisible(32), false);
        driver.on(Event::Budget(8));
        driver.attach(A, 0..32);
        driver.attach(B, 0..32);
        driver.came(FIRST, 0..8);
        assert_eq!(driver.on(Event::Moved(A, 8)), [Action::Resume(FIRST)]);
        assert_eq!([driver.core.bytes_at(B), driver.core.position(B).map(|_| bytes(0..0))], [None, Some(bytes(0..0))]);
        assert_eq!(driver.on(Event::Moved(B, 0)), [range(1, 0..8)]);
    }

    #[test]
    fn client_that_was_left_behind_keeps_its_bytes_until_it_stands() {
        let mut driver = Driver::arriving(divisible(32), false);
        driver.on(Event::Budget(4));
        driver.attach(A, 0..32);
        driver.attach(B, 0..32);
        driver.came(FIRST, 0..8);
        driver.on(Event::Moved(A, 8));
        driver.on(Event::Moved(B, 0));
        driver.head(RunId(1), divisible(32), 0..8, false);
        driver.came(RunId(1), 0..8);
        driver.after(999);
        assert_eq!(driver.core.bytes_at(B), Some(bytes(0..4)));
        driver.after(1);
        assert_eq!(driver.core.bytes_at(B), None);
    }

    #[test]
    fn cache_keeps_what_the_store_has_but_cannot_read() {
        let mut driver = Driver::stored(32);
        driver.attach(A, 0..8);
        driver.probed(&[true; 2]);
        assert_eq!(driver.on(Event::Read(0..4, ReadEnd::Trouble)), [range(0, 0..8)]);
        driver.head(FIRST, divisible(32), 0..8, false);
        driver.came(FIRST, 0..4);
        driver.on(Event::Moved(A, 4));
        assert_eq!(driver.on(Event::Keep(0..8)), []);
    }

    #[test]
    fn slow_client_of_an_indivisible_unstored_body_ends_after_ten_seconds() {
        let mut driver = Driver::arriving(plain(Some(32)), false);
        driver.attach(A, 0..32);
        driver.attach(B, 0..32);
        driver.came(FIRST, 0..8);
        assert_eq!(driver.on(Event::Moved(A, 8)), []);
        assert_eq!(driver.after(9_999), []);
        let expected = [Action::End(B, CursorEnd::TooSlow), Action::Resume(FIRST)];
        assert_eq!(driver.after(1), expected);
    }

    #[test]
    fn run_whose_end_nobody_awaits_is_stopped() {
        let mut driver = Driver::arriving(divisible(8), false);
        driver.attach(A, 0..4);
        driver.came(FIRST, 0..8);
        driver.on(Event::Left(A));
        assert_eq!(driver.after(1_000), [Action::Stop(FIRST)]);
        assert!(driver.core.is_idle());
    }

    #[test]
    fn client_that_could_read_the_store_holds_up_others_when_storing_is_given_up() {
        let mut driver = Driver::arriving(plain(Some(32)), true);
        driver.attach(A, 0..32);
        driver.attach(B, 4..12);
        driver.came(FIRST, 0..4);
        driver.on(Event::Stored(0, StoreEnd::Done));
        driver.came(FIRST, 4..8);
        driver.on(Event::Moved(B, 8));
        driver.on(Event::Stored(1, StoreEnd::Refused));
        let expected = [Action::End(A, CursorEnd::TooSlow), Action::Resume(FIRST)];
        assert_eq!(driver.after(10_000), expected);
    }

    #[test]
    fn store_that_is_behind_by_the_share_is_given_up_when_a_client_has_waited() {
        let mut driver = Driver::arriving(divisible(32), true);
        driver.on(Event::Budget(8));
        driver.attach(A, 0..32);
        driver.came(FIRST, 0..4);
        driver.came(FIRST, 4..8);
        driver.on(Event::Moved(A, 4));
        assert_eq!(driver.on(Event::Moved(A, 8)), []);
        assert_eq!(driver.after(499), []);
        assert_eq!(driver.after(1), [Action::GivenUp, Action::Resume(FIRST)]);
        assert_eq!(driver.core.held_bytes(), 0);
    }

    #[test]
    fn refusing_store_is_given_up_once() {
        let mut driver = Driver::arriving(divisible(32), true);
        driver.attach(A, 0..32);
        driver.came(FIRST, 0..8);
        assert!(driver.on(Event::Stored(0, StoreEnd::Refused)).contains(&Action::GivenUp));
        assert!(!driver.on(Event::Stored(1, StoreEnd::Refused)).contains(&Action::GivenUp));
    }

    #[test]
    fn standing_reader_gives_its_memory_to_one_that_waits() {
        let mut driver = Driver::stored(16);
        driver.on(Event::Budget(4));
        driver.attach(A, 0..4);
        driver.attach(B, 8..12);
        driver.probed(&[true; 4]);
        driver.on(Event::Read(0..4, ReadEnd::Bytes(bytes(0..4))));
        assert_eq!(driver.after(999), []);
        assert_eq!(driver.after(1), [Action::Read(8..12)]);
        driver.on(Event::Read(8..12, ReadEnd::Bytes(bytes(8..12))));
        assert_eq!(driver.on(Event::Moved(B, 12)), [Action::End(B, CursorEnd::Whole)]);
        assert_eq!(driver.on(Event::Moved(A, 0)), [Action::Read(0..4)]);
    }

    #[test]
    fn chunk_at_the_edge_of_the_window_is_read_once() {
        let mut driver = Driver::stored(16);
        driver.attach(A, 1..16);
        driver.probed(&[true; 4]);
        for chunk in 0..3 {
            let read = ReadEnd::Bytes(bytes(chunk * 4..chunk * 4 + 4));
            assert!(
                !driver
                    .on(Event::Read(chunk * 4..chunk * 4 + 4, read))
                    .iter()
                    .any(|action| matches!(action, Action::Read(_)))
            );
        }
        assert_eq!(driver.core.held_bytes(), 11);
        assert_eq!(driver.on(Event::Moved(A, 3)), []);
    }

    #[test]
    fn origin_serves_what_the_store_cannot_read() {
        let mut driver = Driver::stored(32);
        driver.attach(A, 0..32);
        driver.probed(&[true; 8]);
        assert_eq!(driver.on(Event::Read(0..4, ReadEnd::Trouble)), [range(0, 0..16)]);
    }

    #[test]
    fn request_ends_where_the_body_is_divided() {
        let sizes = Sizes { cut: 8, ..SIZES };
        let mut driver = Driver { core: Core::stored(sizes, divisible(16)), now: Tick(0) };
        let early = CursorTerms { promise: PromiseRule::First, ..TERMS };
        driver.on(Event::Attach(A, smallvec![0..16], early));
        assert_eq!(driver.probed(&[false; 4]), [range(0, 0..8)]);
        assert_eq!(driver.head(FIRST, divisible(16), 0..8, false), [Action::Promise(A)]);
        assert_eq!(driver.attach(B, 0..16), [range(1, 8..16)]);
    }

    #[test]
    fn part_is_stored_and_read_again_when_the_rest_has_come() {
        let mut driver = Driver::arriving(divisible(8), true);
        driver.attach(A, 0..8);
        driver.came(FIRST, 0..2);
        driver.on(Event::Left(A));
        let part = Action::StorePart { chunk: 0, start: 0, pieces: smallvec![bytes(0..2)] };
        assert_eq!(driver.broken(FIRST), [part]);
        assert!(!driver.core.is_idle());
        let commit = Action::CommitHead { is_whole: false };
        assert_eq!(driver.on(Event::StoredPart(0, StoreEnd::Done)), [commit]);
        driver.attach(A, 2..4);
        driver.head(RunId(1), divisible(8), 2..4, false);
        assert_eq!(driver.came(RunId(1), 2..4), [Action::Wake(A), Action::Read(0..2)]);
        let read = Event::Read(0..2, ReadEnd::Bytes(bytes(0..2)));
        assert_eq!(driver.on(read), [Action::Store(0, smallvec![bytes(0..2), bytes(2..4)])]);
    }

    #[test]
    fn skipped_chunk_is_neither_offered_nor_owed() {
        let mut driver = Driver::arriving(divisible(8), true);
        driver.attach(A, 0..8);
        assert!(driver.came(FIRST, 0..4).contains(&store(0, 0..4)));
        driver.on(Event::Moved(A, 4));
        assert_eq!(driver.on(Event::Stored(0, StoreEnd::Skipped)), []);
        assert_eq!(driver.core.held_bytes(), 0);
        driver.came(FIRST, 4..8);
        assert!(driver.end(FIRST).contains(&store(1, 4..8)));
        assert_eq!(driver.on(Event::Stored(1, StoreEnd::Done)), [Action::CommitHead { is_whole: false }]);
    }

    #[test]
    fn outdated_object_finishes_but_commits_nothing() {
        let mut driver = Driver::arriving(divisible(8), true);
        driver.attach(A, 0..8);
        assert_eq!(driver.on(Event::Outdated), []);
        driver.came(FIRST, 0..8);
        driver.end(FIRST);
        driver.on(Event::Stored(0, StoreEnd::Done));
        assert_eq!(driver.on(Event::Stored(1, StoreEnd::Done)), []);
        assert_eq!(driver.on(Event::Moved(A, 8)), [Action::End(A, CursorEnd::Whole)]);
    }
}
