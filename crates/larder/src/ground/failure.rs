//! Failures of the program: the problem, its place, and advice. A failure can have others with it.
//!
//! Owns: the exit codes and the shape of every error the user sees. Errors are detected elsewhere. Invariant: every
//! failure has a help line.

use crate::ground::{
    output::{has_colors, tell},
    size,
};
use miette::{Diagnostic, LabeledSpan, MietteHandler, MietteHandlerOpts, NamedSource, Report, SourceCode};
use rustix::termios::tcgetwinsize;
use std::{
    env,
    error::Error,
    fmt::{self, Write},
    io::{self, IsTerminal},
    mem,
    ops::Range,
    path::Path,
    process::ExitCode,
};

/// Makes a reference to a page of the documentation: its path in the project, and the path where the package installs
/// it.
macro_rules! page {
    ($path:literal) => {
        concat!("docs/", $path, " (in the package: /usr/share/doc/larder/", $path, ")")
    };
}
pub(crate) use page;

/// The reason why a command fails, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCause {
    /// A file, a port, a device or another external resource failed. The exit code is 1.
    Runtime,
    /// Another process uses the store. The exit code is 1.
    StoreInUse,
    /// The command line or the configuration is invalid. The exit code is 2.
    Usage,
    /// The reader of the output closed it, as `head` does. The exit code is 0, and no message is printed.
    ReaderGone,
}

/// A failure to show to the user: the problem, its place and advice.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: ExitCause,
    problem: String,
    help: String,
    place: Option<Box<FilePlace>>,
    /// Further failures, which are reported together with this one.
    more: Vec<Failure>,
}

/// A position in a file, which the report quotes and marks.
#[derive(Debug)]
struct FilePlace {
    source: NamedSource<String>,
    label: LabeledSpan,
}

impl Failure {
    /// Creates a failure of an external resource, such as a file or a port.
    pub(crate) fn runtime(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(ExitCause::Runtime, problem, help)
    }

    /// Creates the failure for a store that another process uses.
    pub(crate) fn store_in_use(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(ExitCause::StoreInUse, problem, help)
    }

    /// Creates the failure for invalid input of the user.
    pub(crate) fn usage(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(ExitCause::Usage, problem, help)
    }

    /// Creates a failure for output that its reader has closed. It has no message.
    pub(crate) fn reader_gone() -> Self {
        Self::new(ExitCause::ReaderGone, "the reader of the output closed it", "read all of it")
    }

    fn new(exit: ExitCause, problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { exit, problem: problem.into(), help: help.into(), place: None, more: Vec::new() }
    }

    /// Returns whether another process uses the store.
    pub(crate) fn is_store_in_use(&self) -> bool {
        self.exit == ExitCause::StoreInUse
    }

    /// Combines the failures of several checks into one. The result is a usage failure if any of them is one.
    ///
    /// # Errors
    /// At least one check failed.
    pub(crate) fn all(outcomes: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        let mut failures = outcomes.into_iter().filter_map(Result::err);
        let Some(mut first) = failures.next() else { return Ok(()) };
        for mut failure in failures {
            if failure.exit == ExitCause::Usage {
                first.exit = ExitCause::Usage;
            }
            let more = mem::take(&mut failure.more);
            first.more.push(failure);
            first.more.extend(more);
        }
        Err(first)
    }

    /// Returns the text of the problem and the advice. Further failures are left out.
    pub(crate) fn told(&self) -> (&str, &str) {
        (&self.problem, &self.help)
    }

    /// Adds the position of the problem: the bytes `span` of the file `path` with the content `text`. The report marks
    /// them and prints `label` there.
    pub(crate) fn at(mut self, path: &Path, text: &str, span: Range<usize>, label: &str) -> Self {
        let source = NamedSource::new(path.display().to_string(), text.to_owned());
        let label = LabeledSpan::new_primary_with_span(Some(label.to_owned()), span);
        self.place = Some(Box::new(FilePlace { source, label }));
        self
    }

    /// Returns one line for a log: the problem, its place, and the number of further failures.
    pub(crate) fn placed(&self) -> String {
        let mut shown = self.problem.clone();
        if let Some(place) = &self.place {
            write!(shown, ": {}", place.source.name()).expect("a string takes all");
            if let Ok(found) = place.source.read_span(place.label.inner(), 0, 0) {
                write!(shown, ", line {}", found.line() + 1).expect("a string takes all");
            }
        }
        if !self.more.is_empty() {
            let count = size::show_things(self.more.len() as u64, "more error", "more errors");
            write!(shown, "; {count}, which larder config check shows").expect("a string takes all");
        }
        shown
    }

    /// Prints the failure on standard error, except if the output's reader has gone. Returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let code = match self.exit {
            ExitCause::Runtime | ExitCause::StoreInUse => ExitCode::from(1),
            ExitCause::Usage => ExitCode::from(2),
            ExitCause::ReaderGone => return ExitCode::SUCCESS,
        };
        tell!("{}", self.shown());
        code
    }

    /// Returns the text that [`Self::report`] prints: for each failure the problem, its place if it has one, and the
    /// advice.
    pub(crate) fn shown(mut self) -> String {
        // An error means that a hook is already set, for example by a test harness. The report is still printed, so the
        // error is ignored.
        let _ = miette::set_hook(Box::new(|_| Box::new(handler())));
        let mut more = mem::take(&mut self.more);
        let count = 1 + more.len();
        more.truncate(SHOWN_COUNT_MAX - 1);
        let shown = more
            .into_iter()
            .fold(format!("{:?}", Report::new(self)), |shown, failure| format!("{shown}\n{:?}", Report::new(failure)));
        match count {
            1 => shown,
            2..=SHOWN_COUNT_MAX => format!("{shown}\n{count} errors"),
            _ => format!("{shown}\n{count} errors, of which the first {SHOWN_COUNT_MAX} are shown"),
        }
    }
}

/// Returns the handler that formats errors. It wraps lines only at a terminal. In a log, a path or a command must stay
/// on one line, so that it can be found and copied.
fn handler() -> MietteHandler {
    let error_output = io::stderr();
    let is_terminal = error_output.is_terminal();
    let columns = tcgetwinsize(&error_output).map_or(0, |size| usize::from(size.ws_col));
    let options = MietteHandlerOpts::new().context_lines(2).wrap_lines(is_terminal).break_words(is_terminal);
    let options = options.color(has_colors(&error_output)).unicode(!is_terminal || is_unicode_terminal());
    options.width(if columns == 0 { COLUMNS } else { columns }).build()
}

/// Returns whether the terminal can show line-drawing characters and arrows. The kernel's console and locales without
/// UTF-8 cannot.
fn is_unicode_terminal() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(env::var_os).unwrap_or_default();
    let locale = locale.to_string_lossy().to_uppercase();
    env::var_os("TERM").is_none_or(|name| name != "linux") && (locale.ends_with("UTF-8") || locale.ends_with("UTF8"))
}

/// Maximum number of failures in one report.
pub(crate) const SHOWN_COUNT_MAX: usize = 20;

/// Width of lines, in columns, if the terminal does not report its own.
const COLUMNS: usize = 80;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for Failure {}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| &place.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.place.as_ref().map(|place| Box::new(std::iter::once(place.label.clone())) as _)
    }
}
