//! Infers from origins that do not respond whether the uplink is down: plain data, no clock and no sockets.
//!
//! Owns: the decision. Probing and logging are elsewhere. Invariants: one failing origin never means that the uplink is
//! down, whatever its ports, nor do a few failing origins while others respond. The memory is bounded. An uplink that
//! was down counts as up as soon as one of the failing origins responds. The idea is the quorum of a failure detector.
//! Browsers' "network changed" check contacts a single host, which may itself be the one that fails.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use crate::ground::target::Origin;

/// Decides whether the uplink is down, from the origins that do not respond.
#[derive(Default)]
pub(super) struct SilenceJudge {
    /// The failing origins, each with the times of its first and last failure.
    failing: HashMap<Origin, Silence>,
    /// Origins that clients requested while the uplink was down, and whose state is unknown. Probed next.
    wanted: VecDeque<Origin>,
    down_since: Option<Instant>,
    /// Number of probes so far, by which the failing origins take turns.
    probe_count: usize,
}

#[derive(Clone, Copy)]
struct Silence {
    since: Instant,
    last: Instant,
}

/// The effect of an event on the state of the uplink.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SilenceVerdict {
    Unchanged,
    /// The uplink went down. The text lists the failing servers.
    Down(String),
    /// The uplink is up again: the origin that responded, and how long the uplink was down.
    Up(String, Duration),
}

impl SilenceJudge {
    /// Records that an origin does not respond.
    ///
    /// `answering_count` is the number of origins that have responded since the first failure.
    pub(super) fn handle_silence(&mut self, origin: &Origin, now: Instant, answering_count: usize) -> SilenceVerdict {
        if self.down_since.is_none() {
            self.failing.retain(|_, silence| now.saturating_duration_since(silence.last) < WINDOW);
        }
        self.wanted.retain(|wanted| wanted != origin);
        if let Some(silence) = self.failing.get_mut(origin) {
            silence.last = now;
        } else if self.failing.len() < FAILING_COUNT_MAX {
            self.failing.insert(origin.clone(), Silence { since: now, last: now });
        }
        assert!(self.failing.len() <= FAILING_COUNT_MAX, "what is remembered is bounded");
        let servers = self.servers();
        let is_down = servers.len() >= SERVER_COUNT_MIN && servers.len() >= ANSWERING_SHARE * answering_count;
        if self.down_since.is_some() || !is_down {
            return SilenceVerdict::Unchanged;
        }
        self.down_since = Some(now);
        SilenceVerdict::Down(servers.join(", "))
    }

    /// Records that an origin responded.
    pub(super) fn handle_answer(&mut self, origin: &Origin, now: Instant) -> SilenceVerdict {
        self.wanted.retain(|wanted| wanted != origin);
        if self.failing.remove(origin).is_none() {
            return SilenceVerdict::Unchanged;
        }
        let Some(since) = self.down_since.take() else { return SilenceVerdict::Unchanged };
        self.failing.clear();
        self.wanted.clear();
        SilenceVerdict::Up(origin.to_string(), now.saturating_duration_since(since))
    }

    /// Returns whether an origin may be contacted although the uplink is down: it has responded recently and not failed
    /// since.
    ///
    /// `has_answered` says that it has responded recently. An origin that may not be contacted is added to the next
    /// probe.
    pub(super) fn may_ask(&mut self, origin: &Origin, has_answered: bool) -> bool {
        if self.failing.contains_key(origin) {
            return false;
        }
        if !has_answered && !self.wanted.contains(origin) {
            self.wanted.push_back(origin.clone());
            self.wanted.truncate(WANTED_COUNT_MAX);
        }
        has_answered
    }

    /// Returns the origins to probe now: some failing ones in turn, and those that clients requested.
    pub(super) fn next_probes(&mut self) -> Vec<Origin> {
        let mut failing: Vec<(&Origin, &Silence)> = self.failing.iter().collect();
        failing.sort_by_key(|(origin, silence)| (silence.since, origin.to_string()));
        let turn = self.probe_count * PROBE_COUNT / 2;
        self.probe_count = self.probe_count.wrapping_add(1);
        let count = failing.len();
        let in_turn = (0..count.min(PROBE_COUNT)).map(|at| failing[(turn + at) % count].0.clone());
        let mut probes: Vec<Origin> = in_turn.collect();
        let wanted_count = self.wanted.len().min(PROBE_COUNT);
        probes.extend(self.wanted.drain(..wanted_count));
        probes
    }

    /// Removes an origin whose probes show nothing new.
    pub(super) fn forget(&mut self, origin: &Origin) {
        // While the uplink is down, one failing origin must remain to be probed for its return.
        if self.failing.len() > 1 {
            self.failing.remove(origin);
        }
    }

    pub(super) fn is_failing(&self, origin: &Origin) -> bool {
        self.failing.contains_key(origin)
    }

    /// Returns the time of the first failure that still counts, or `None` if none does.
    pub(super) fn failing_since(&self, now: Instant) -> Option<Instant> {
        let silences = self.failing.values().filter(|silence| now.saturating_duration_since(silence.last) < WINDOW);
        silences.map(|silence| silence.since).min()
    }

    pub(super) fn failing(&self) -> impl Iterator<Item = &Origin> {
        self.failing.keys()
    }

    pub(super) fn down_since(&self) -> Option<Instant> {
        self.down_since
    }

    /// Returns the names of the failing servers. The ports 80 and 443 of one host count as one server.
    fn servers(&self) -> Vec<String> {
        let name = |origin: &Origin| match origin.port {
            80 | 443 => origin.host.to_string(),
            _ => origin.to_string(),
        };
        let mut servers: Vec<String> = self.failing.keys().map(name).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }
}

/// Minimum number of failing servers for the uplink to count as down.
const SERVER_COUNT_MIN: usize = 3;
/// Minimum number of failing servers per responding origin for the uplink to count as down.
const ANSWERING_SHARE: usize = 4;
/// Time for which a failure counts.
const WINDOW: Duration = Duration::from_secs(60);
const FAILING_COUNT_MAX: usize = 64;
const WANTED_COUNT_MAX: usize = 64;
/// Maximum number of failing origins, and of requested origins, that one probe contacts.
const PROBE_COUNT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: usize) -> Origin {
        Origin::of_client(&format!("host-{host}"), 80)
    }

    /// Returns a judge and its verdict, after these hosts failed one second apart while `answering_count` others
    /// responded.
    fn after(hosts: impl IntoIterator<Item = usize>, answering_count: usize) -> (SilenceJudge, SilenceVerdict) {
        let mut judge = SilenceJudge::default();
        let start = Instant::now();
        let mut last = SilenceVerdict::Unchanged;
        for (second, host) in hosts.into_iter().enumerate() {
            last = judge.handle_silence(&origin(host), start + Duration::from_secs(second as u64), answering_count);
        }
        (judge, last)
    }

    #[test]
    fn several_servers_have_to_fail_and_hardly_any_may_answer() {
        for (hosts, answering_count, is_down) in [
            (vec![1, 2, 3], 0, true),
            (vec![1, 2], 0, false),
            (vec![1; 50], 0, false),
            (vec![1, 2, 3], 1, false),
            (vec![1, 2, 3, 4], 1, true),
            ((0..64).collect(), 17, false),
        ] {
            let (judge, _) = after(hosts.clone(), answering_count);
            assert_eq!(judge.down_since.is_some(), is_down, "{hosts:?} {answering_count}");
        }
        assert_eq!(after([1, 2, 3], 0).1, SilenceVerdict::Down("host-1, host-2, host-3".to_owned()));
    }

    #[test]
    fn one_host_is_one_server_on_its_usual_ports() {
        let mut judge = SilenceJudge::default();
        let now = Instant::now();
        for port in [80, 443] {
            for host in ["a", "b"] {
                assert_eq!(judge.handle_silence(&Origin::of_client(host, port), now, 0), SilenceVerdict::Unchanged);
            }
        }
        assert!(matches!(judge.handle_silence(&Origin::of_client("b", 8080), now, 0), SilenceVerdict::Down(_)));
    }

    #[test]
    fn failures_that_are_long_past_do_not_count() {
        let mut judge = SilenceJudge::default();
        let start = Instant::now();
        for (host, minutes) in [(1, 0), (2, 1), (3, 2), (4, 3)] {
            let now = start + Duration::from_mins(minutes);
            assert_eq!(judge.handle_silence(&origin(host), now, 0), SilenceVerdict::Unchanged);
        }
        assert_eq!(judge.failing.len(), 1);
    }

    #[test]
    fn line_is_up_again_as_soon_as_one_answers_that_did_not() {
        let (mut judge, _) = after([1, 2, 3], 0);
        let now = judge.down_since.unwrap() + Duration::from_mins(7);
        assert_eq!(judge.handle_answer(&origin(9), now), SilenceVerdict::Unchanged);
        assert!(judge.down_since.is_some(), "what never failed says nothing of the line");
        assert_eq!(
            judge.handle_answer(&origin(2), now),
            SilenceVerdict::Up("host-2:80".to_owned(), Duration::from_mins(7))
        );
        assert_eq!((judge.down_since, judge.failing.len()), (None, 0));
    }

    #[test]
    fn while_it_is_down_those_that_answered_are_asked_and_the_others_looked_for() {
        let (mut judge, _) = after([1, 2, 3], 0);
        assert!(judge.may_ask(&origin(7), true));
        assert!(!judge.may_ask(&origin(1), true), "it failed since");
        for _ in 0..3 {
            assert!(!judge.may_ask(&origin(8), false));
        }
        let probes = judge.next_probes();
        assert_eq!(probes, [1, 2, 3, 8].map(origin));
        assert_eq!(judge.next_probes().len(), 3, "what was wanted was looked for");
        assert!((0..1000).all(|host| !judge.may_ask(&origin(100 + host), false)));
        assert_eq!(judge.wanted.len(), WANTED_COUNT_MAX);
        assert_eq!(judge.next_probes().len(), 3 + PROBE_COUNT);
    }

    #[test]
    fn all_that_fail_are_looked_for_in_turn() {
        let (mut judge, _) = after(0..10, 0);
        let mut seen: Vec<String> =
            (0..20).flat_map(|_| judge.next_probes()).map(|origin| origin.to_string()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10);
    }
}
