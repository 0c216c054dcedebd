//! Shows the progress of long work on standard error: as a bar on a terminal, otherwise as a line after two seconds and
//! then every half minute.

use crate::ground::output::tell;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use std::{
    fmt,
    io::{self, IsTerminal},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// Time between two progress lines if the output is not a terminal. The first line comes after [`SILENT_FOR`].
const LINE_EVERY: Duration = Duration::from_secs(30);
/// Time between two redraws of the bar, so that its clock runs during a long step.
const REDRAWN_EVERY: Duration = Duration::from_secs(1);

/// Time that work may take before its progress is shown. Shorter work shows nothing.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Runs `work`, whose length is unknown. If it takes longer than [`SILENT_FOR`], shows the description `what` and the
/// elapsed time.
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
    /// Dropping this sender ends the thread that prints lines.
    _working: Sender<()>,
}

impl ProgressLine {
    pub(crate) fn new(what: &str) -> Self {
        let style = ProgressStyle::with_template("{msg} {bar:40} {percent}%, {elapsed}{left}");
        let style = style.expect("the template is right").with_key("left", write_time_left);
        let bar = ProgressBar::new(0).with_style(style).with_message(what.to_owned());
        bar.enable_steady_tick(REDRAWN_EVERY);
        let (working, ended) = channel();
        if !io::stderr().is_terminal() {
            let bar = bar.clone();
            let what = what.to_owned();
            // A thread of its own, because the first step of the work may take minutes.
            thread::spawn(move || print_lines(&bar, &what, &ended));
        }
        Self { bar, _working: working }
    }

    /// Adds `count` completed units, out of `of` in total.
    pub(crate) fn advance(&self, count: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.inc(count);
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

/// Writes the remaining time, once the first step has shown how long a step takes.
fn write_time_left(state: &ProgressState, text: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        // The bar is only a display, so a failure to write it does not matter.
        let _ = write!(text, ", {:#} left", HumanDuration(state.eta()));
    }
}

/// Prints a line with the progress at intervals, until the work has ended.
fn print_lines(bar: &ProgressBar, what: &str, ended: &Receiver<()>) {
    let mut wait = SILENT_FOR;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) && !bar.is_finished() {
        let percent = bar.position() * 100 / bar.length().unwrap_or_default().max(1);
        tell!("{what}: {percent}% after {} s", bar.elapsed().as_secs());
        wait = LINE_EVERY;
    }
}
