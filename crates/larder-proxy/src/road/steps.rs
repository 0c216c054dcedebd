//! The steps of a request from its head to its response, and the two doors that take it through them.
//!
//! Owns: the steps, which of them may follow each, and the trace of a request. Each step is a method of
//! `ClientExchange`, in the file of its subject. Invariant: a request takes only transitions that are in `ROWS`, in
//! release builds too. The trace has all decisions of this proxy, and none of what an origin answers: so `explain` can
//! foretell it, and the access log prints the same words. Cost: a hit from memory ends in [`answer`], without a future.
//! Everything else costs one on the heap.

use std::{fmt, sync::Arc};

use http::{Request, Response};
use larder_device::pinned;
use larder_wire::WireFault;

use crate::{
    ground::{errors::Failure, received_body::IncomingBody},
    road::{
        client::{
            answer::{ClientAnswer, ClientResponse},
            peer::Client,
            response_body::ResponseBody,
        },
        exchange::ClientExchange,
        memory::MemoryAnswer,
        served::ServedResponse,
    },
};

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// Checks the form of the request (module `gate`).
    Gate,
    /// Determines what the request is for (module `resolve`).
    Resolve,
    /// Looks for a fresh response in memory (module `memory`).
    Memory,
    /// Answers a request that is for this proxy itself (module `own`).
    Own,
    /// Opens a tunnel (module `tunnel`).
    Tunnel,
    /// Asks the origin to switch to another protocol (module `upgrade`).
    Switch,
    /// Checks that the request may be forwarded, and parses its head (module `admission`).
    Admit,
    /// Looks up the stored response, and decides whether it may be served (module `serve`).
    Cache,
    /// Joins a fetch of the resource, or begins one (module `serve`).
    Fetch,
    /// Forwards the request without storing the response (module `pass`).
    Pass,
    /// Forwards a request that may change something at the origin (module `change`).
    Change,
    /// Completes the response, and counts the exchange (module `exchange`).
    Deliver,
    /// The client has its response, or the connection carries a tunnel. Always the final step.
    Done,
}

/// A step, its name in the log, and the steps that may follow it.
struct StepRow(Step, &'static str, &'static [Step]);

/// All steps, in the order of their discriminants.
const ROWS: [StepRow; 13] = {
    use Step::{Admit, Cache, Change, Deliver, Done, Fetch, Gate, Memory, Own, Pass, Resolve, Switch, Tunnel};
    [
        StepRow(Gate, "gate", &[Resolve, Deliver]),
        StepRow(Resolve, "resolve", &[Memory, Own, Deliver]),
        StepRow(Memory, "memory", &[Own, Tunnel, Switch, Admit, Deliver]),
        StepRow(Own, "own", &[Deliver]),
        StepRow(Tunnel, "tunnel", &[Deliver, Done]),
        StepRow(Switch, "switch", &[Deliver, Done]),
        StepRow(Admit, "admit", &[Cache, Pass, Change, Own, Deliver]),
        StepRow(Cache, "cache", &[Fetch, Pass, Deliver]),
        StepRow(Fetch, "fetch", &[Deliver]),
        StepRow(Pass, "pass", &[Deliver]),
        StepRow(Change, "change", &[Deliver]),
        StepRow(Deliver, "deliver", &[Done]),
        StepRow(Done, "done", &[]),
    ]
};

/// The result of a step, in addition to the choice of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The step succeeded, and the next step shows its result.
    Passed,
    /// The request is refused, or cannot be answered.
    Failed,
    /// The request is for a mirror.
    Mirror,
    /// The request is for a mirror's registry, and the mirror itself answers it.
    Registry,
    BuildCache,
    /// Another node of the fleet sent the request.
    Node,
    /// A stored response is served.
    Hit,
    /// No stored response can be served.
    Miss,
    /// The request has a form that needs more than a lookup in memory.
    Unsuited,
    /// A stale response is served, and is validated meanwhile.
    Stale,
    /// The stored response must be validated before it is served.
    Validate,
    /// The request or a rule demands a response from the origin.
    Bypass,
    /// The request accepts only a stored response, and none can be served.
    OnlyIfCached,
    /// The origin cannot be contacted, and no stored response can be served.
    Offline,
}

/// The steps that a request has taken, each with its verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    taken: [(Step, Verdict); STEP_COUNT_MAX],
    last: u8,
}

/// Maximum steps of one request before [`Step::Done`].
const STEP_COUNT_MAX: usize = 8;

/// The continuation of a request after a step: another step, or the response.
pub(super) enum Onward {
    To(Step),
    Served(ServedResponse),
    /// After this response, the connection carries bytes other than HTTP. The task that copies them ends the exchange.
    Switched(Box<Response<ResponseBody>>),
}

/// Answers a request, from memory at once if possible. If the parser refused its head, `fault` is the reason.
pub(crate) fn answer(
    client: &Arc<Client>,
    mut request: Request<IncomingBody>,
    mut fault: Option<WireFault>,
) -> ClientAnswer {
    let mut exchange = ClientExchange::begin(client, &mut request);
    let answered = loop {
        let onward = match exchange.trace.step() {
            Step::Gate => exchange.pass_gate(fault.take(), &mut request),
            Step::Resolve => exchange.resolve(&mut request),
            Step::Memory => match exchange.look_in_memory(&request) {
                Ok(MemoryAnswer::Encoded(hit)) => {
                    let response = exchange.deliver_encoded(&request, hit);
                    return ClientAnswer::Ready(Some(ClientResponse::Encoded(response)));
                }
                Ok(MemoryAnswer::Served(served)) => Ok(Onward::Served(served)),
                Err(step) => Ok(Onward::To(step)),
            },
            Step::Own if let Some(served) = exchange.answer_at_once() => Ok(Onward::Served(served)),
            _ => match exchange.make_room(&request) {
                Ok(()) => {
                    exchange.note_waiting(request);
                    return ClientAnswer::Later(pinned(move || drive(exchange)));
                }
                Err(shortage) => Err(Failure::Overloaded(shortage)),
            },
        };
        match onward {
            Ok(Onward::To(step)) => exchange.trace.enter(step),
            Ok(Onward::Served(served)) => break Ok(served),
            Ok(Onward::Switched(response)) => return ClientAnswer::ready(response),
            Err(failure) => break Err(failure),
        }
    };
    exchange.note_request(&request);
    ClientAnswer::ready(exchange.deliver(answered))
}

/// Answers a request that has to wait.
///
/// The state of the request stays in memory while it waits for an origin. So steps return no large values, of which
/// each future would keep a copy, and the large futures that end soon are boxed.
#[expect(clippy::manual_async_fn, reason = "an async function would keep a second copy of its argument")]
fn drive(mut exchange: ClientExchange) -> impl Future<Output = Box<Response<ResponseBody>>> + Send {
    async move {
        let answered = loop {
            let onward = match exchange.trace.step() {
                Step::Own => pinned(|| exchange.answer_itself()).await,
                Step::Tunnel => pinned(|| exchange.open_tunnel()).await,
                Step::Switch => pinned(|| exchange.switch()).await,
                Step::Admit => pinned(|| exchange.admit()).await,
                Step::Cache => pinned(|| exchange.look_in_cache()).await,
                Step::Fetch => exchange.fetch().await,
                Step::Pass => pinned(|| exchange.pass()).await,
                Step::Change => pinned(|| exchange.change()).await,
                step @ (Step::Gate | Step::Resolve | Step::Memory | Step::Deliver | Step::Done) => {
                    unreachable!("{step:?} does not wait")
                }
            };
            match onward {
                Ok(Onward::To(step)) => exchange.trace.enter(step),
                Ok(Onward::Served(served)) => break Ok(served),
                Ok(Onward::Switched(response)) => {
                    exchange.trace.enter(Step::Done);
                    return response;
                }
                Err(failure) => break Err(failure),
            }
        };
        exchange.client.interim.close();
        exchange.deliver(answered)
    }
}

impl Step {
    fn row(self) -> &'static StepRow {
        &ROWS[self as usize]
    }

    /// Returns whether the step `next` may follow this one.
    fn leads_to(self, next: Self) -> bool {
        const SUCCESSORS: [u16; ROWS.len()] = {
            let mut masks = [0; ROWS.len()];
            let mut number = 0;
            while number < ROWS.len() {
                assert!(ROWS[number].0 as usize == number, "the rows are in the order of the steps");
                let mut position = 0;
                while position < ROWS[number].2.len() {
                    masks[number] |= 1 << ROWS[number].2[position] as u8;
                    position += 1;
                }
                number += 1;
            }
            masks
        };
        SUCCESSORS[self as usize] >> next as u8 & 1 == 1
    }
}

impl Verdict {
    /// Returns the word for the verdict in the log, or `None` if the step's name suffices.
    fn token(self) -> Option<&'static str> {
        Some(match self {
            Self::Passed => return None,
            Self::Failed => "failed",
            Self::Mirror => "mirror",
            Self::Registry => "registry",
            Self::BuildCache => "build-cache",
            Self::Node => "node",
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Unsuited => "unsuited",
            Self::Stale => "stale",
            Self::Validate => "validate",
            Self::Bypass => "bypass",
            Self::OnlyIfCached => "only-if-cached",
            Self::Offline => "offline",
        })
    }
}

impl Trace {
    /// Creates the trace of a request whose head has arrived.
    pub(super) fn new() -> Self {
        Self { taken: [(Step::Gate, Verdict::Passed); STEP_COUNT_MAX], last: 0 }
    }

    /// Returns the current step.
    pub(super) fn step(&self) -> Step {
        self.taken[usize::from(self.last)].0
    }

    /// Ends the current step with this verdict.
    pub(super) fn note(&mut self, verdict: Verdict) {
        self.taken[usize::from(self.last)].1 = verdict;
    }

    /// Ends the current step as failed, unless it already has a verdict that says more.
    pub(super) fn note_failure(&mut self) {
        let verdict = &mut self.taken[usize::from(self.last)].1;
        if *verdict == Verdict::Passed {
            *verdict = Verdict::Failed;
        }
    }

    /// Begins the next step.
    ///
    /// # Panics
    /// If `next` may not follow the current step.
    pub(super) fn enter(&mut self, next: Step) {
        let step = self.step();
        assert!(step.leads_to(next), "{next:?} may not follow {step:?}");
        self.last += 1;
        self.taken[usize::from(self.last)] = (next, Verdict::Passed);
    }

    /// Returns whether the request has reached `step`.
    pub(super) fn has(&self, step: Step) -> bool {
        self.taken().iter().any(|(taken, _)| *taken == step)
    }

    fn taken(&self) -> &[(Step, Verdict)] {
        &self.taken[..=usize::from(self.last)]
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The final step is the same for all requests, so it is not printed.
        let taken = self.taken().iter().filter(|(step, _)| *step != Step::Done);
        for (position, (step, verdict)) in taken.enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{}", step.row().1)?;
            if let Some(verdict) = verdict.token() {
                write!(f, "={verdict}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origins::fetcher::OriginFetcher;
    use larder_cache::http::fetch::task::Fetch;

    /// Returns the size of the future that a function of one argument returns, in bytes.
    fn future_bytes<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// A waiting exchange keeps two things in memory: its own future, with its state, and the future of its fetch. The
    /// tested limits are size classes of the allocator: a byte more would cost a whole step.
    #[test]
    fn what_waits_for_an_origin_takes_little() {
        let exchange = future_bytes(drive);
        let fetch = future_bytes(Fetch::<OriginFetcher>::run);
        assert!(exchange <= 1280 && fetch <= 2048, "an exchange takes {exchange} bytes, a fetch {fetch}");
    }

    #[test]
    fn rows_lead_from_the_gate_to_every_step_and_from_every_step_to_the_end() {
        let steps: Vec<Step> = ROWS.iter().map(|row| row.0).collect();
        for step in &steps {
            for next in &steps {
                assert_eq!(step.leads_to(*next), step.row().2.contains(next), "{step:?}, {next:?}");
            }
        }
        // A walk is as long as the trace has room for, whichever way it takes.
        let walk_all = |mut walks: Vec<Vec<Step>>| {
            let mut met = Vec::new();
            while let Some(walk) = walks.pop() {
                let last = *walk.last().unwrap();
                met.push(last);
                assert!(walk.len() <= STEP_COUNT_MAX, "{walk:?}");
                assert!(last == Step::Done || !last.row().2.is_empty(), "{last:?} leads nowhere");
                walks.extend(last.row().2.iter().map(|next| [&walk[..], &[*next]].concat()));
            }
            met
        };
        let met = walk_all(vec![vec![Step::Gate]]);
        for step in steps {
            assert!(met.contains(&step), "{step:?} is never reached");
        }
    }

    #[test]
    #[should_panic(expected = "Cache may not follow Gate")]
    fn transition_that_no_row_has_is_refused() {
        Trace::new().enter(Step::Cache);
    }

    #[test]
    fn trace_names_steps_and_verdicts() {
        let mut trace = Trace::new();
        trace.enter(Step::Resolve);
        trace.note(Verdict::Mirror);
        trace.enter(Step::Memory);
        trace.note(Verdict::Miss);
        trace.note_failure();
        trace.enter(Step::Deliver);
        assert_eq!(trace.to_string(), "gate,resolve=mirror,memory=miss,deliver");
    }
}
