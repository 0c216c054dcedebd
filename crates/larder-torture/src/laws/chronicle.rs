//! What happened to a cache in front of both faces: the order of all events, removals, syncs, kills, and broken laws.
//!
//! Invariant: a removal counts as ended only once it was acknowledged, and after a kill only if it had to survive that.

/// The things that a removal covers.
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

/// The common history of a cache.
pub(super) struct Chronicle {
    pub(super) now: u64,
    pub(super) now_ms: u64,
    pub(super) life: u64,
    pub(super) purges: Vec<Purge>,
    /// What was stored before this tick survives a kill and a power loss.
    pub(super) durable: u64,
    /// Set if the store never fails, so that nothing may be lost.
    pub(super) is_harmless: bool,
    /// Set if the device has lied or failed, so that older data may come back at the next start.
    pub(super) has_lied: bool,
    /// The first broken law.
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

    /// Notes the first broken law.
    pub(super) fn break_law(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Notes what the stage knows, and returns a broken law as an error.
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

    /// Notes that everything stored before `called` is durable.
    pub(super) fn note_sync(&mut self, called: u64) {
        self.durable = self.durable.max(called);
    }

    /// Ends a life. After a power loss, removals of keys are known only if they were synced.
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

/// What the stage knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageFacts {
    pub(super) now_ms: u64,
    pub(super) has_lied: bool,
}

impl Purge {
    /// Returns whether it had ended before a tick.
    pub(super) fn is_before(&self, tick: u64) -> bool {
        self.acknowledged.is_some_and(|acknowledged| acknowledged < tick)
    }

    /// Returns whether it covers a key's value with these tags, a bit for each.
    pub(super) fn concerns(&self, key: u64, tags: u64) -> bool {
        match self.subject {
            Subject::Key(subject) => key == subject,
            Subject::Tag(tag) => tags & 1 << tag != 0,
            Subject::All => true,
        }
    }

    /// Returns whether it may concern a key, whose later callers then begin another fetch while one is running.
    pub(super) fn detaches(&self, key: u64) -> bool {
        !matches!(self.subject, Subject::Key(other) if other != key)
    }
}
