//! Shows the progress of long work on standard error: as a bar on a terminal, otherwise as a line from time to time.

use crate::ground::output::tell;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{self, IsTerminal},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

/// Time between two lines, without a terminal.
const LINE_EVERY_S: u64 = 30;
/// Time between two redraws of the bar, so that its clock runs during a long step.
const REDRAWN_EVERY: Duration = Duration::from_secs(1);

/// Time after which work of unknown length is reported.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Runs work of unknown length. If it takes longer than [`SILENT_FOR`], shows what is done and for how long.
pub(crate) fn while_waiting<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let (working, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(SILENT_FOR) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if !io::stderr().is_terminal() {
                tell!("{what} ...");
            }
            let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("the template is right");
            let bar = ProgressBar::new_spinner().with_style(style).with_message(what.to_owned());
            bar.enable_steady_tick(REDRAWN_EVERY);
            // The sender is dropped when the work is done.
            let _ = ended.recv();
            bar.finish_and_clear();
        });
        let done = work();
        drop(working);
        done
    })
}

/// The progress of one piece of work.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    what: String,
    is_terminal: bool,
    told_s: AtomicU64,
}

impl ProgressLine {
    pub(crate) fn new(what: &str) -> Self {
        let style = ProgressStyle::with_template("{msg} {bar:40} {percent}%, {elapsed}, {eta} left");
        let bar = ProgressBar::new(0).with_style(style.expect("the template is right")).with_message(what.to_owned());
        bar.enable_steady_tick(REDRAWN_EVERY);
        Self { bar, what: what.to_owned(), is_terminal: io::stderr().is_terminal(), told_s: AtomicU64::new(0) }
    }

    /// Adds `count` to the completed part of `of`.
    pub(crate) fn advance(&self, count: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.inc(count);
        let passed_s = self.bar.elapsed().as_secs();
        let told_s = self.told_s.load(Ordering::Relaxed);
        let is_due = !self.is_terminal && passed_s >= told_s + LINE_EVERY_S;
        // If several threads find a line due, only one of them prints it.
        if is_due && self.told_s.compare_exchange(told_s, passed_s, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tell!("{}: {}% after {passed_s} s", self.what, self.bar.position() * 100 / of.max(1));
        }
    }

    /// Hides the bar while `print` writes to the same terminal.
    #[cfg(feature = "lab")]
    pub(crate) fn beside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
