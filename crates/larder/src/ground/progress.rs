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

/// Time in seconds between two lines of progress, if standard error is not a terminal.
const LINE_EVERY_S: u64 = 30;
/// Time between two redraws of the progress bar, so that its clock runs even during a long step.
const REDRAWN_EVERY: Duration = Duration::from_secs(1);

/// Time after which work of unknown length is reported at all.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Runs `work`, whose length is unknown. If it takes longer than [`SILENT_FOR`], shows `what` is done and the time it
/// takes.
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
            // The main thread drops the sender when the work is done, which ends this wait with an error.
            let _ = ended.recv();
            bar.finish_and_clear();
        });
        let done = work();
        drop(working);
        done
    })
}

/// Shows the progress of one task, as a bar or as lines.
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

    /// Adds `count` completed units, out of `of` in total.
    pub(crate) fn advance(&self, count: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.inc(count);
        let passed_s = self.bar.elapsed().as_secs();
        let told_s = self.told_s.load(Ordering::Relaxed);
        let is_due = !self.is_terminal && passed_s >= told_s + LINE_EVERY_S;
        // Several threads may find that a line is due. Only one of them prints it.
        if is_due && self.told_s.compare_exchange(told_s, passed_s, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tell!("{}: {}% after {passed_s} s", self.what, self.bar.position() * 100 / of.max(1));
        }
    }

    /// Runs `print`, and hides the bar meanwhile, so that the printed lines do not mix with it.
    #[cfg(feature = "lab")]
    pub(crate) fn beside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
