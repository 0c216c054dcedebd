//! What happened to a cache in front of both faces: the order of all events, removals, syncs, kills, and broken laws.
//!
//! Invariant: a removal counts as ended only once it was acknowledged, and after a kill only if it had to survive that.

/// The values that a removal covers: those of a key, of all keys with a tag, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Key(u64),
    Tag(u64),
    All,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Purge {
    pub(super) subject: Subject,
    pub(super) called: u64,
    acknowledged: Option<u64>,
}

/// The part of a cache's history that both models, of values and of responses, need.
pub(super) struct Chronicle {
    pub(super) now: u64,
    pub(super) now_ms: u64,
    pub(super) life: u64,
    pub(super) purges: Vec<Purge>,
    /// Tick before which everything that was stored survives a kill and a power loss.
    pub(super) durable: u64,
    /// Whether the device of this schedule never fails, so that the cache must not lose anything.
    pub(super) is_harmless: bool,
    /// Whether the device has lost or falsified data, so that older versions may be found after the next start.
    pub(super) has_lied: bool,
    /// The first broken law and its cause, until it is reported.
    broken: Option<String>,
}

impl Chronicle {
    pub(super) fn new(now_ms: u64, is_harmless: bool) -> Self {
        let purges = Vec::new();
        Self { now: 0, now_ms, life: 0, purges, durable: 0, is_harmless, has_lied: false, broken: None }
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Keeps `what` as the broken law, unless an earlier one waits to be reported.
    pub(super) fn break_law(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Copies the present facts of the stage, such as the time, into the chronicle.
    ///
    /// # Errors
    /// The broken law, if one was noted since the last call.
    pub(super) fn look_around(&mut self, facts: StageFacts) -> Result<(), String> {
        self.now_ms = facts.now_ms;
        self.has_lied |= facts.has_lied;
        self.broken.take().map_or(Ok(()), Err)
    }

    pub(super) fn begin_purge(&mut self, subject: Subject) -> usize {
        let called = self.tick();
        self.purges.push(Purge { subject, called, acknowledged: None });
        self.purges.len() - 1
    }

    pub(super) fn acknowledge(&mut self, purge: usize) {
        let now = self.tick();
        self.purges[purge].acknowledged = Some(now);
    }

    /// Notes that the sync called at tick `called` succeeded: everything stored before that tick is durable.
    pub(super) fn note_sync(&mut self, called: u64) {
        self.durable = self.durable.max(called);
    }

    /// Begins a new life of the cache, after a kill or a power loss. Removals that the next life need not know of count
    /// as not acknowledged.
    pub(super) fn restart(&mut self, is_power_cut: bool) {
        self.tick();
        self.life += 1;
        let durable = self.durable;
        let has_lied = self.has_lied;
        self.purges.iter_mut().for_each(|purge| {
            let is_lost = is_power_cut && matches!(purge.subject, Subject::Key(_));
            let is_durable = purge.acknowledged.is_some_and(|acknowledged| acknowledged < durable);
            if has_lied || is_lost && !is_durable {
                purge.acknowledged = None;
            }
        });
    }
}

/// Facts that only the stage knows and the models need.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageFacts {
    pub(super) now_ms: u64,
    pub(super) has_lied: bool,
}

impl Purge {
    /// Returns whether the removal was acknowledged before `tick`.
    pub(super) fn is_before(&self, tick: u64) -> bool {
        self.acknowledged.is_some_and(|acknowledged| acknowledged < tick)
    }

    /// Returns whether the removal covers a value of `key` that has the tags `tags`: bit n stands for tag n.
    pub(super) fn concerns(&self, key: u64, tags: u64) -> bool {
        match self.subject {
            Subject::Key(subject) => key == subject,
            Subject::Tag(tag) => tags & 1 << tag != 0,
            Subject::All => true,
        }
    }

    /// Returns whether the removal may cover `key`, whatever tags its value has. After such a removal, new calls for
    /// the key start a fetch of their own, even while an older one is running.
    pub(super) fn detaches(&self, key: u64) -> bool {
        !matches!(self.subject, Subject::Key(other) if other != key)
    }
}
