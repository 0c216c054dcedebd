//! Draws a frame of `larder top`.
//!
//! Owns: the layout. The frame is drawn into a buffer, not on a device. Invariant: numbers have units, and the words
//! are those of the dashboard.

use super::{TopFigures, keys::TopView};
use crate::ground::size;
use larder_proxy::{AskedFor, Latency, Overview, RequestFigures, VolumeFigures};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph, Row, Sparkline, Table, Widget as _},
};

/// Draws a frame into `buffer`.
pub(super) fn draw(buffer: &mut Buffer, shown: &TopFigures) {
    let TopFigures { overview, trouble, view } = shown;
    // A part of the frame that does not fit into a low terminal is left out completely.
    let lines = buffer.area().height;
    let rate_lines = if lines < LOW_LINES { 0 } else { RATE_LINES };
    let disks_lines = if lines < LOW_LINES - RATE_LINES { 0 } else { DISKS_LINES };
    let [head, sums, rate, times, asked, volumes, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Length(rate_lines),
        Constraint::Length(TIMES_LINES),
        Constraint::Min(ASKED_LINES_MIN),
        Constraint::Length(disks_lines),
        Constraint::Length(1),
    ])
    .areas(*buffer.area());
    Paragraph::new(title(overview, trouble.as_deref())).render(head, buffer);
    if is_empty(overview) {
        let words = format!("No requests yet. Send one through Larder twice:\n\n  {}", overview.try_with);
        Paragraph::new(words).block(block("")).render(sums, buffer);
    } else {
        draw_sums(buffer, overview, sums);
    }
    draw_rate(buffer, overview, rate);
    let [left, right] = halves(times);
    draw_times(buffer, &overview.latencies, left);
    draw_reasons(buffer, overview, right);
    // The two lists are below each other, because their names are long and need the whole width.
    let [upper, lower] = Layout::vertical([Constraint::Fill(2), Constraint::Fill(3)]).areas(asked);
    draw_asked(buffer, "Sites", &view.listed(&overview.sites), upper);
    draw_asked(buffer, "URLs", &view.listed(&overview.objects), lower);
    let [left, right] = halves(volumes);
    draw_volumes(buffer, &overview.volumes, left);
    draw_memory(buffer, overview, right);
    Paragraph::new(keys_line(view)).render(foot, buffer);
}

/// Returns the bottom line of the frame: the names of the keys, or the filter while the user types it.
fn keys_line(view: &TopView) -> Line<'_> {
    if view.is_typing {
        return Line::from(vec![
            "Filter: ".bold(),
            Span::raw(&view.filter),
            "_".into(),
            "  Enter: keep  Esc: clear".dim(),
        ]);
    }
    let filter = if view.filter.is_empty() { String::new() } else { format!("  names with {}", view.filter) };
    let order = format!("sorted by {}{filter}", view.order.name());
    Line::from(vec!["q quit  s sort  / filter   ".dim(), order.into()])
}

fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(3).areas(area)
}

fn block(title: &str) -> Block<'_> {
    let title = if title.is_empty() { Line::default() } else { Line::from(vec![title.bold(), " ".into()]) };
    Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(title)
}

fn is_empty(overview: &Overview) -> bool {
    requests(&overview.ever) == 0
}

fn requests(counted: &RequestFigures) -> u64 {
    counted.hits + counted.misses + counted.others
}

/// Formats the hit ratio: the share of hits among the requests that the cache could have answered.
fn share(counted: &RequestFigures) -> String {
    match counted.hits + counted.misses {
        0 => "-".to_owned(),
        all => {
            let percent = 100.0 * counted.hits as f64 / all as f64;
            // 352 hits of 353 requests are not 100%.
            let digits = usize::from((99.5..99.95).contains(&percent));
            format!("{percent:.digits$}%")
        }
    }
}

fn title<'a>(overview: &'a Overview, trouble: Option<&'a str>) -> Line<'a> {
    let out = overview.volumes.iter().filter(|volume| volume.out).count();
    let state = match trouble {
        Some(why) => format!("no response, figures are old: {why}").red().bold(),
        None if out > 0 => format!("{out} of {} disks failed", overview.volumes.len()).red().bold(),
        None if overview.line.offline => "offline: no origin is contacted".yellow().bold(),
        None if overview.volumes.iter().any(|volume| !volume.loaded) => "loading the store's index".yellow(),
        None if overview.origins.iter().any(|origin| !origin.up) => "a failed origin is left out".yellow(),
        None => "working".green(),
    };
    let connections = size::show_count(overview.metric("larder_connections_open"));
    let waiting = size::show_count(overview.metric("larder_waiting_requests"));
    let open = format!("   open {connections}, waiting {waiting}");
    Line::from(vec!["Larder ".bold(), Span::raw(&overview.version), "   ".into(), state, open.dim()])
}

fn draw_sums(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    let row = |name: &str, counted: &RequestFigures| {
        [
            name.to_owned(),
            share(counted),
            size::show_count(counted.hits),
            size::show_count(counted.misses),
            size::show_count(counted.others),
            size::show(counted.saved_bytes),
            size::show(counted.client_bytes),
        ]
    };
    let rows = [row("last minute", &overview.minute), row("today", &overview.today), row("in total", &overview.ever)];
    let header = ["", "cache", "hits", "misses", "others", "saved", "sent"];
    let widths = [11, 7, 13, 12, 9, 9, 9].map(Constraint::Length);
    let table = Table::new(rows.map(numbers_right), widths).header(numbers_right(header.map(str::to_owned)).dim());
    table.block(block("")).render(area, buffer);
}

/// Makes a table row from a name and numbers. The numbers are aligned to the right.
fn numbers_right<const COUNT: usize>(cells: [String; COUNT]) -> Row<'static> {
    let mut cells = cells.into_iter();
    let name = Line::from(cells.next().unwrap_or_default());
    Row::new(std::iter::once(name).chain(cells.map(|cell| Line::from(cell).right_aligned())))
}

fn draw_rate(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    // The newest second is still being counted, so it is left out.
    let seconds: Vec<u64> = overview.by_second.iter().rev().skip(1).rev().map(requests).collect();
    let recent = seconds.iter().rev().take(5).sum::<u64>() as f64 / 5.0;
    let most = seconds.iter().max().copied().unwrap_or(0);
    let title = format!("Requests per second: {recent:.0} now, {most} at most in the last minute");
    // The seconds are stretched or thinned out to the whole width, so that the latest one is at the right edge.
    let columns = usize::from(area.width);
    let data: Vec<u64> =
        (0..columns).filter_map(|column| seconds.get(column * seconds.len() / columns).copied()).collect();
    let sparkline = Sparkline::default().data(&data).style(Style::new().fg(Color::Cyan));
    sparkline.block(block(&title)).render(area, buffer);
}

fn draw_times(buffer: &mut Buffer, latencies: &[Latency], area: Rect) {
    let name = |name: &str| match name {
        "hit" => "hits".to_owned(),
        "miss" => "misses".to_owned(),
        "origin" => "origins".to_owned(),
        "disk" => "disk reads".to_owned(),
        other => other.to_owned(),
    };
    let rows = latencies.iter().map(|latency| {
        let time = |ms| if latency.count == 0 { "-".to_owned() } else { show_ms(ms) };
        numbers_right([name(&latency.name), time(latency.half_ms), time(latency.p99_ms)])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(8), Constraint::Length(8)];
    let table = Table::new(rows, widths).header(numbers_right(["", "p50", "p99"].map(str::to_owned)).dim());
    table.block(block("Time to first byte, last minute")).render(area, buffer);
}

/// Formats a time, given in milliseconds, in the unit that suits it.
fn show_ms(ms: f64) -> String {
    match ms {
        0.0..1.0 => format!("{:.0} µs", ms * 1000.0),
        1.0..10.0 => format!("{ms:.1} ms"),
        10.0..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

fn draw_reasons(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    let rows =
        overview.misses_today.iter().map(|reason| numbers_right([reason.name.clone(), size::show_count(reason.count)]));
    let table = Table::new(rows, [Constraint::Fill(1), Constraint::Length(13)]);
    table.block(block("Reasons of misses today")).render(area, buffer);
}

fn draw_asked(buffer: &mut Buffer, title: &str, asked: &[&AskedFor], area: Rect) {
    let rows = asked.iter().map(|each| {
        let counted = &each.counted;
        let name = end_of(&each.name, usize::from(area.width).saturating_sub(18));
        let result = match (counted.hits + counted.misses, each.failed) {
            (0, 0) if counted.others > 0 => "tunnel".to_owned(),
            (0, failed) if failed > 0 => "failed".to_owned(),
            _ => share(counted),
        };
        numbers_right([name, size::show_count(requests(counted)), result])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(7)];
    let table = Table::new(rows, widths).header(numbers_right(["", "requests", "cache"].map(str::to_owned)).dim());
    table.block(block(title)).render(area, buffer);
}

/// Truncates a text to `room` columns. Removes the beginning, because URLs and paths differ more at their ends.
fn end_of(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count - room.saturating_sub(1)).collect();
    format!("…{end}")
}

fn draw_volumes(buffer: &mut Buffer, volumes: &[VolumeFigures], area: Rect) {
    let lines = volumes.iter().flat_map(|volume| {
        let health = match volume {
            VolumeFigures { out: true, .. } => "failed, left out".red(),
            VolumeFigures { loaded: false, .. } => "loading".yellow(),
            VolumeFigures { io_errors: 1.., .. } => size::show_things(volume.io_errors, "error", "errors").yellow(),
            VolumeFigures { corrupt: 1.., .. } => {
                size::show_things(volume.corrupt, "corrupt entry", "corrupt entries").yellow()
            }
            _ => "healthy".green(),
        };
        let entries = size::show_count(volume.entries);
        let room = size::show_count(volume.entries_room);
        let about = format!("  {entries} of ~{room} entries");
        let path = end_of(&volume.path, usize::from(area.width));
        let bytes = format!("  {}, ", size::show(volume.size_bytes));
        [Line::from(path), Line::from(vec![bytes.dim(), health]), Line::from(about.dim())]
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let lines = if lines.is_empty() { vec![Line::from("none: memory only")] } else { lines };
    Paragraph::new(lines).block(block("Disks")).render(area, buffer);
}

fn draw_memory(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    let all: u64 = overview.memory.iter().map(|part| part.count).sum();
    let parts: Vec<String> = overview
        .memory
        .iter()
        .filter(|part| part.count > 0)
        .map(|part| format!("{} {}", part_name(&part.name), size::show(part.count)).replace(' ', NO_BREAK))
        .collect();
    let title = format!("Memory: {}", size::show(all));
    let words = Paragraph::new(parts.join(", ")).wrap(ratatui::widgets::Wrap { trim: true });
    words.block(block(&title)).render(area, buffer);
}

/// Returns the name that the frame shows for a part of the memory: a clearer one if there is one, otherwise `name`.
fn part_name(name: &str) -> &str {
    match name {
        "dirty" => "write buffer",
        "hot" => "memory cache",
        "windows" => "bodies",
        "popular" => "statistics",
        "other" => "other",
        name => name,
    }
}

/// A space at which a line is not broken, so that a number stays with its unit.
const NO_BREAK: &str = "\u{a0}";
const RATE_LINES: u16 = 6;
const TIMES_LINES: u16 = 7;
const ASKED_LINES_MIN: u16 = 8;
/// Height in lines below which the rate is not drawn. In an even lower terminal, the disks and the memory are not drawn
/// either.
const LOW_LINES: u16 = 1 + 5 + RATE_LINES + TIMES_LINES + ASKED_LINES_MIN + DISKS_LINES + 1;
const DISKS_LINES: u16 = 7;
/// Height in lines of a frame that is printed as text.
pub(super) const LINES: u16 = 50;
