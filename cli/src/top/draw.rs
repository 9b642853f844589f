// SPDX-License-Identifier: GPL-2.0-only
//! How `onbeat top` looks: from the top a line about all, the CPUs, the reservations, the one that is marked, the keys.
//! A pure function of the state and the size.

use onbeat_kernel::machine::name_cpus;
use onbeat_model::metrics::in_words;
use onbeat_model::protocol::Reservation;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget, Wrap};

use super::columns::{Column, fitting, percent, time};
use super::state::{Load, Mode, Row, State};

/// The narrowest and the widest a CPU's bar and figures may be.
const CELL: (u16, u16) = (36, 60);
/// Lines from which on the reservation that is marked has lines of its own, and how many.
const DETAILS: (u16, u16) = (17, 5);

/// What things look like: by the terminal's own colours, so that they suit its background, or by emphasis alone.
struct Look {
    colour: bool,
}

impl Look {
    fn of(&self, colour: Color, otherwise: Modifier) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new().add_modifier(otherwise) }
    }

    /// Words on a bar of this colour.
    fn bar(&self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(Color::Black).bg(colour)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    fn alarm(&self) -> Style {
        self.of(Color::Red, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }
}

/// Where what stands.
struct Places {
    summary: Rect,
    cpus: Rect,
    heads: Rect,
    rows: Rect,
    details: Rect,
    keys: Rect,
}

fn places(state: &State, area: Rect) -> Places {
    let mut left = area;
    let mut top = |lines: u16, from_below: bool| {
        let lines = lines.min(left.height);
        let y = if from_below { left.bottom() - lines } else { left.y };
        if !from_below {
            left.y += lines;
        }
        left.height -= lines;
        Rect { y, height: lines, ..area }
    };
    let keys = top(1, true);
    let summary = top(1, false);
    let cpus = state.now.as_ref().map_or(0, |now| now.per_cpu.len() as u16);
    let lines = cpus.div_ceil(cells(area.width));
    // Half of the screen is for reservations.
    let cpus = top(lines.min(area.height.saturating_sub(4) / 2), false);
    let heads = top(1, false);
    let details = top(if area.height >= DETAILS.0 { DETAILS.1 } else { 0 }, true);
    Places { summary, cpus, heads, rows: left, details, keys }
}

/// CPUs beside each other.
fn cells(width: u16) -> u16 {
    (width / CELL.0).max(1)
}

/// How many rows are seen.
pub fn rows_of(state: &State, area: Rect) -> usize {
    places(state, area).rows.height.into()
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let (area, look) = (frame.area(), Look { colour: state.colour });
    // No room for a row.
    if area.height < 4 || area.width == 0 {
        return;
    }
    let places = places(state, area);
    let rows = state.rows();
    let buffer = frame.buffer_mut();
    buffer.set_line(area.x, places.summary.y, &summary(state, &look), places.summary.width);
    draw_cpus(&state.loads(), &look, places.cpus, buffer);
    match (&state.down, &state.now) {
        (Some(why), _) => say(&format!("{why}\n\nWaiting for it."), places.rows, buffer),
        (None, None) => say("Asking the service ...", places.rows, buffer),
        (None, Some(now)) => {
            draw_rows(state, &rows, &look, &places, buffer);
            if rows.is_empty() {
                let text = if now.reservations.is_empty() {
                    "Nothing is reserved. Reserve with: onbeat run --period 41.7ms --budget 25ms -- PROGRAM".into()
                } else {
                    format!("No reservation has \"{}\" in its names.", state.filter)
                };
                say(&text, places.rows, buffer);
            }
        }
    }
    if let Some(row) = rows.get(state.selected) {
        draw_details(row, &look, places.details, buffer);
    }
    buffer.set_line(area.x, places.keys.y, &keys(state, &look, area.width), places.keys.width);
    match state.mode {
        Mode::Help => draw_help(&look, area, buffer),
        Mode::Sort(at) => draw_sort(at, &look, area, buffer),
        _ => (),
    }
}

fn say(text: &str, area: Rect, buffer: &mut Buffer) {
    Paragraph::new(text).wrap(Wrap { trim: true }).render(area, buffer);
}

/// The line about all.
fn summary(state: &State, look: &Look) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut line = Line::from(Span::styled("onbeat top", bold));
    let mut say = |text: String| line.push_span(Span::raw(text));
    if let Some(now) = &state.now {
        let broken = now.reservations.iter().fold(0u64, |sum, r| sum.saturating_add(r.owed_late));
        say(format!("  {:.2} CPUs reserved, {:.2} free", now.reserved, now.free));
        if broken > 0 {
            line.push_span(Span::styled(format!("  owed late: {broken}"), look.alarm()));
        }
        if state.paused {
            line.push_span(Span::styled("  PAUSED", bold));
        }
        let policies = match &now.sets[..] {
            [] | [_] => now.policy.clone(),
            sets => sets
                .iter()
                .map(|set| format!("{}: {}", set.name, set.policy))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let threads: u64 = now.reservations.iter().map(|r| u64::from(r.threads)).sum();
        line.push_span(Span::raw(format!(
            "  {policies} on {}  reservations: {}, threads: {threads}",
            name_cpus(&now.cpus),
            now.reservations.len(),
        )));
        if let Some(cpu) = now.interrupt_cpu {
            line.push_span(Span::raw(format!("  CPU {cpu} for interrupts")));
        }
        line.push_span(Span::raw(format!("  best effort: {}", now.best_effort)));
    }
    line
}

/// The CPUs, row by row; what has no room is said in the last cell.
fn draw_cpus(loads: &[Load], look: &Look, area: Rect, buffer: &mut Buffer) {
    let across = cells(area.width);
    let room = usize::from(across * area.height);
    let wide = (area.width / across).min(CELL.1);
    let shown = if loads.len() > room { room.saturating_sub(1) } else { loads.len() };
    for (i, load) in loads[..shown].iter().enumerate() {
        let (x, y) = (i as u16 % across * wide, i as u16 / across);
        draw_cpu(load, look, Rect { x: area.x + x, y: area.y + y, width: wide, height: 1 }, buffer);
    }
    if shown < loads.len() && room > 0 {
        let (x, y) = (shown as u16 % across * wide, shown as u16 / across);
        let rest = &loads[shown..];
        let used: f64 =
            rest.iter().map(|l| l.served.unwrap_or(0.0) + l.others.unwrap_or(0.0)).sum();
        let text =
            format!("{} more CPUs, {}% in use", rest.len(), percent(used / rest.len() as f64));
        buffer.set_stringn(area.x + x, area.y + y, text, wide.into(), Style::new());
    }
}

/// `0[###::    |   ]  18/ 60%  21%`: what reservations use, of what is reserved, and best effort.
fn draw_cpu(load: &Load, look: &Look, area: Rect, buffer: &mut Buffer) {
    let show = |part: Option<f64>| part.map_or("-".into(), |part| format!("{:.0}", 100.0 * part));
    let figures = format!(
        "{:>4}/{:>3}% {:>3}%",
        show(load.served),
        show(Some(load.reserved)),
        show(load.others)
    );
    let bar = usize::from(area.width).saturating_sub(figures.len() + 7);
    let cells = |part: f64| ((part * bar as f64).round() as usize).min(bar);
    let served = cells(load.served.unwrap_or(0.0));
    let others = cells(load.served.unwrap_or(0.0) + load.others.unwrap_or(0.0)) - served;
    let mut rest = vec![' '; bar - served - others];
    // Where what is reserved ends.
    if let Some(mark) =
        cells(load.reserved).checked_sub(served + others + 1).and_then(|at| rest.get_mut(at))
    {
        *mark = '|';
    }
    let line = Line::from(vec![
        Span::raw(format!("{:>3}[", load.cpu)),
        Span::styled("#".repeat(served), look.of(Color::Green, Modifier::BOLD)),
        Span::styled(":".repeat(others), look.of(Color::Blue, Modifier::empty())),
        Span::styled(
            rest.into_iter().collect::<String>(),
            look.of(Color::Yellow, Modifier::empty()),
        ),
        Span::raw("]"),
        Span::raw(figures),
    ]);
    buffer.set_line(area.x, area.y, &line, area.width);
}

fn draw_rows(state: &State, rows: &[Row], look: &Look, places: &Places, buffer: &mut Buffer) {
    let columns = fitting(places.heads.width);
    buffer.set_style(places.heads, look.bar(Color::Green));
    for (column, x, wide) in &columns {
        let style = if *column == state.sort {
            Modifier::BOLD | Modifier::UNDERLINED
        } else {
            Modifier::empty()
        };
        put(
            buffer,
            (places.heads.x + x, places.heads.y),
            *wide,
            column.head().0,
            *column,
            Style::new().add_modifier(style),
        );
    }
    let height = usize::from(places.rows.height);
    let first = (state.selected + 1).saturating_sub(height);
    for (i, row) in rows.iter().enumerate().skip(first).take(height) {
        let y = places.rows.y + (i - first) as u16;
        let late = row.of.owed_late > 0;
        let mark = if late { "!" } else { " " };
        buffer.set_string(places.rows.x, y, mark, look.alarm());
        for (column, x, wide) in &columns {
            let alarm = late && (*column == Column::OwedLate || row.broken > 0);
            let style = if alarm { look.alarm() } else { Style::new() };
            put(buffer, (places.rows.x + x, y), *wide, &column.text(row), *column, style);
        }
        if i == state.selected {
            buffer.set_style(Rect { y, height: 1, ..places.rows }, look.bar(Color::Cyan));
        }
    }
}

/// Words at the left of a column, numbers at its right; what is too long is cut off and says so.
fn put(
    buffer: &mut Buffer,
    (x, y): (u16, u16),
    wide: u16,
    text: &str,
    column: Column,
    style: Style,
) {
    let (wide, long) = (usize::from(wide), Span::raw(text).width());
    let from = if column.is_text() { 0 } else { wide.saturating_sub(long) };
    buffer.set_stringn(x + from as u16, y, text, wide - from, style);
    if long > wide && wide > 0 {
        buffer.set_string(x + wide as u16 - 1, y, "~", style);
    }
}

/// All about one reservation, as far as there is room.
fn draw_details(row: &Row, look: &Look, area: Rect, buffer: &mut Buffer) {
    let r = &row.of;
    let whose = match (r.pid, r.thread) {
        (0, _) => "a group".into(),
        (pid, 0) => format!("process {pid}"),
        (pid, thread) => format!("thread {thread} of process {pid}"),
    };
    let within = if r.group.is_empty() { String::new() } else { format!(", in group {}", r.group) };
    let lines = [
        format!(
            "{} ({}): {whose}{within} of {}, {} threads; {} on {}",
            r.id,
            r.name,
            row.user,
            r.threads,
            r.policy,
            name_cpus(&r.cpus)
        ),
        format!(
            "{} in {}, due after {}; used {}% of it, {} s in all, used up {} times",
            time(r.budget_ns),
            time(r.period_ns),
            time(r.deadline_ns),
            percent(row.used()),
            r.consumed_ns / 1_000_000_000,
            r.exhaustions,
        ),
        format!(
            "gave {} to others, got {} from others and {} of slack",
            time(r.donated_ns),
            time(r.received_ns),
            time(r.slack_ns),
        ),
        format!(
            "owed jobs: {} of {} late, {} at worst; all: {} of {} late, {} at worst, {} mean",
            r.owed_late,
            r.owed,
            time(r.owed_tardiness_max_ns),
            r.misses,
            r.jobs,
            time(r.tardiness_max_ns),
            time(row.tardiness()),
        ),
        why_late(r),
    ];
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        let alarm = r.owed_late > 0 && y == area.y + 3;
        let style = if alarm { look.alarm() } else { Style::new() };
        buffer.set_stringn(area.x, y, line, area.width.into(), style);
    }
}

/// What made its jobs late; empty where nothing did.
fn why_late(r: &Reservation) -> String {
    let last = r.late_by.map(|by| format!("; last behind reservation {by}")).unwrap_or_default();
    match in_words(&r.late_causes) {
        none if none.is_empty() => none,
        words => format!("late for: {words}{last}"),
    }
}

/// The last line: what is being written, or the keys.
fn keys(state: &State, look: &Look, width: u16) -> Line<'static> {
    let bar = look.bar(Color::Cyan);
    let seconds = state.delay.as_secs_f64();
    match &state.mode {
        Mode::Filter => {
            return Line::from(format!(
                "Filter: {}_   Enter keeps it, Esc shows all",
                state.filter
            ));
        }
        Mode::Delay(text) => {
            return Line::from(format!("Seconds between looks: {text}_   Enter; now {seconds}"));
        }
        _ => (),
    }
    let filter =
        if state.filter.is_empty() { "Filter".into() } else { format!("Filter: {}", state.filter) };
    let sort = format!("Sort: {}", state.sort.head().0);
    let pause = if state.paused { "Go on" } else { "Pause" };
    let mut line = Line::default();
    // On a narrow screen how to leave comes first of all.
    for (key, does) in [
        ("q", "Quit".into()),
        ("h", "Help".into()),
        ("/", filter),
        ("<>", sort),
        ("Space", pause.into()),
        ("d", format!("Delay: {seconds}s")),
    ] {
        if line.width() + key.len() + does.len() + 1 > width.into() {
            break;
        }
        line.push_span(Span::styled(key, Style::new().add_modifier(Modifier::BOLD)));
        line.push_span(Span::styled(does, bar));
        line.push_span(Span::raw(" "));
    }
    line
}

/// A window in the middle of the screen.
fn window(title: &str, (width, height): (u16, u16), area: Rect, buffer: &mut Buffer) -> Rect {
    let (width, height) = ((width + 2).min(area.width), (height + 2).min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    let block = Block::bordered().title(title.to_owned());
    let inside = block.inner(place);
    Clear.render(place, buffer);
    block.render(place, buffer);
    inside
}

const HELP: [&str; 17] = [
    "q, F10      quit",
    "Up, Down    mark a reservation; PgUp,",
    "            PgDn, Home, End move further",
    "/, F4       filter by names; Esc: all",
    "F6          choose by what to sort",
    "< >         sort by the column beside",
    "I           turn the order round",
    "Space       pause, go on",
    "d, s        time between looks",
    "",
    "CPUs: # reservations, : best effort",
    "and all else, | what is reserved.",
    "4/60% 21%: reservations use 4 of 60",
    "that are reserved; all else uses 21.",
    "",
    "! owed jobs were late: the budget was",
    "  enough for them (OWED LATE of OWED)",
];

fn draw_help(look: &Look, area: Rect, buffer: &mut Buffer) {
    let inside = window(" any key ends this ", (37, HELP.len() as u16), area, buffer);
    for (text, y) in HELP.iter().zip(inside.y..inside.bottom()) {
        let style = if text.starts_with('!') { look.alarm() } else { Style::new() };
        buffer.set_stringn(inside.x, y, text, inside.width.into(), style);
    }
}

fn draw_sort(at: usize, look: &Look, area: Rect, buffer: &mut Buffer) {
    let inside = window(" Sort by ", (48, Column::ALL.len() as u16), area, buffer);
    let height = usize::from(inside.height);
    let first = (at + 1).saturating_sub(height);
    let all = Column::ALL.iter().enumerate().skip(first).take(height);
    for ((i, column), y) in all.zip(inside.y..) {
        let line = Line::from(format!("{:<9}  {}", column.head().0, column.about()));
        buffer.set_line(inside.x, y, &line, inside.width);
        if i == at {
            buffer.set_style(Rect { y, height: 1, ..inside }, look.bar(Color::Cyan));
        }
    }
}
