//! Several origins of one site: which one a request goes to, and which are left out for a time.
//!
//! Owns: what is known of each origin's health, for all workers. Does not: connect. Invariants: an origin that is left out
//! gets requests only when all are; no origin gets a request twice. Cost: choosing is a few loads; by hash, one hash
//! per origin.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, header::HOST};

use crate::{
    config::{self, Balance},
    origin::{
        origins::OriginRouter,
        pool::{self, ReplayableRequest, RetryRule},
        request_body::RequestBody,
        target::Origin,
    },
};

/// The origins of a site.
pub(crate) struct OriginGroup {
    members: Vec<GroupMember>,
    /// Members by their weights, spread out.
    turns: Vec<usize>,
    next_turn: AtomicUsize,
    origins: Arc<config::Origins>,
}

struct GroupMember {
    origin: Origin,
    weight: u32,
    failure_count: AtomicU32,
    out_until: Mutex<Option<Instant>>,
    /// Whether it failed its last check.
    unwell: AtomicBool,
}

/// A request's way to one of the origins, and to the others.
#[derive(Clone)]
pub(crate) struct OriginChoice {
    group: Arc<OriginGroup>,
    /// A hash of what is asked for.
    seed: u64,
}

impl OriginGroup {
    pub(crate) fn new(origins: &Arc<config::Origins>) -> Self {
        let members = origins.members.iter().map(|(url, weight)| GroupMember {
            origin: Origin::of_site(url),
            weight: *weight,
            failure_count: AtomicU32::new(0),
            out_until: Mutex::new(None),
            unwell: AtomicBool::new(false),
        });
        let weights: Vec<u32> = origins.members.iter().map(|(_, weight)| *weight).collect();
        let (turns, next_turn) = (spread(&weights), AtomicUsize::new(0));
        Self { members: members.collect(), turns, next_turn, origins: Arc::clone(origins) }
    }

    /// Where a request for `target` goes, and how it finds another way, if there is another.
    pub(crate) fn choose(self: &Arc<Self>, target: &str) -> (Origin, Option<OriginChoice>) {
        if let [only] = &self.members[..] {
            return (only.origin.clone(), None);
        }
        let choice = OriginChoice { group: Arc::clone(self), seed: hash_of(target) };
        self.next_turn.fetch_add(1, Relaxed);
        let chosen = choice.pick(&[], true).or_else(|| choice.pick(&[], false));
        let origin = chosen.map_or_else(|| self.members[0].origin.clone(), |member| member.origin.clone());
        (origin, Some(choice))
    }

    /// Its origins, and whether they are asked.
    pub(crate) fn health(&self) -> Vec<(String, bool)> {
        self.members.iter().map(|member| (member.origin.to_string(), member.is_in())).collect()
    }

    /// Asks every origin at intervals how it is, for as long as the worker runs.
    pub(crate) async fn check_all(self: Arc<Self>, origins: Arc<OriginRouter>) {
        let Some((path, pause)) = self.origins.check.clone() else { return };
        let mut interval = tokio::time::interval(pause);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            for member in &self.members {
                let well = is_well(&origins, &member.origin, &path).await;
                if member.unwell.swap(!well, Relaxed) == well {
                    tracing::info!(origin = %member.origin, well, "an origin's health changed");
                }
            }
        }
    }
}

impl OriginChoice {
    /// Another origin than those that were tried, if one is well.
    pub(crate) fn other(&self, tried: &[Origin]) -> Option<Origin> {
        self.pick(tried, true).map(|member| member.origin.clone())
    }

    /// Notes how an origin did.
    pub(crate) fn note(&self, origin: &Origin, well: bool) {
        let Some(member) = self.group.members.iter().find(|member| member.origin == *origin) else { return };
        if well {
            member.failure_count.store(0, Relaxed);
        } else if member.failure_count.fetch_add(1, Relaxed) + 1 >= self.group.origins.failure_count_max {
            member.failure_count.store(0, Relaxed);
            *member.lock() = Some(Instant::now() + self.group.origins.out);
            tracing::info!(%origin, "an origin is left out for a time");
        }
    }

    fn pick(&self, tried: &[Origin], only_well: bool) -> Option<&GroupMember> {
        let OriginGroup { members, turns, next_turn, origins } = &*self.group;
        let may = |member: &&GroupMember| !tried.contains(&member.origin) && (!only_well || member.is_in());
        match origins.balance {
            Balance::RoundRobin => {
                let start = next_turn.load(Relaxed) % turns.len();
                (0..turns.len()).map(|step| &members[turns[(start + step) % turns.len()]]).find(may)
            }
            Balance::ConsistentHash => {
                let scored = members.iter().filter(may).map(|member| (member.score(self.seed), member));
                scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, member)| member)
            }
        }
    }
}

impl GroupMember {
    fn is_in(&self) -> bool {
        !self.unwell.load(Relaxed) && self.lock().is_none_or(|until| until <= Instant::now())
    }

    /// Weighted rendezvous hashing: the highest score has it, and an origin more or less moves only its own share.
    fn score(&self, seed: u64) -> f64 {
        let mut hasher = DefaultHasher::new();
        (seed, &self.origin.host, self.origin.port).hash(&mut hasher);
        // In (0, 1), from the upper bits.
        let unit = ((hasher.finish() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        -f64::from(self.weight) / unit.ln()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.out_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn is_well(origins: &Arc<OriginRouter>, origin: &Origin, path: &str) -> bool {
    let (Ok(target), Ok(host)) = (path.parse::<http::Uri>(), HeaderValue::try_from(origin.to_string())) else {
        return false;
    };
    let make = || {
        let mut request = Request::new(RequestBody::none());
        *request.uri_mut() = target.clone();
        request.headers_mut().insert(HOST, host.clone());
        request
    };
    let outgoing = ReplayableRequest { origin: origin.clone(), choice: None, repeat: RetryRule::Safe, make };
    let asking = tokio::time::timeout(CHECK_PATIENCE, pool::send(origins, outgoing));
    // The body is of no interest; its connection ends with it.
    matches!(asking.await, Ok(Ok((response, _))) if response.status().as_u16() < 400)
}

/// Indices by their weights, each as evenly spread as may be.
fn spread(weights: &[u32]) -> Vec<usize> {
    let total: u32 = weights.iter().sum();
    let mut credits = vec![0_i64; weights.len()];
    let turn = |_| {
        for (credit, weight) in credits.iter_mut().zip(weights) {
            *credit += i64::from(*weight);
        }
        let (index, credit) =
            credits.iter_mut().enumerate().max_by_key(|(index, credit)| (**credit, usize::MAX - index))?;
        *credit -= i64::from(total);
        Some(index)
    };
    (0..total).filter_map(turn).collect()
}

fn hash_of(target: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    target.hash(&mut hasher);
    hasher.finish()
}

/// How long an origin may take to answer a check.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weights: &[u32], balance: Balance) -> Arc<OriginGroup> {
        let url = |at: usize| format!("http://10.0.0.{at}").parse().unwrap();
        let members = weights.iter().enumerate().map(|(at, weight)| (url(at + 1), *weight)).collect();
        let origins = config::Origins { members, balance, ..config::Origins::from(url(1)) };
        Arc::new(OriginGroup::new(&Arc::new(origins)))
    }

    /// How many of 1000 targets go to each origin.
    fn shares(group: &Arc<OriginGroup>) -> Vec<usize> {
        let mut counts = vec![0; group.members.len()];
        for target in 0..1000 {
            let (origin, _) = group.choose(&format!("/{target}"));
            counts[group.members.iter().position(|member| member.origin == origin).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn weights_are_shares_and_turns_are_spread() {
        assert_eq!(spread(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(spread(&[1, 1, 2]), [2, 0, 1, 2]);
        assert_eq!(shares(&group(&[3, 1], Balance::RoundRobin)), [750, 250]);
        let hashed = shares(&group(&[3, 1], Balance::ConsistentHash));
        assert!((700..800).contains(&hashed[0]), "{hashed:?}");
    }

    #[test]
    fn hash_keeps_a_targets_origin_and_moves_only_the_share_of_one_that_is_out() {
        let group = group(&[1, 1, 1], Balance::ConsistentHash);
        let targets: Vec<String> = (0..300).map(|at| format!("/{at}")).collect();
        let chosen = || targets.iter().map(|target| group.choose(target).0).collect::<Vec<_>>();
        let before = chosen();
        assert_eq!(before, chosen());
        let (_, choice) = group.choose("/");
        let gone = group.members[1].origin.clone();
        (0..3).for_each(|_| choice.as_ref().unwrap().note(&gone, false));
        for (before, after) in before.into_iter().zip(chosen()) {
            assert!(after != gone && (before == after || before == gone));
        }
    }

    #[test]
    fn origin_is_left_out_after_failures_in_a_row_and_used_when_all_are_out() {
        let group = group(&[1, 1], Balance::RoundRobin);
        let choice = group.choose("/").1.unwrap();
        let [a, b] = [0, 1].map(|at| group.members[at].origin.clone());
        for well in [false, false, true, false, false] {
            choice.note(&a, well);
        }
        assert_eq!(shares(&group), [500, 500]);
        choice.note(&a, false);
        assert_eq!(shares(&group), [0, 1000]);
        assert_eq!(choice.other(std::slice::from_ref(&b)), None);
        (0..3).for_each(|_| choice.note(&b, false));
        assert_eq!(shares(&group), [500, 500]);
    }
}
