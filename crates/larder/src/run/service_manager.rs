//! Communicates with the service manager that started this process, if one did: systemd, or another one with its
//! protocol (sd_notify(3), sd_listen_fds(3)).
//!
//! Owns: the messages to it, their times, and the sockets that it passes. Nothing is started or stopped here.
//! Invariant: a healthy state is reported only after every worker has responded to a check.

use crate::ground::{failure::Failure, output::tell};
use larder_proxy::{ListeningSocket, ProxyHandle};
use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::{io, thread, time::Duration};

/// Returns the listening sockets that the service manager passed to this process.
///
/// # Errors
/// A socket is not a listening TCP socket.
pub(crate) fn sockets() -> Result<Vec<ListeningSocket>, Failure> {
    let mut handed_over = ListenFd::from_env();
    let sockets = (0..handed_over.len()).map(|at| handed_over.take_tcp_listener(at));
    let sockets = sockets.filter_map(Result::transpose).map(|socket| ListeningSocket::new(socket?));
    sockets.collect::<io::Result<_>>().map_err(|error| {
        let help = "the ListenStream= of the .socket unit must be an address of `listen`, such as 0.0.0.0:3128";
        Failure::runtime(format!("cannot use a socket from the service manager: {error}"), help)
    })
}

/// Reports that the proxy is ready. If the service manager has a watchdog, starts to report the proxy's health at
/// intervals.
pub(crate) fn tell_ready(handle: &ProxyHandle) {
    notify(&[NotifyState::Ready]);
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    let handle = handle.clone();
    let pause = interval / 3;
    let watching = thread::Builder::new().name("larder-watchdog".to_owned());
    let watching = watching.spawn(move || {
        loop {
            // No report is sent while a worker is blocked, because its clients get no response.
            if handle.is_responsive(pause) {
                notify(&[NotifyState::Watchdog]);
            }
            thread::sleep(pause);
        }
    });
    if let Err(error) = watching {
        tell!("  warning  cannot notify the service manager's watchdog: {error}");
    }
}

/// Reports that a command is ready. Unlike [`tell_ready`], reports no health, because the command has no workers to
/// watch.
pub(crate) fn tell_started() {
    notify(&[NotifyState::Ready]);
}

/// Runs a reload, and reports its beginning and end to the service manager.
pub(crate) async fn tell_reloading<T>(reload: impl Future<Output = T>) -> T {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
    let outcome = reload.await;
    notify(&[NotifyState::Ready]);
    outcome
}

/// Reports that the process with this ID continues in place of this one.
pub(crate) fn tell_successor(id: u32) {
    notify(&[NotifyState::MainPid(id)]);
}

/// Reports that the process is stopping, which may take up to `longest`.
pub(crate) fn tell_stopping(longest: Duration) {
    let longest = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(longest)]);
}

fn notify(state: &[NotifyState<'_>]) {
    // Does nothing without a service manager. One that cannot be reached notices that by itself.
    let _ = sd_notify::notify(state);
}
