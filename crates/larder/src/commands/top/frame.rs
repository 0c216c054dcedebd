//! Draws a frame of `larder top`.
//!
//! Owns: the layout. The frame is drawn into a buffer, not on a device. Invariant: numbers have units, and the words
//! are those of the dashboard.

use super::TopFigures;
use crate::ground::size;
use larder_proxy::{AskedFor, Latency, Overview, RequestFigures, VolumeFigures};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph, Row, Sparkline, Table, Widget as _},
};

/// Draws the frame.
pub(super) fn draw(buffer: &mut Buffer, shown: &TopFigures) {
    let TopFigures { overview, trouble } = shown;
    let [head, sums, rate, times, asked, volumes, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(TIMES_LINES),
        Constraint::Min(6),
        Constraint::Length(6),
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
    let [left, right] = halves(asked);
    draw_asked(buffer, "Most requested sites", &overview.sites, left);
    draw_asked(buffer, "Most requested URLs", &overview.objects, right);
    let [left, right] = halves(volumes);
    draw_volumes(buffer, &overview.volumes, left);
    draw_memory(buffer, overview, right);
    Paragraph::new("q: quit".dim()).render(foot, buffer);
}

fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas(area)
}

fn block(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(title.bold())
}

fn is_empty(overview: &Overview) -> bool {
    requests(&overview.ever) == 0
}

fn requests(counted: &RequestFigures) -> u64 {
    counted.hits + counted.misses + counted.others
}

/// Formats the share of requests that were answered from the cache, among those that the cache could answer.
fn share(counted: &RequestFigures) -> String {
    match counted.hits + counted.misses {
        0 => "-".to_owned(),
        all => format!("{:.0} %", 100.0 * counted.hits as f64 / all as f64),
    }
}

fn title<'a>(overview: &'a Overview, trouble: Option<&'a str>) -> Line<'a> {
    let out = overview.volumes.iter().filter(|volume| volume.out).count();
    let state = match trouble {
        Some(why) => format!("no response, the figures are old: {why}").red().bold(),
        None if out > 0 => format!("{out} of {} disks failed", overview.volumes.len()).red().bold(),
        None if overview.line.offline => "offline: no origin is contacted".yellow().bold(),
        None if overview.volumes.iter().any(|volume| !volume.loaded) => "loading the store's index".yellow(),
        None if overview.origins.iter().any(|origin| !origin.up) => "a failed origin is left out".yellow(),
        None => "working".green(),
    };
    let connections = overview.metric("larder_connections_open");
    let waiting = overview.metric("larder_waiting_requests");
    let open = format!("   {connections} connections open, {waiting} requests waiting");
    Line::from(vec!["Larder ".bold(), Span::raw(&overview.version), "   ".into(), state, open.dim()])
}

fn draw_sums(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    let row = |name: &str, counted: &RequestFigures| {
        Row::new([
            name.to_owned(),
            share(counted),
            size::show_count(counted.hits),
            size::show_count(counted.misses),
            size::show_count(counted.others),
            size::show(counted.saved_bytes),
            size::show(counted.client_bytes),
        ])
    };
    let rows =
        [row("last minute", &overview.minute), row("today", &overview.today).bold(), row("in total", &overview.ever)];
    let header = ["", "from cache", "hits", "from origins", "others", "saved", "sent to clients"];
    let widths = [12, 11, 14, 14, 10, 18, 16].map(Constraint::Length);
    let table = Table::new(rows, widths).header(Row::new(header).dim());
    table.block(block("")).render(area, buffer);
}

fn draw_rate(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    // The last second is still being counted, so it is left out.
    let seconds: Vec<u64> = overview.by_second.iter().rev().skip(1).rev().map(requests).collect();
    let recent = seconds.iter().rev().take(5).sum::<u64>() as f64 / 5.0;
    let most = seconds.iter().max().copied().unwrap_or(0);
    let title = format!("Requests per second: {recent:.0} now, {most} at most in the last minute");
    // Each second is drawn as wide as the space permits.
    let times = (usize::from(area.width) / seconds.len().max(1)).max(1);
    let data: Vec<u64> = seconds.iter().flat_map(|second| std::iter::repeat_n(*second, times)).collect();
    let sparkline = Sparkline::default().data(&data).style(Style::new().fg(Color::Cyan));
    sparkline.block(block(&title)).render(area, buffer);
}

fn draw_times(buffer: &mut Buffer, latencies: &[Latency], area: Rect) {
    let name = |name: &str| match name {
        "hit" => "from the cache".to_owned(),
        "miss" => "from origins".to_owned(),
        "origin" => "origin responses".to_owned(),
        "disk" => "disk reads".to_owned(),
        other => other.to_owned(),
    };
    let rows = latencies.iter().map(|latency| {
        let time = |ms| if latency.count == 0 { "-".to_owned() } else { show_ms(ms) };
        Row::new([name(&latency.name), time(latency.half_ms), time(latency.p99_ms)])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(14), Constraint::Length(14)];
    let table = Table::new(rows, widths).header(Row::new(["", "median", "99th perc."]).dim());
    table.block(block("Time to first byte, last minute")).render(area, buffer);
}

/// Formats a time with three significant digits.
fn show_ms(ms: f64) -> String {
    match ms {
        0.0..1.0 => format!("{:.0} us", ms * 1000.0),
        1.0..10.0 => format!("{ms:.1} ms"),
        10.0..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

fn draw_reasons(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    let rows =
        overview.misses_today.iter().map(|reason| Row::new([reason.name.clone(), size::show_count(reason.count)]));
    let table = Table::new(rows, [Constraint::Fill(1), Constraint::Length(14)]);
    table.block(block("Why origins were contacted today")).render(area, buffer);
}

fn draw_asked(buffer: &mut Buffer, title: &str, asked: &[AskedFor], area: Rect) {
    let rows = asked.iter().map(|each| {
        let counted = &each.counted;
        let name = end_of(&each.name, usize::from(area.width).saturating_sub(20));
        Row::new([name, size::show_count(requests(counted)), share(counted)])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(7)];
    let table = Table::new(rows, widths).header(Row::new(["", "requests", "cache"]).dim());
    table.block(block(title)).render(area, buffer);
}

/// Truncates a text to the available space. Keeps its end, because the end of a URL or path is more distinctive than
/// its beginning.
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
                size::show_things(volume.corrupt, "damaged entry", "damaged entries").yellow()
            }
            _ => "ok".green(),
        };
        let entries = size::show_count(volume.entries);
        let most = size::show_count(volume.entries_max);
        let about = format!("  {entries} of {most} entries, {}", size::show(volume.size_bytes));
        let path = end_of(&volume.path, usize::from(area.width).saturating_sub(20));
        [Line::from(vec![Span::raw(path), "  ".into(), health]), Line::from(about.dim())]
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let lines = if lines.is_empty() { vec![Line::from("none: the cache is in memory only")] } else { lines };
    Paragraph::new(lines).block(block("Disks")).render(area, buffer);
}

fn draw_memory(buffer: &mut Buffer, overview: &Overview, area: Rect) {
    let all: u64 = overview.memory.iter().map(|part| part.count).sum();
    let parts: Vec<String> = overview
        .memory
        .iter()
        .filter(|part| part.count > 0)
        .map(|part| format!("{} {}", part_name(&part.name), size::show(part.count)))
        .collect();
    let title = format!("Memory: {}", size::show(all));
    let words = Paragraph::new(parts.join(", ")).wrap(ratatui::widgets::Wrap { trim: true });
    words.block(block(&title)).render(area, buffer);
}

/// Returns the name of a part of the memory for people. Other names, such as that of the index, are plain already.
fn part_name(name: &str) -> &str {
    match name {
        "dirty" => "waiting to be written",
        "hot" => "memory cache",
        "windows" => "bodies in transfer",
        "popular" => "request statistics",
        "other" => "program and other",
        name => name,
    }
}

const TIMES_LINES: u16 = 7;
/// Lines of a printed frame.
pub(super) const LINES: u16 = 42;
