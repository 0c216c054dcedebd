//! Decides whether origins can be reached: the state behind offline mode.
//!
//! Owns: the mode, and the log lines when the uplink goes down or comes back. The decision is in `judge`. Invariants:
//! in mode `on`, no origin is contacted. In mode `auto`, requests are refused only for origins that are, or may be,
//! behind an uplink that is down. A probe every [`PROBE_INTERVAL`] finds out whether it is back. Cost: one atomic load
//! per origin request while nothing fails, and one store per response.

mod answers;
mod judge;

use larder_device::IgnorePoison;
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use larder_http::{proxy_status::ProxyError, reuse::StaleAllowed, route::UplinkState};
use tokio::task::JoinSet;

use crate::{
    ground::{config::Offline, errors::Failure, target::Origin},
    origins::{access::OriginRouter, connect},
};
use answers::RecentAnswers;
use judge::{SilenceJudge, SilenceVerdict};

/// Whether origins can be contacted: the operator's mode, and what was observed. All workers share it.
pub(crate) struct Uplink {
    mode: AtomicU8,
    /// Whether [`SilenceJudge`] considers the uplink down.
    is_down: AtomicBool,
    answers: RecentAnswers,
    judge: Mutex<SilenceJudge>,
}

/// The state of the uplink, as commands print it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineStatus {
    pub(crate) mode: Offline,
    /// Time since the uplink went down. `None` if it is up.
    pub(crate) down_for: Option<Duration>,
    /// The origins that do not respond.
    pub(crate) failing: Vec<String>,
}

impl Uplink {
    pub(crate) fn new(mode: Offline) -> Self {
        Self {
            mode: AtomicU8::new(mode as u8),
            is_down: AtomicBool::new(false),
            answers: RecentAnswers::new(),
            judge: Mutex::default(),
        }
    }

    /// Returns the offline mode that the operator set.
    pub(crate) fn mode(&self) -> Offline {
        let mode = self.mode.load(Relaxed);
        Offline::ALL.into_iter().find(|known| *known as u8 == mode).expect("only modes are stored")
    }

    /// Changes the offline mode.
    pub(crate) fn set_mode(&self, mode: Offline) {
        self.mode.store(mode as u8, Relaxed);
        // Failures that were observed in the previous mode do not count in this one.
        *self.judge() = SilenceJudge::default();
        self.is_down.store(false, Relaxed);
    }

    /// Returns whether `origin` can be contacted now.
    ///
    /// An origin that is refused because its state is unknown is added to the next probe.
    pub(crate) fn line_to(&self, origin: &Origin) -> UplinkState {
        match self.mode() {
            Offline::Off => UplinkState::Up,
            Offline::On => UplinkState::Down(StaleAllowed::HoweverOld),
            Offline::OnEvenForbidden => UplinkState::Down(StaleAllowed::EvenForbidden),
            Offline::Auto if !self.is_down.load(Relaxed) => UplinkState::Up,
            Offline::Auto => {
                let answered = self.answers.has_within(origin, KNOWN_FOR);
                if self.judge().may_ask(origin, answered) {
                    UplinkState::Up
                } else {
                    UplinkState::Down(StaleAllowed::AsOnError)
                }
            }
        }
    }

    /// Returns whether the operator forbids contacting any origin.
    pub(crate) fn is_shut(&self) -> bool {
        matches!(self.mode(), Offline::On | Offline::OnEvenForbidden)
    }

    /// Returns whether most origins are unreachable or forbidden, so that requests depend on stored responses.
    pub(crate) fn is_offline(&self) -> bool {
        self.is_shut() || (self.mode() == Offline::Auto && self.is_down.load(Relaxed))
    }

    /// Records the result of a request to `origin`.
    pub(crate) fn note(&self, origin: &Origin, failure: Option<&Failure>) {
        if self.mode() != Offline::Auto {
            return;
        }
        let now = Instant::now();
        let verdict = match failure {
            None => {
                self.answers.note(origin);
                if !self.judge().is_failing(origin) {
                    return;
                }
                self.judge().handle_answer(origin, now)
            }
            Some(failure) if is_of_the_line(failure) => {
                let mut judge = self.judge();
                let since = judge.failing_since(now);
                judge.handle_silence(origin, now, self.answers.count_since(since.unwrap_or(now)))
            }
            Some(_) => return,
        };
        self.announce(verdict);
    }

    /// Returns the state of the uplink, for the operator's commands.
    pub(crate) fn status(&self) -> LineStatus {
        let judge = self.judge();
        let down_for = judge.down_since().map(|since| since.elapsed());
        LineStatus { mode: self.mode(), down_for, failing: judge.failing().map(ToString::to_string).collect() }
    }

    fn announce(&self, verdict: SilenceVerdict) {
        match verdict {
            SilenceVerdict::Unchanged => {}
            SilenceVerdict::Down(origins) => {
                self.is_down.store(true, Relaxed);
                tracing::warn!(
                    origins,
                    "the uplink is down: several origins do not respond. Larder serves stored responses, even stale \
                     ones, until one of these origins responds"
                );
            }
            SilenceVerdict::Up(origin, down_for) => {
                self.is_down.store(false, Relaxed);
                tracing::warn!(origin, seconds = down_for.as_secs(), "the uplink is up again");
            }
        }
    }

    fn judge(&self) -> MutexGuard<'_, SilenceJudge> {
        self.judge.lock().ignore_poison()
    }
}

/// Probes at intervals whether the uplink is up again, as long as the worker runs.
pub(crate) async fn probe(origins: Arc<OriginRouter>) {
    let mut interval = tokio::time::interval(PROBE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let uplink = &origins.shared.uplink;
        if !uplink.is_down.load(Relaxed) {
            continue;
        }
        let targets = uplink.judge().next_probes();
        let mut probes = JoinSet::new();
        for origin in targets {
            let origins = Arc::clone(&origins);
            probes.spawn(async move { look_for(&origins, &origin).await });
        }
        probes.join_all().await;
    }
}

/// Tries to connect to an origin, and records the result.
async fn look_for(origins: &Arc<OriginRouter>, origin: &Origin) {
    let uplink = &origins.shared.uplink;
    match connect::connect_by_a_way(origins, origin, origins.shared.http2).await {
        Ok(_) => uplink.note(origin, None),
        Err(failure) if is_of_the_line(&failure) => uplink.note(origin, Some(&failure)),
        // The origin answers with an error of its own, so further probes of it would show nothing.
        Err(_) => uplink.judge().forget(origin),
    }
}

/// Returns whether a failure may mean that the uplink is down. An error response of the origin does not.
fn is_of_the_line(failure: &Failure) -> bool {
    match failure {
        Failure::Timeout { .. } => true,
        Failure::Unusable { fault, .. } => match fault.error {
            ProxyError::DnsTimeout
            | ProxyError::ConnectionTimeout
            | ProxyError::ConnectionRefused
            | ProxyError::DestinationIpUnroutable
            | ProxyError::DestinationUnavailable => true,
            ProxyError::DnsError => !fault.is_said_by_dns,
            _ => false,
        },
        _ => false,
    }
}

/// Time between two probes while the uplink is down.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which an origin that responded is still contacted after the uplink went down. Such an origin may be on the
/// near side of the uplink.
const KNOWN_FOR: Duration = Duration::from_secs(60);
