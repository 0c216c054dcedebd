//! `larder top`: shows the activity of a running proxy in a terminal.
//!
//! Owns: the flags, the terminal while the command runs, and the polling. `frame` draws; the proxy counts. Invariants:
//! the terminal is restored however the command ends. Keys are handled even while the proxy has not responded. Without
//! a terminal, the command prints one frame and ends.

mod frame;
mod keys;

use self::keys::{KeyEffect, TopView};
use crate::{
    commands::admin_client::{self, AdminFlags},
    ground::{duration, failure::Failure, output},
};
use clap::Args;
use larder_proxy::Overview;
use ratatui::{
    DefaultTerminal,
    buffer::Buffer,
    crossterm::event::{self, Event},
    layout::Rect,
};
use std::{
    io::{self, IsTerminal},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  larder top
  larder top --once | less
  larder top --admin 127.0.0.1:3180

Keys: s changes the order of the lists; r sorts them by requests, m by misses, b by bytes saved, n by name. \
/ filters them by a part of their names (Enter ends the input, Esc clears it). q, Esc or Ctrl-C exit. A browser \
shows the same at the admin listener's address.";

/// The flags of `larder top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopFlags {
    /// Print one frame and exit, as without a terminal
    #[arg(long)]
    once: bool,

    /// Time between two updates
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    every: Duration,

    #[command(flatten)]
    admin: AdminFlags,
}

/// The data and settings from which a frame is drawn.
pub(crate) struct TopFigures {
    pub(crate) overview: Overview,
    /// The reason why the figures are outdated. `None` while they are current.
    pub(crate) trouble: Option<String>,
    /// The sort order and the filter of the lists.
    pub(crate) view: TopView,
}

/// Runs `larder top`.
///
/// # Errors
/// The proxy is unreachable at the start, or the terminal fails.
pub(crate) fn run(flags: &TopFlags) -> Result<(), Failure> {
    let shown = TopFigures { overview: look(flags.admin)?, trouble: None, view: TopView::default() };
    if flags.once || !io::stdout().is_terminal() {
        return output::print(format_args!("{}", once(&shown)));
    }
    let admin = flags.admin;
    let every = flags.every.max(PAUSE_MIN);
    let (sender, looks) = channel();
    // The thread ends with the process, or when the receiver of its results is gone.
    thread::spawn(move || {
        loop {
            thread::sleep(every);
            if sender.send(look(admin)).is_err() {
                return;
            }
        }
    });
    // ratatui also installs a panic hook that restores the terminal before the panic is printed.
    let mut terminal = ratatui::try_init().map_err(terminal_failure)?;
    let ended = watch(&mut terminal, shown, &looks);
    ratatui::restore();
    ended.map_err(terminal_failure)
}

/// Draws a frame for each new set of figures and for each key, until a key ends the command.
fn watch(
    terminal: &mut DefaultTerminal,
    mut shown: TopFigures,
    looks: &Receiver<Result<Overview, Failure>>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| frame::draw(frame.buffer_mut(), &shown))?;
        if event::poll(KEY_PATIENCE)?
            && let Event::Key(key) = event::read()?
            && shown.view.press(key) == KeyEffect::Quit
        {
            return Ok(());
        }
        for look in looks.try_iter() {
            match look {
                Ok(overview) => (shown.overview, shown.trouble) = (overview, None),
                Err(failure) => shown.trouble = Some(failure.to_string()),
            }
        }
    }
}

/// Returns one frame as text, for output that is not a terminal.
fn once(shown: &TopFigures) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, ONCE_COLUMNS, frame::LINES));
    frame::draw(&mut buffer, shown);
    let line = |row| (0..ONCE_COLUMNS).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    let lines: Vec<String> = (0..frame::LINES).map(|row| line(row).trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

fn look(admin: AdminFlags) -> Result<Overview, Failure> {
    let text = admin_client::ask(admin, "GET /overview.json", "")?;
    serde_json::from_str(&text).map_err(|error| {
        let help = "use the same version of larder on both ends";
        Failure::runtime(format!("the proxy's response is not an overview: {error}"), help)
    })
}

fn terminal_failure(error: impl std::fmt::Display) -> Failure {
    Failure::runtime(format!("the terminal cannot be used: {error}"), "print one frame with larder top --once")
}

const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Time to wait for a key before checking whether new figures arrived.
const KEY_PATIENCE: Duration = Duration::from_millis(100);
/// Width in columns of a frame that is printed as text. It fits a usual terminal and a mail.
const ONCE_COLUMNS: u16 = 80;
