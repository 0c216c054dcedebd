//! The signals with a meaning for a proxy.
//!
//! Owns: the meaning of each. Nothing is stopped here. Invariant: a signal without a meaning does not end the process.

use crate::{control::server::ControlServer, output::tell, service_manager};
use larder_proxy::ProxyHandle;
use std::{
    io::{self, IsTerminal},
    sync::Arc,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals with a meaning, and those that would end the process if they were not handled.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    _ignored: [Signal; 2],
    /// Whether standard error was a terminal at the start.
    has_terminal: bool,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            _ignored: [signal(SignalKind::user_defined2())?, signal(SignalKind::alarm())?],
            has_terminal: io::stderr().is_terminal(),
        })
    }

    /// Waits for a signal to stop. Meanwhile, handles the signals to read the configuration again or to reopen files.
    pub(crate) async fn stop(&mut self, handle: &ProxyHandle, control: &Arc<ControlServer>) {
        loop {
            let (name, reloads) = tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => ("SIGHUP", true),
                _ = self.user1.recv() => ("SIGUSR1", false),
            };
            // The terminal in which the proxy was started has closed, so its user has gone.
            if self.has_terminal && !io::stderr().is_terminal() {
                return;
            }
            if reloads {
                match service_manager::tell_reloading(control.reload()).await {
                    Ok(told) => {
                        tell!("{name}: {told}");
                        continue;
                    }
                    // The log file is reopened even if the configuration is unusable, because it may have been moved.
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
