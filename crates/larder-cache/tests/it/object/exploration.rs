//! Visits every state that a scenario can reach, breadth first, so that the first trace to a broken law is a shortest
//! one. Equal states, recognized by 128 bits of a hash, are visited once.
//!
//! Laws about a future need no search of their own: each state has one step that a *fair* world would take for a given
//! client (it takes its bytes, then the store answers, then the origin, then time passes), and that step is among those
//! explored. So every state has one fair future, and following it from state to state tells how it ends.

use crate::object::{
    environment::{HeadKind, Journal, ReadKind, State, Step},
    laws::{self, Breach},
    scenario::Scenario,
};
use larder_cache::object::StoreEnd;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// States of a scenario, at most. One that has more is too large for the gate.
const STATES_MAX: usize = 400_000;
const NOWHERE: u32 = u32::MAX;

/// A state that was visited, and how it was reached first.
struct Node {
    parent: u32,
    step: Option<Step>,
    now: u64,
    was_hurt: bool,
    /// The next state of each fair future: one for each client, and the one in which all leave.
    next: Vec<u32>,
    /// Whether the fair future is over here.
    is_over: Vec<bool>,
}

/// What an exploration has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) steps: usize,
}

/// Explores a scenario. Returns a shortest trace to a broken law if there is one.
pub(crate) fn explore(scenario: &Scenario) -> Result<Explored, String> {
    let mut exploration = Exploration { scenario, nodes: Vec::new(), known: HashMap::new(), frontier: VecDeque::new() };
    let first = State::first(scenario).map_err(|breach| format!("{}: {breach:?} at once", scenario.name))?;
    exploration.visit(first, NOWHERE, None);
    let mut steps = 0;
    let mut number = 0;
    while let Some(state) = exploration.frontier.pop_front() {
        steps += exploration.expand(number, &state)?;
        number += 1;
        if exploration.nodes.len() > STATES_MAX {
            return Err(format!("{}: more than {STATES_MAX} states with {:?}", scenario.name, scenario.purse));
        }
    }
    exploration.check_futures()?;
    Ok(Explored { states: exploration.nodes.len(), steps })
}

struct Exploration<'a> {
    scenario: &'a Scenario,
    nodes: Vec<Node>,
    known: HashMap<u128, u32>,
    /// States to expand: those of the last nodes, in order.
    frontier: VecDeque<State>,
}

impl Exploration<'_> {
    /// Returns the number of a state, and queues it if it is new.
    fn visit(&mut self, state: State, parent: u32, step: Option<Step>) -> u32 {
        let mut hasher = SipHasher13::new();
        state.hash(&mut hasher);
        let hash = hasher.finish128().as_u128();
        if let Some(number) = self.known.get(&hash) {
            return *number;
        }
        let number = self.nodes.len() as u32;
        self.known.insert(hash, number);
        let clients = state.world.clients.len();
        let mut is_over: Vec<bool> = state.world.clients.iter().map(|client| !client.is_attached()).collect();
        is_over.push(is_at_rest(&state));
        let next = vec![NOWHERE; clients + 1];
        let was_hurt = state.world.was_hurt;
        self.nodes.push(Node { parent, step, now: state.world.now, was_hurt, next, is_over });
        self.frontier.push_back(state);
        number
    }

    /// Takes every step of a state. Returns their number.
    fn expand(&mut self, number: u32, state: &State) -> Result<usize, String> {
        let steps = state.steps(self.scenario);
        let clients = state.world.clients.len();
        let fair: Vec<Option<Step>> =
            (0..clients).map(|client| fair_step(&steps, client)).chain([leaving_step(&steps, state)]).collect();
        for step in &steps {
            let mut next = state.clone();
            let outcome = take_safely(&mut next, *step, self.scenario, &mut Journal::new());
            if let Err(breach) = outcome {
                return Err(self.report(number, Some(*step), &breach));
            }
            if is_at_rest(&next) {
                let kept = laws::nothing_is_lost(&next.world, self.scenario);
                kept.map_err(|breach| self.report(number, Some(*step), &breach))?;
            }
            let reached = self.visit(next, number, Some(*step));
            for (future, fair_step) in fair.iter().enumerate() {
                if *fair_step == Some(*step) {
                    self.nodes[number as usize].next[future] = reached;
                }
            }
        }
        Ok(steps.len())
    }

    /// Follows the fair futures of all states.
    fn check_futures(&self) -> Result<(), String> {
        let futures = self.nodes.first().map_or(0, |node| node.next.len());
        for future in 0..futures {
            let ends = self.ends_of(future);
            for (number, end) in ends.iter().enumerate() {
                let node = &self.nodes[number];
                let outcome = if future + 1 < futures {
                    let waited = end.map(|end| self.nodes[end as usize].now - node.now);
                    laws::no_waiting_on_a_client(future, waited, self.was_hurt_on_the_way(number, *end), self.scenario)
                } else {
                    laws::no_leak(end.is_some() || self.scenario.leavers < self.scenario.clients.len())
                };
                if let Err(breach) = outcome {
                    return Err(self.report_future(number as u32, future, &breach));
                }
            }
        }
        Ok(())
    }

    fn was_hurt_on_the_way(&self, number: usize, end: Option<u32>) -> bool {
        self.nodes[number].was_hurt || end.is_some_and(|end| self.nodes[end as usize].was_hurt)
    }

    /// Returns the state in which each state's fair future is over, or `None` where it never is.
    fn ends_of(&self, future: usize) -> Vec<Option<u32>> {
        let mut ends: Vec<Option<Option<u32>>> = vec![None; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut way = Vec::new();
            let mut place = start as u32;
            let end = loop {
                if place == NOWHERE {
                    break None;
                }
                if let Some(end) = ends[place as usize] {
                    break end;
                }
                if self.nodes[place as usize].is_over[future] {
                    ends[place as usize] = Some(Some(place));
                    break Some(place);
                }
                ends[place as usize] = Some(None); // a future that comes back here never ends
                way.push(place);
                place = self.nodes[place as usize].next[future];
            };
            for place in way {
                ends[place as usize] = Some(end);
            }
        }
        ends.into_iter().map(Option::flatten).collect()
    }

    /// Steps from the first state to a node.
    fn way_to(&self, number: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut place = number;
        while let Some(step) = self.nodes[place as usize].step {
            steps.push(step);
            place = self.nodes[place as usize].parent;
        }
        steps.reverse();
        steps
    }

    fn report_future(&self, number: u32, future: usize, breach: &Breach) -> String {
        let mut steps = self.way_to(number);
        let before = steps.len();
        let mut place = number;
        // A future that never ends may be a circle; its first round says enough.
        while steps.len() < before + 60 {
            let next = self.nodes[place as usize].next[future];
            if next == NOWHERE || self.nodes[place as usize].is_over[future] {
                break;
            }
            let state = self.replay(&steps).0;
            let possible = state.steps(self.scenario);
            let fair = if future < state.world.clients.len() {
                fair_step(&possible, future)
            } else {
                leaving_step(&possible, &state)
            };
            steps.extend(fair);
            place = next;
        }
        self.print(&steps, Some(before), breach)
    }

    fn report(&self, number: u32, step: Option<Step>, breach: &Breach) -> String {
        let mut steps = self.way_to(number);
        steps.extend(step);
        self.print(&steps, None, breach)
    }

    /// Takes the steps again, and returns where they end and what happened.
    fn replay(&self, steps: &[Step]) -> (State, Journal) {
        let scenario = Scenario { is_traced: true, ..self.scenario.clone() };
        let mut journal = Journal::new();
        let mut state = State::first(&scenario).expect("the first state is lawful");
        for step in steps {
            journal.push(format!("{step:?}"));
            if take_safely(&mut state, *step, &scenario, &mut journal).is_err() {
                break;
            }
        }
        (state, journal)
    }

    fn print(&self, steps: &[Step], future: Option<usize>, breach: &Breach) -> String {
        let (state, journal) = self.replay(steps);
        let part =
            future.map_or(String::new(), |before| format!(" (the last {} are the fair future)", steps.len() - before));
        format!(
            "\nscenario: {}\nlaw {}: {}\n{} steps{part}:\n{}\nat the end: {:?}\n",
            self.scenario.name,
            breach.law,
            breach.how,
            steps.len(),
            journal.join("\n"),
            state.world,
        )
    }
}

/// Takes a step. A panic of the core breaks the contract.
fn take_safely(state: &mut State, step: Step, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
    catch_unwind(AssertUnwindSafe(|| state.take(step, scenario, journal))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Breach::new("orderly", format!("the core panics: {}", text.unwrap_or_default())))
    })
}

fn is_at_rest(state: &State) -> bool {
    let world = &state.world;
    world.is_unread() && !world.is_work_due() && world.exchanges.is_empty() && state.core.is_idle()
}

/// Returns the step that a fair world takes next for a client that takes its bytes while the others stand still. One
/// that came too late before goes first.
fn fair_step(steps: &[Step], client: usize) -> Option<Step> {
    let own = steps.iter().find(|step| **step == Step::Take(client));
    own.or_else(|| steps.iter().find(|step| is_good_answer(**step)))
        .or_else(|| steps.iter().find(|step| is_good_arrival(**step)))
        .or_else(|| steps.iter().find(|step| **step == Step::Tick))
        .or_else(|| steps.iter().find(|step| matches!(step, Step::Take(_))))
        .copied()
}

/// Returns the step that is next when all clients leave (one in haste takes its bytes before), and then the store
/// answers, the origin sends what the cache itself wants, and time passes.
fn leaving_step(steps: &[Step], state: &State) -> Option<Step> {
    if state.world.is_unread() {
        let answer = steps.iter().find(|step| is_good_answer(**step));
        let arrival = || steps.iter().find(|step| state.world.is_kept && is_good_arrival(**step));
        return answer.or_else(arrival).or_else(|| steps.iter().find(|step| **step == Step::Tick)).copied();
    }
    let leaves = |step: &&Step| matches!(step, Step::Leave(_));
    let takes = |step: &&Step| matches!(step, Step::Take(_));
    steps.iter().find(leaves).or_else(|| steps.iter().find(takes)).copied()
}

/// The store's answer. The true one is always the first of several.
fn is_good_answer(step: Step) -> bool {
    matches!(
        step,
        Step::Probed(_, ReadKind::Found | ReadKind::Absent)
            | Step::Read(_, ReadKind::Found | ReadKind::Absent)
            | Step::Stored(_, StoreEnd::Done)
            | Step::StoredPart(_, StoreEnd::Done)
    )
}

/// What an origin sends that is neither broken nor lies.
fn is_good_arrival(step: Step) -> bool {
    matches!(step, Step::Head(_, HeadKind::True) | Step::Bytes(_) | Step::End(_))
}
