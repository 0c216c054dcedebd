//! The purges in memory, indexed by their scope.
//!
//! Owns: the search for the purges that concern a response, and the merging of purges when there are too many.
//! Persistence is in `journal`.
//!
//! Invariants: a response that a purge concerned stays concerned after any merge, and no merge loses a response. Of
//! two purges with the same scope only the later is kept. Above [`PurgeLimits`], the oldest purges are widened to
//! their site, and then to everything stored before them. A widened hard purge demands validation: the origin then
//! confirms the responses that only the wider scope concerns, and not those that were purged.
//!
//! Cost: two hashes of a URL, one tree step for each prefix on its path, and one hash for each tag. Memory is
//! proportional to the number of purges.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    ops::{Bound, Range},
};

/// The responses or values that a purge concerns. [`Purges`](super::Purges) has an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PurgeScope {
    /// All responses or values.
    All,
    /// All URLs of this host, with any scheme, port and path.
    Site(Box<str>),
    /// All URLs that begin with this text, which must be in the normal form of cache keys.
    Prefix(Box<str>),
    /// One URL, with all its variants.
    Url(Box<str>),
    /// All responses or values that have this tag.
    Tag(Box<str>),
}

impl PurgeScope {
    /// Returns the host, prefix, URL or tag. Empty for [`PurgeScope::All`].
    pub fn name(&self) -> &str {
        match self {
            Self::All => "",
            Self::Site(name) | Self::Prefix(name) | Self::Url(name) | Self::Tag(name) => name,
        }
    }
}

/// The effect of a purge on the responses that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeMode {
    /// The responses are no longer served.
    Hard,
    /// The responses become stale, as if their lifetime had ended at the purge.
    Soft,
    /// The origin must confirm the responses before they are used again.
    Validate,
}

/// A purge, in the form in which the nodes of a fleet send it to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The purge's number. It concerns only responses that were requested when fewer purges than this number had been
    /// made.
    pub number: u64,
    /// The effect of the purge on the responses that it concerns.
    pub mode: PurgeMode,
    /// Time at which the purge was made, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The responses that the purge concerns.
    pub scope: PurgeScope,
}

impl Purge {
    /// Returns this purge with a wider scope. A hard purge becomes a demand for validation.
    ///
    /// The origin then confirms the responses that only the wider scope concerns, so that they need not be fetched
    /// again.
    fn widened_to(&self, scope: PurgeScope) -> Self {
        let mode = match self.mode {
            PurgeMode::Hard if scope != self.scope => PurgeMode::Validate,
            mode => mode,
        };
        Self { mode, scope, ..self.clone() }
    }
}

/// The combined effect of all purges so far on one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeVerdict {
    /// No purge concerns the response, so it may be used.
    Stands,
    /// A soft purge made the response stale at this time, in milliseconds since the Unix epoch.
    StaleSince(i64),
    /// The response may have been purged, so it must be validated before it is used.
    Unconfirmed,
    /// The response was purged, so it must not be served.
    Gone,
}

/// Limits for the purges that are kept one by one. Beyond them, older purges are merged into purges of a wider scope.
#[derive(Clone, Copy, Debug)]
pub struct PurgeLimits {
    /// Maximum number of purges that are kept one by one.
    pub count: usize,
    /// Maximum memory for the purges, in bytes.
    pub bytes: usize,
}

impl PurgeLimits {
    /// The limits for responses. If older purges are merged, the responses that only the wider purge concerns are
    /// validated, not lost.
    pub const RESPONSES: Self = Self { count: 16_384, bytes: 8 << 20 };
    /// The limits for values. A value cannot be validated, so merged purges remove more values than were purged. Tags
    /// are normally forgotten long before these limits are reached (`cache::forgetting`).
    pub(crate) const VALUES: Self = Self { count: 1 << 18, bytes: 80 << 20 };
}

impl Default for PurgeLimits {
    fn default() -> Self {
        Self::RESPONSES
    }
}

/// All purges that may still concern a stored response, indexed by their scope.
#[derive(Default)]
pub(super) struct PurgeIndex {
    all: PurgeMarks,
    sites: HashMap<Box<str>, PurgeMarks>,
    urls: HashMap<Box<str>, PurgeMarks>,
    prefixes: BTreeMap<Box<str>, PurgeMarks>,
    tags: HashMap<Box<str>, PurgeMarks>,
    bytes: usize,
    pub(super) limits: PurgeLimits,
    last_number: u64,
    last_tag_number: u64,
    /// Time of the last purge by tag, in milliseconds since the Unix epoch. `None` if there was none.
    last_tag_at_ms: Option<i64>,
}

/// The purges that have the same scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PurgeMarks {
    /// Number of the last hard purge; 0 if there was none.
    hard: u64,
    hard_at_ms: i64,
    /// Number of the last purge that demands validation; 0 if there was none.
    validate: u64,
    validate_at_ms: i64,
    /// The soft purges since the last hard purge, in ascending order of their numbers.
    soft: Vec<SoftPurges>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SoftPurges {
    number: u64,
    at_ms: i64,
}

impl PurgeIndex {
    pub(super) fn new(limits: PurgeLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a purge to those of its scope.
    pub(super) fn apply(&mut self, purge: &Purge) {
        self.last_number = self.last_number.max(purge.number);
        if let PurgeScope::Tag(_) = purge.scope {
            self.last_tag_number = self.last_tag_number.max(purge.number);
            self.last_tag_at_ms = self.last_tag_at_ms.max(Some(purge.at_ms));
        }
        let marks = match &purge.scope {
            PurgeScope::All => &mut self.all,
            PurgeScope::Site(host) => entry(&mut self.sites, host, &mut self.bytes),
            PurgeScope::Url(url) => entry(&mut self.urls, url, &mut self.bytes),
            PurgeScope::Tag(tag) => entry(&mut self.tags, &lower_case(tag), &mut self.bytes),
            PurgeScope::Prefix(prefix) => {
                if !self.prefixes.contains_key(prefix) {
                    self.bytes += weight(prefix);
                }
                self.prefixes.entry(prefix.clone()).or_default()
            }
        };
        marks.apply(purge);
    }

    /// Returns the highest purge number that was used, or 0 if none was.
    pub(super) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Records that all purge numbers up to `number` were used.
    pub(super) fn note_number(&mut self, number: u64) {
        self.last_number = self.last_number.max(number);
    }

    /// Returns the number of tags for which purges are kept.
    pub(super) fn tag_count(&self) -> usize {
        self.tags.len()
    }

    /// Returns the number of different scopes for which purges are kept.
    pub(super) fn count(&self) -> usize {
        self.sites.len() + self.urls.len() + self.prefixes.len() + self.tags.len()
    }

    /// Returns what the purges mean for a response with this URL and these tags. It was requested when `purge_count`
    /// purges had been made.
    pub(super) fn judge<'a>(
        &self,
        url: &str,
        tags: impl FnOnce() -> Box<dyn Iterator<Item = Cow<'a, str>> + 'a>,
        purge_count: u64,
    ) -> PurgeVerdict {
        let mut verdict = PurgeVerdict::Stands;
        self.each_of_url(url, &mut |marks| verdict = verdict.and(marks.judge(purge_count)));
        if self.last_tag_number > purge_count {
            for marks in tags().filter_map(|tag| self.tags.get(&*lower_case(&tag))) {
                verdict = verdict.and(marks.judge(purge_count));
            }
        }
        verdict
    }

    /// Returns whether a purge after the first `purge_count` may concern a response with this URL. Its tags are unknown
    /// here, so a purge of any tag may.
    pub(super) fn may_concern(&self, url: &str, purge_count: u64) -> bool {
        let mut may = self.last_tag_number > purge_count;
        self.each_of_url(url, &mut |marks| may |= marks.judge(purge_count) != PurgeVerdict::Stands);
        may
    }

    /// Returns the time of the last purge that may concern a response with this URL, in milliseconds since the Unix
    /// epoch. Its tags are unknown here, so a purge of any tag may.
    pub(super) fn last_at_ms(&self, url: &str) -> Option<i64> {
        let mut last = self.last_tag_at_ms;
        self.each_of_url(url, &mut |marks| last = last.max(marks.last_at_ms()));
        last
    }

    /// Returns all purges that are kept, in no order.
    pub(super) fn purges(&self) -> Vec<Purge> {
        let mut purges = Vec::new();
        self.all.tell(&PurgeScope::All, &mut purges);
        self.sites.iter().for_each(|(host, marks)| marks.tell(&PurgeScope::Site(host.clone()), &mut purges));
        self.urls.iter().for_each(|(url, marks)| marks.tell(&PurgeScope::Url(url.clone()), &mut purges));
        self.prefixes.iter().for_each(|(prefix, marks)| marks.tell(&PurgeScope::Prefix(prefix.clone()), &mut purges));
        self.tags.iter().for_each(|(tag, marks)| marks.tell(&PurgeScope::Tag(tag.clone()), &mut purges));
        purges
    }

    /// Merges the older half of the purges into purges of wider scopes, if there are too many. Returns whether it did.
    pub(super) fn widen_if_full(&mut self) -> bool {
        if !self.is_beyond(1, 1) {
            return false;
        }
        let mut purges = self.purges();
        purges.sort_unstable_by_key(|purge| purge.number);
        let (old, new) = purges.split_at(purges.len() / 2);
        let mut widened = Self::new(self.limits);
        for purge in old {
            widened.apply(&purge.widened_to(wider(&purge.scope)));
        }
        new.iter().for_each(|purge| widened.apply(purge));
        // With many sites, that leaves too many. All older purges are then merged into one purge of everything.
        if widened.is_beyond(3, 4) {
            widened = Self::new(self.limits);
            old.iter().for_each(|purge| widened.apply(&purge.widened_to(PurgeScope::All)));
            new.iter().for_each(|purge| widened.apply(purge));
        }
        (widened.last_number, widened.last_tag_number) = (self.last_number, self.last_tag_number);
        widened.last_tag_at_ms = self.last_tag_at_ms;
        *self = widened;
        // The newer half stays. A single purge beyond the limit is merged with the others.
        self.widen_if_full();
        true
    }

    /// Forgets the purges of tags whose number is at most `up_to`. The caller must have removed everything that these
    /// purges concern.
    pub(super) fn forget_tags(&mut self, up_to: u64) {
        let bytes = &mut self.bytes;
        self.tags.retain(|tag, marks| {
            let is_kept = marks.last_number() > up_to;
            *bytes -= if is_kept { 0 } else { weight(tag) };
            is_kept
        });
        self.tags.shrink_to_fit();
    }

    /// Returns whether the purges exceed the fraction `share / of` of a limit.
    fn is_beyond(&self, share: usize, of: usize) -> bool {
        self.count() > self.limits.count / of * share || self.bytes > self.limits.bytes / of * share
    }

    fn each_of_url(&self, url: &str, tell: &mut dyn FnMut(&PurgeMarks)) {
        tell(&self.all);
        if let Some(marks) = self.urls.get(url) {
            tell(marks);
        }
        if !self.sites.is_empty()
            && let Some(marks) = self.sites.get(host_of_url(url))
        {
            tell(marks);
        }
        // The greatest prefix that is not greater than the URL either matches it, or shares the longest beginning with
        // it.
        let mut rest = url;
        while let Some((prefix, marks)) = self.greatest_up_to(rest) {
            let shared = prefix.bytes().zip(rest.bytes()).take_while(|(one, other)| one == other).count();
            if shared < prefix.len() {
                rest = &rest[..rest.floor_char_boundary(shared)];
                continue;
            }
            tell(marks);
            if shared == 0 {
                return;
            }
            rest = &rest[..rest.floor_char_boundary(shared - 1)];
        }
    }

    fn greatest_up_to(&self, url: &str) -> Option<(&str, &PurgeMarks)> {
        let upto = (Bound::Unbounded, Bound::Included(url));
        self.prefixes.range::<str, _>(upto).next_back().map(|(prefix, marks)| (&**prefix, marks))
    }
}

impl PurgeMarks {
    fn apply(&mut self, purge: &Purge) {
        let &Purge { number, mode, at_ms, .. } = purge;
        match mode {
            PurgeMode::Hard => {
                self.hard = self.hard.max(number);
                self.hard_at_ms = self.hard_at_ms.max(at_ms);
            }
            PurgeMode::Validate => {
                self.validate = self.validate.max(number);
                self.validate_at_ms = self.validate_at_ms.max(at_ms);
            }
            PurgeMode::Soft => {
                let place = self.soft.partition_point(|soft| soft.number < number);
                if self.soft.get(place).is_none_or(|soft| soft.number != number) {
                    self.soft.insert(place, SoftPurges { number, at_ms });
                }
            }
        }
        self.soft.retain(|soft| soft.number > self.hard);
        if self.soft.len() > SOFT_COUNT_MAX {
            // The two oldest are merged. Responses between them then count as stale for longer than necessary.
            let first = self.soft.remove(0);
            self.soft[0].at_ms = self.soft[0].at_ms.min(first.at_ms);
        }
    }

    fn judge(&self, purge_count: u64) -> PurgeVerdict {
        if self.hard > purge_count {
            return PurgeVerdict::Gone;
        }
        if self.validate > purge_count {
            return PurgeVerdict::Unconfirmed;
        }
        let first = self.soft.iter().find(|soft| soft.number > purge_count);
        first.map_or(PurgeVerdict::Stands, |soft| PurgeVerdict::StaleSince(soft.at_ms))
    }

    /// Returns the number of the last purge of this scope, or 0 if there was none.
    fn last_number(&self) -> u64 {
        self.soft.last().map_or(0, |soft| soft.number).max(self.hard).max(self.validate)
    }

    /// Returns the time of the last purge of this scope, in milliseconds since the Unix epoch.
    fn last_at_ms(&self) -> Option<i64> {
        let hard = (self.hard > 0).then_some(self.hard_at_ms);
        let validate = (self.validate > 0).then_some(self.validate_at_ms);
        hard.max(validate).max(self.soft.last().map(|soft| soft.at_ms))
    }

    fn tell(&self, scope: &PurgeScope, purges: &mut Vec<Purge>) {
        let hard = (self.hard, self.hard_at_ms, PurgeMode::Hard);
        for (number, at_ms, mode) in [hard, (self.validate, self.validate_at_ms, PurgeMode::Validate)] {
            if number > 0 {
                purges.push(Purge { number, mode, at_ms, scope: scope.clone() });
            }
        }
        let soft = self.soft.iter();
        purges.extend(soft.map(|&SoftPurges { number, at_ms }| Purge {
            number,
            mode: PurgeMode::Soft,
            at_ms,
            scope: scope.clone(),
        }));
    }
}

impl PurgeVerdict {
    /// Combines two verdicts on one response. The stricter one wins.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Gone, _) | (_, Self::Gone) => Self::Gone,
            (Self::Unconfirmed, _) | (_, Self::Unconfirmed) => Self::Unconfirmed,
            (Self::StaleSince(one), Self::StaleSince(other)) => Self::StaleSince(one.min(other)),
            (Self::StaleSince(at_ms), Self::Stands) | (Self::Stands, Self::StaleSince(at_ms)) => {
                Self::StaleSince(at_ms)
            }
            (Self::Stands, Self::Stands) => Self::Stands,
        }
    }
}

fn entry<'a>(map: &'a mut HashMap<Box<str>, PurgeMarks>, name: &str, bytes: &mut usize) -> &'a mut PurgeMarks {
    map.entry(name.into()).or_insert_with_key(|name| {
        *bytes += weight(name);
        PurgeMarks::default()
    })
}

fn weight(name: &str) -> usize {
    name.len() + MARKS_BYTES
}

/// Returns the next wider scope: the site of a URL or prefix, otherwise everything.
fn wider(scope: &PurgeScope) -> PurgeScope {
    match scope {
        PurgeScope::Url(url) | PurgeScope::Prefix(url) => PurgeScope::Site(host_of_url(url).into()),
        PurgeScope::Site(_) | PurgeScope::Tag(_) | PurgeScope::All => PurgeScope::All,
    }
}

/// Returns the host of a URL, in the form in which cache keys contain it.
pub fn host_of_url(url: &str) -> &str {
    &url[host_range(url.as_bytes())]
}

/// Returns the byte range of the host in a URL, or in a key that begins with one.
pub fn host_range(url: &[u8]) -> Range<usize> {
    // The scheme before it has no colon.
    let scheme_end = url.iter().position(|byte| *byte == b':').filter(|at| url[*at..].starts_with(b"://"));
    let start = scheme_end.map_or(0, |at| at + 3);
    let authority = &url[start..];
    // An IPv6 address contains colons itself.
    let address = if authority.starts_with(b"[") { authority.iter().position(|byte| *byte == b']') } else { None };
    let address = address.unwrap_or(0);
    let end = authority[address..].iter().position(|byte| matches!(byte, b':' | b'/'));
    start..end.map_or(url.len(), |end| start + address + end)
}

fn lower_case(tag: &str) -> Cow<'_, str> {
    match tag.bytes().any(|octet| octet.is_ascii_uppercase()) {
        true => Cow::Owned(tag.to_ascii_lowercase()),
        false => Cow::Borrowed(tag),
    }
}

/// Maximum number of soft purges that are kept for one scope. Beyond it, the two oldest are merged.
const SOFT_COUNT_MAX: usize = 8;
/// Memory in bytes that one purge takes in addition to its name: the table slot, the marks, a soft purge, and allocator
/// rounding.
const MARKS_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(number: u64, mode: PurgeMode, scope: PurgeScope) -> Purge {
        Purge { number, mode, at_ms: i64::try_from(number).unwrap() * 1000, scope }
    }

    fn hard(number: u64, scope: PurgeScope) -> Purge {
        purge(number, PurgeMode::Hard, scope)
    }

    fn index(purges: &[Purge]) -> PurgeIndex {
        let mut index = PurgeIndex::default();
        purges.iter().for_each(|purge| index.apply(purge));
        index
    }

    fn judge(index: &PurgeIndex, url: &str, tags: &'static [&str], purge_count: u64) -> PurgeVerdict {
        index.judge(url, || Box::new(tags.iter().copied().map(Cow::Borrowed)), purge_count)
    }

    const URL: &str = "http://a.example:81/x/y?z";

    #[test]
    fn each_scope_concerns_its_own_that_is_older_and_nothing_else() {
        for (scope, others) in [
            (PurgeScope::All, &[][..]),
            (PurgeScope::Site("a.example".into()), &["http://b.example/", "http://a.example.evil/"]),
            (PurgeScope::Prefix("http://a.example:81/x".into()), &["http://a.example:81/", "http://a.example/x/y?z"]),
            (PurgeScope::Prefix(URL.into()), &["http://a.example:81/x/y?", "https://a.example:81/x/y?z"]),
            (PurgeScope::Url(URL.into()), &["http://a.example:81/x/y", "http://a.example:81/x/y?zz"]),
            (PurgeScope::Tag("Red".into()), &[]),
        ] {
            let index = index(&[hard(3, scope.clone())]);
            assert_eq!(judge(&index, URL, &["blue", "rEd"], 2), PurgeVerdict::Gone, "{scope:?}");
            assert_eq!(judge(&index, URL, &["blue", "rEd"], 3), PurgeVerdict::Stands, "{scope:?}");
            for other in others {
                assert_eq!(judge(&index, other, &["blue"], 0), PurgeVerdict::Stands, "{scope:?} {other}");
            }
        }
        assert_eq!(
            judge(&index(&[hard(1, PurgeScope::Tag("red".into()))]), URL, &["reddish", "re"], 0),
            PurgeVerdict::Stands
        );
        assert_eq!(
            judge(&index(&[hard(1, PurgeScope::Site("[::1]".into()))]), "http://[::1]:8/", &[], 0),
            PurgeVerdict::Gone
        );
    }

    /// Guards against a search in the tree of prefixes that misses one: because another prefix, or the URL itself, lies
    /// between.
    #[test]
    fn every_prefix_of_a_url_is_found_among_many() {
        let texts: Vec<String> = (0..6_u32.pow(4))
            .map(|number| {
                let letters =
                    (0..4).map(|place| ['a', 'b', '/', 'é', '\0', ' '][(number / 6_u32.pow(place) % 6) as usize]);
                letters.filter(|letter| *letter != ' ').collect()
            })
            .collect();
        let prefixes: Vec<&String> = texts.iter().step_by(7).collect();
        let mut index = PurgeIndex::default();
        for (number, prefix) in (1..).zip(&prefixes) {
            index.apply(&purge(number, PurgeMode::Soft, PurgeScope::Prefix(prefix.as_str().into())));
        }
        for url in &texts {
            let mut found = 0;
            index.each_of_url(url, &mut |marks| found += usize::from(!marks.soft.is_empty()));
            let distinct: std::collections::HashSet<_> =
                prefixes.iter().filter(|prefix| url.starts_with(prefix.as_str())).collect();
            assert_eq!(found, distinct.len(), "{url:?}");
        }
    }

    #[test]
    fn soft_purge_makes_stale_from_its_moment_on_and_a_hard_one_ends_it() {
        let tag = || PurgeScope::Tag("t".into());
        let first = purge(2, PurgeMode::Soft, tag());
        let second = purge(4, PurgeMode::Soft, tag());
        let both = index(&[second.clone(), first.clone()]);
        for (count, at) in [(0, 2), (1, 2), (2, 4), (3, 4)] {
            assert_eq!(judge(&both, URL, &["t"], count), PurgeVerdict::StaleSince(at * 1000), "{count}");
        }
        assert_eq!(judge(&both, URL, &["t"], 4), PurgeVerdict::Stands);
        let ended = index(&[first, hard(3, tag()), second]);
        assert_eq!(judge(&ended, URL, &["t"], 2), PurgeVerdict::Gone);
        assert_eq!(judge(&ended, URL, &["t"], 3), PurgeVerdict::StaleSince(4000));
        let many: Vec<Purge> = (1..100).map(|number| purge(number, PurgeMode::Soft, tag())).collect();
        let many = index(&many);
        assert_eq!(judge(&many, URL, &["t"], 0), PurgeVerdict::StaleSince(1000));
        assert_eq!(judge(&many, URL, &["t"], 98), PurgeVerdict::StaleSince(99_000));
        assert!(many.purges().len() <= SOFT_COUNT_MAX);
    }

    /// Guards against losing responses because of purges that do not concern them.
    #[test]
    fn widened_purges_only_demand_validation_of_what_they_do_not_concern() {
        let mut index = PurgeIndex::new(PurgeLimits { count: 100, bytes: 1 << 20 });
        index.apply(&hard(1, PurgeScope::All));
        for number in 2..=1000 {
            index.apply(&hard(number, PurgeScope::Tag(format!("t{number}").into())));
            index.widen_if_full();
        }
        assert_eq!(judge(&index, URL, &["other"], 0), PurgeVerdict::Gone, "it was purged with everything");
        for purge_count in 1..=1000 {
            let verdict = judge(&index, URL, &["other"], purge_count);
            assert_ne!(verdict, PurgeVerdict::Gone, "{purge_count}");
            let is_recent = purge_count >= 990;
            assert!(!is_recent || verdict == PurgeVerdict::Stands, "{purge_count}");
        }
    }

    /// Guards against dropping a purge because there are too many.
    #[test]
    fn too_many_are_widened_and_none_is_dropped() {
        let scope = |number: u64| match number % 4 {
            0 => PurgeScope::Tag(format!("t{number}").into()),
            1 => PurgeScope::Url(format!("http://s{}.example/{number}", number % 5).into()),
            2 => PurgeScope::Prefix(format!("http://s{}.example/{number}/", number % 5).into()),
            _ => PurgeScope::Site(format!("h{number}.example").into()),
        };
        let mut index = PurgeIndex::new(PurgeLimits { count: 100, bytes: 1 << 20 });
        let mut widened_count = 0;
        for number in 1..=1000 {
            index.apply(&hard(number, scope(number)));
            widened_count += u64::from(index.widen_if_full());
            assert!(index.count() <= 100);
        }
        assert!(widened_count > 0);
        for number in 1..=1000 {
            let (url, tag) = match scope(number) {
                PurgeScope::Tag(tag) => ("http://x.example/".into(), Some(tag)),
                PurgeScope::Url(url) => (url, None),
                PurgeScope::Prefix(prefix) => (format!("{prefix}x").into(), None),
                PurgeScope::Site(host) => (format!("http://{host}/").into(), None),
                PurgeScope::All => unreachable!(),
            };
            let verdict = index.judge(&url, || Box::new(tag.iter().map(|tag| Cow::Borrowed(&**tag))), number - 1);
            assert!(matches!(verdict, PurgeVerdict::Gone | PurgeVerdict::Unconfirmed), "{number}: {verdict:?}");
            assert_eq!(
                index.judge(&url, || Box::new(tag.iter().map(|tag| Cow::Borrowed(&**tag))), 1000),
                PurgeVerdict::Stands,
                "{number}"
            );
        }
        let again = {
            let mut again = PurgeIndex::default();
            index.purges().iter().rev().for_each(|purge| again.apply(purge));
            again
        };
        assert_eq!((again.last_number(), again.count(), again.bytes), (1000, index.count(), index.bytes));
    }
}
