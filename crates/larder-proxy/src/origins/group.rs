//! Several origins of one site: the choice among them, and which are excluded for a time.
//!
//! Owns: each origin's health, for all workers. Connecting is elsewhere. Invariants: an excluded origin gets requests
//! only when all are excluded. No origin gets a request twice. With `consistent_hash`, requests of one key go to the
//! same origin from every Larder with the same origins (`larder_http::owner`). Cost: a choice takes a few loads.

use larder_device::IgnorePoison;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use larder_http::owner::{self, OwnerNode, OwnerTable};

use crate::ground::{
    config::{Balance, GroupRules},
    target::Origin,
};

/// The origins of one site, among which requests are distributed.
pub(crate) struct OriginGroup {
    members: Vec<GroupMember>,
    /// The order of turns: indices of the members, each as often as its weight, evenly spread.
    turns: Vec<usize>,
    next_turn: AtomicUsize,
    /// The owner of each key. `None` unless `balance` is `consistent_hash`.
    owners: Option<OwnerTable>,
    rules: GroupRules,
}

struct GroupMember {
    origin: Origin,
    failure_count: AtomicU32,
    out_until: Mutex<Option<Instant>>,
    /// Whether the origin failed its last health check.
    unwell: AtomicBool,
}

/// The origins of a group that one request may be sent to, in order of preference.
#[derive(Clone)]
pub(crate) struct OriginChoice {
    group: Arc<OriginGroup>,
    /// The slot of the request's key in the owner table. 0 if keys do not matter.
    slot: u32,
}

impl OriginGroup {
    /// Creates a group of these origins. `nodes` contains the name and weight of each, in the same order.
    pub(crate) fn new(origins: Vec<Origin>, nodes: &[OwnerNode], rules: &GroupRules) -> Self {
        assert_eq!(origins.len(), nodes.len(), "each origin has a weight");
        let weights: Vec<u32> = nodes.iter().map(|node| node.weight).collect();
        let owners = (rules.balance == Balance::ConsistentHash && nodes.len() > 1)
            .then(|| OwnerTable::new(nodes).expect("a configuration whose nodes make no table is refused"));
        let members = origins.into_iter().map(|origin| GroupMember {
            origin,
            failure_count: AtomicU32::new(0),
            out_until: Mutex::new(None),
            unwell: AtomicBool::new(false),
        });
        Self {
            members: members.collect(),
            turns: spread(&weights),
            next_turn: AtomicUsize::new(0),
            owners,
            rules: rules.clone(),
        }
    }

    /// Chooses an origin for a resource. `key` is the resource's primary key, without the mark of an origin.
    ///
    /// Also returns the choice of further origins to try, if the group has any.
    pub(crate) fn choose(self: &Arc<Self>, key: Option<&[u8]>) -> (Origin, Option<OriginChoice>) {
        if let [only] = &self.members[..] {
            return (only.origin.clone(), None);
        }
        let choice = self.choice(key);
        (choice.first(), Some(choice))
    }

    /// Creates the choice of origins for a resource with this primary key. Without a key, the choice is that for an
    /// empty key.
    pub(crate) fn choice(self: &Arc<Self>, key: Option<&[u8]>) -> OriginChoice {
        let slot = if self.owners.is_some() { owner::slot_of(key.unwrap_or_default()) } else { 0 };
        self.next_turn.fetch_add(1, Relaxed);
        OriginChoice { group: Arc::clone(self), slot }
    }

    /// Returns whether all origins of the group are excluded now.
    pub(crate) fn is_out(&self) -> bool {
        !self.members.iter().any(GroupMember::is_in)
    }

    /// Returns the index of an origin in the configured list.
    pub(crate) fn place_of(&self, origin: &Origin) -> Option<usize> {
        self.members.iter().position(|member| member.origin == *origin)
    }

    /// Returns the first origin of the configured list.
    pub(crate) fn first(&self) -> &Origin {
        &self.members[0].origin
    }

    /// Returns each origin's name, and whether it receives requests (is not excluded).
    pub(crate) fn health(&self) -> Vec<(String, bool)> {
        self.members.iter().map(|member| (member.origin.to_string(), member.is_in())).collect()
    }

    /// Returns the path and the interval of health checks, or `None` if there are none.
    pub(crate) fn check(&self) -> Option<(String, Duration)> {
        self.rules.check.clone()
    }

    /// Returns all origins of the group.
    pub(crate) fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.members.iter().map(|member| &member.origin)
    }

    /// Records the result of a health check of the origin with index `place`, and logs a change.
    pub(crate) fn note_check(&self, place: usize, well: bool) {
        let member = &self.members[place];
        if member.unwell.swap(!well, Relaxed) == well {
            let origin = &member.origin;
            if well {
                tracing::info!(%origin, "an origin passed its health check again: it receives requests");
            } else {
                tracing::warn!(%origin, "an origin failed its health check: the other origins receive its requests");
            }
        }
    }
}

impl OriginChoice {
    /// Returns the origin to try first: one that is not excluded, if possible.
    pub(crate) fn first(&self) -> Origin {
        let chosen = self.pick(&[], true).or_else(|| self.pick(&[], false));
        chosen.map_or_else(|| self.group.members[0].origin.clone(), |member| member.origin.clone())
    }

    /// Returns an origin to try next: one that receives requests and is not in `tried`. `None` if there is none.
    pub(crate) fn other(&self, tried: &[Origin]) -> Option<Origin> {
        self.pick(tried, true).map(|member| member.origin.clone())
    }

    /// Records whether an origin answered a request without failing. After several failures it is excluded for a time.
    pub(crate) fn note(&self, origin: &Origin, well: bool) {
        let Some(member) = self.group.members.iter().find(|member| member.origin == *origin) else { return };
        if well {
            member.failure_count.store(0, Relaxed);
        } else if member.failure_count.fetch_add(1, Relaxed) + 1 >= self.group.rules.failure_count_max {
            member.failure_count.store(0, Relaxed);
            *member.lock() = Some(Instant::now() + self.group.rules.out);
            let seconds = self.group.rules.out.as_secs();
            tracing::warn!(%origin, seconds, "an origin failed repeatedly: the other origins receive its requests for a while");
        }
    }

    fn pick(&self, tried: &[Origin], only_well: bool) -> Option<&GroupMember> {
        let OriginGroup { members, turns, next_turn, owners, .. } = &*self.group;
        let may = |member: &&GroupMember| !tried.contains(&member.origin) && (!only_well || member.is_in());
        match owners {
            None => {
                let start = next_turn.load(Relaxed) % turns.len();
                (0..turns.len()).map(|step| &members[turns[(start + step) % turns.len()]]).find(may)
            }
            Some(owners) => owners.owner_among(self.slot, |place| may(&&members[place])).map(|place| &members[place]),
        }
    }
}

impl GroupMember {
    fn is_in(&self) -> bool {
        !self.unwell.load(Relaxed) && self.lock().is_none_or(|until| until <= Instant::now())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.out_until.lock().ignore_poison()
    }
}

/// Returns the indices of `weights`, each as often as its weight, as evenly spread as possible.
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

#[cfg(test)]
mod tests {
    use super::*;
    use larder_http::key::primary_key;

    fn group(weights: &[u32], balance: Balance) -> Arc<OriginGroup> {
        let origin = |at: usize| Origin { trusted: true, ..Origin::of_client(&format!("10.0.0.{at}"), 80) };
        let origins: Vec<_> = (1..=weights.len()).map(origin).collect();
        let node = |(origin, weight): (&Origin, &u32)| OwnerNode { name: origin.to_string(), weight: *weight };
        let nodes: Vec<_> = origins.iter().zip(weights).map(node).collect();
        Arc::new(OriginGroup::new(origins, &nodes, &GroupRules { balance, ..GroupRules::default() }))
    }

    fn key(target: &str) -> Vec<u8> {
        primary_key("http", "a.example", target).unwrap()
    }

    /// Returns how many of 1000 targets go to each origin.
    fn shares(group: &Arc<OriginGroup>) -> Vec<usize> {
        let mut counts = vec![0; group.members.len()];
        for target in 0..1000 {
            let (origin, _) = group.choose(Some(&key(&format!("/{target}"))));
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
        let chosen = || targets.iter().map(|target| group.choose(Some(&key(target))).0).collect::<Vec<_>>();
        let before = chosen();
        assert_eq!(before, chosen());
        let (_, choice) = group.choose(Some(&key("/")));
        let gone = group.members[1].origin.clone();
        (0..3).for_each(|_| choice.as_ref().unwrap().note(&gone, false));
        for (before, after) in before.into_iter().zip(chosen()) {
            assert!(after != gone && (before == after || before == gone));
        }
    }

    #[test]
    fn origin_is_left_out_after_failures_in_a_row_and_used_when_all_are_out() {
        let group = group(&[1, 1], Balance::RoundRobin);
        let choice = group.choose(Some(&key("/"))).1.unwrap();
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
