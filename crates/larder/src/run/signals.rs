//! The signals that a proxy handles.
//!
//! Owns: the meaning of each signal. Nothing is stopped here. Invariant: a signal without a meaning does not end the
//! process.

use crate::{
    ground::output::tell,
    run::{control::server::ControlServer, service_manager},
};
use larder_proxy::ProxyHandle;
use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals that mean something to a proxy, and those that would otherwise end the process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    bursts: SignalBursts,
    _ignored: [Signal; 2],
    /// Whether standard error was a terminal when the process started.
    has_terminal: bool,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            bursts: SignalBursts::default(),
            _ignored: [signal(SignalKind::user_defined2())?, signal(SignalKind::alarm())?],
            has_terminal: io::stderr().is_terminal(),
        })
    }

    /// Waits for a signal to stop. Handles signals to reload or to reopen files meanwhile.
    ///
    /// Further signals to stop within [`BURST`] are ignored.
    pub(crate) async fn stop(&mut self, handle: &ProxyHandle, control: &Arc<ControlServer>) {
        loop {
            let (name, reloads) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", false),
                _ = self.interrupt.recv() => ("SIGINT", false),
                _ = self.hangup.recv() => ("SIGHUP", true),
                _ = self.user1.recv() => ("SIGUSR1", false),
            };
            if name == "SIGTERM" || name == "SIGINT" {
                if self.bursts.is_new(Instant::now()) {
                    return;
                }
                continue;
            }
            // The terminal in which the proxy was started has closed, so its user is gone.
            if self.has_terminal && !io::stderr().is_terminal() {
                return;
            }
            if reloads {
                match service_manager::tell_reloading(control.reload()).await {
                    Ok(told) => {
                        tell!("{name}: {told}");
                        continue;
                    }
                    // The log file is reopened even if the configuration is invalid, because the file may have been
                    // moved.
                    Err(failure) => tell!("{name}: nothing changed\n{}", failure.shown()),
                }
            }
            let problems = handle.refresh();
            if problems.is_empty() {
                tell!("{name}: reopened the access log and reloaded the certificates");
            }
            problems.iter().for_each(|problem| tell!("{name}: {problem}: keeping the previous ones"));
        }
    }
}

/// Counts signals to stop that arrive close together as one.
///
/// GNU `timeout` and some supervisors signal both a process and its group. Without this, the pair would look like a
/// user who signals twice out of impatience.
#[derive(Default)]
pub(crate) struct SignalBursts {
    began_at: Option<Instant>,
}

/// Duration of a burst, from its first signal.
const BURST: Duration = Duration::from_secs(1);

impl SignalBursts {
    /// Returns whether a signal that arrives at `now` begins a new burst.
    pub(crate) fn is_new(&mut self, now: Instant) -> bool {
        let is_new = self.began_at.is_none_or(|began_at| now.saturating_duration_since(began_at) >= BURST);
        if is_new {
            self.began_at = Some(now);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor that signals twice must not cut responses short, and a user who insists must not wait for long.
    #[test]
    fn signals_within_a_second_are_one() {
        let mut bursts = SignalBursts::default();
        let begin = Instant::now();
        let news = [0, 1, 500, 999, 1000, 1500, 2100].map(|ms| bursts.is_new(begin + Duration::from_millis(ms)));
        assert_eq!(news, [true, false, false, false, true, false, true]);
    }
}
