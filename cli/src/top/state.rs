// SPDX-License-Identifier: GPL-2.0-only
//! What `onbeat top` shows, and what keys and answers of the service make of it. Nothing here asks, draws or waits.

use std::collections::BTreeMap;
use std::time::Duration;

use onbeat_model::protocol::{Cpu, Reservation, Set};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::columns::Column;

/// The shortest and the longest time between two looks, s.
pub const DELAYS: (f64, f64) = (0.1, 3600.0);

/// An answer of the service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Policy of the first set.
    pub policy: String,
    /// CPUs on line.
    pub cpus: Vec<u32>,
    /// CPUs that are reserved.
    pub reserved: f64,
    /// CPUs that still can be.
    pub free: f64,
    /// All of them.
    pub reservations: Vec<Reservation>,
    /// The sets of CPUs.
    pub sets: Vec<Set>,
    /// Order of best effort.
    pub best_effort: String,
    /// The one that is kept for interrupts.
    pub interrupt_cpu: Option<u32>,
    /// When it was so, ns; 0: an old service, which does not tell.
    pub time_ns: u64,
    /// What has had each CPU.
    pub per_cpu: Vec<Cpu>,
    /// Names of users.
    pub users: BTreeMap<u32, String>,
}

/// What a look at the service brought.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// It answers.
    Status(Box<Snapshot>),
    /// It does not: why.
    Down(String),
}

/// What is to be done after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing but drawing.
    Go,
    /// The service is to be asked at once.
    Look,
    /// The end.
    Quit,
}

/// What keys mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Moves and commands.
    List,
    /// A filter is being written.
    Filter,
    /// A column is being chosen.
    Sort(usize),
    /// A time between looks is being written.
    Delay(String),
    /// The keys are shown.
    Help,
}

/// A reservation and its rates.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What the service tells.
    pub of: Reservation,
    /// Its user's name.
    pub user: String,
    /// CPUs that it has used since the look before, or since it was granted if it is new.
    pub rate: f64,
    /// Owed jobs that were late since the look before.
    pub broken: u64,
}

impl Row {
    /// What was used of the budget, 1 for all of it.
    pub fn used(&self) -> f64 {
        self.rate * self.of.period_ns as f64 / self.of.budget_ns.max(1) as f64
    }

    /// Mean tardiness of a job, ns.
    pub fn tardiness(&self) -> u64 {
        self.of.tardiness_sum_ns / self.of.jobs.max(1)
    }
}

/// A CPU's time since the look before, in parts of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Its number.
    pub cpu: u32,
    /// What is reserved of it.
    pub reserved: f64,
    /// What reservations used; `None` before there are two looks.
    pub served: Option<f64>,
    /// What best effort and all else used; `None` likewise, or if the kernel does not tell.
    pub others: Option<f64>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The last answer, as long as there is a service.
    pub now: Option<Snapshot>,
    /// The one before that.
    before: Option<Snapshot>,
    /// Why there is none.
    pub down: Option<String>,
    /// By what rows are ordered.
    pub sort: Column,
    /// The greatest first.
    pub descending: bool,
    /// Rows have this in their names.
    pub filter: String,
    /// What keys mean.
    pub mode: Mode,
    /// The row that is marked, from 0.
    pub selected: usize,
    /// The reservation in it, by its ID and process: it is that one which stays marked, wherever its row goes.
    marked: Option<(u32, u32)>,
    /// Nobody looks.
    pub paused: bool,
    /// Time between two looks.
    pub delay: Duration,
    /// Whether there are colours.
    pub colour: bool,
}

impl State {
    /// Nothing has been seen yet.
    pub fn new(delay: Duration, colour: bool) -> Self {
        Self {
            now: None,
            before: None,
            down: None,
            sort: Column::Id,
            descending: false,
            filter: String::new(),
            mode: Mode::List,
            selected: 0,
            marked: None,
            paused: false,
            delay,
            colour,
        }
    }

    /// Takes an answer.
    pub fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Status(snapshot) => {
                self.before = self.now.replace(*snapshot);
                self.down = None;
            }
            Seen::Down(why) => {
                (self.now, self.before) = (None, None);
                self.down = Some(why);
            }
        }
        self.find();
    }

    /// Whether there were two looks.
    pub fn has_rates(&self) -> bool {
        self.down.is_some() || self.before.is_some()
    }

    /// From the look before to the last one, ns.
    fn passed(&self) -> Option<(&Snapshot, u64)> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        let passed = now.time_ns.checked_sub(before.time_ns).filter(|ns| *ns > 0)?;
        Some((before, passed))
    }

    /// The reservations that pass the filter, in their order.
    pub fn rows(&self) -> Vec<Row> {
        let Some(now) = &self.now else { return Vec::new() };
        let mut rows: Vec<Row> = now.reservations.iter().map(|r| self.row(now, r)).collect();
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        rows.retain(|row| {
            let r = &row.of;
            let names = [&r.name, &row.user, &r.policy, &r.set, &r.group];
            names.into_iter().any(|name| has(name)) || has(&r.pid.to_string())
        });
        rows.sort_by(|a, b| {
            let order = self.sort.compare(a, b);
            if self.descending { order.reverse() } else { order }.then(a.of.id.cmp(&b.of.id))
        });
        rows
    }

    fn row(&self, now: &Snapshot, r: &Reservation) -> Row {
        let same = |b: &&Reservation| (b.id, b.pid) == (r.id, r.pid) && b.age_ns <= r.age_ns;
        let earlier = self
            .passed()
            .and_then(|(before, passed)| Some((before.reservations.iter().find(same)?, passed)));
        let (used, passed, late) = match earlier {
            Some((b, passed)) => (r.consumed_ns.saturating_sub(b.consumed_ns), passed, b.owed_late),
            None => (r.consumed_ns, r.age_ns.max(r.period_ns).max(1), r.owed_late),
        };
        Row {
            of: Reservation {
                name: r.name.chars().filter(|c| !c.is_control()).collect(),
                ..r.clone()
            },
            user: now.users.get(&r.uid).cloned().unwrap_or_else(|| r.uid.to_string()),
            rate: used as f64 / passed as f64,
            broken: r.owed_late.saturating_sub(late),
        }
    }

    /// The CPUs.
    pub fn loads(&self) -> Vec<Load> {
        let Some(now) = &self.now else { return Vec::new() };
        let passed = self.passed();
        let load = |cpu: &Cpu| {
            let earlier = passed.and_then(|(before, passed)| {
                Some((before.per_cpu.iter().find(|b| b.cpu == cpu.cpu)?, passed as f64))
            });
            let part = |ns: u64, passed: f64| (ns as f64 / passed).min(1.0);
            let served = earlier.and_then(|(b, passed)| {
                Some(part(cpu.served_ns.checked_sub(b.served_ns)?, passed))
            });
            let others = earlier.and_then(|(b, passed)| {
                let idle = part(cpu.idle_ns?.checked_sub(b.idle_ns?)?, passed);
                Some((1.0 - idle - served?).max(0.0))
            });
            Load { cpu: cpu.cpu, reserved: cpu.reserved, served, others }
        };
        now.per_cpu.iter().map(load).collect()
    }

    /// Marks a row, or the last one if there are not so many.
    fn select(&mut self, row: usize) {
        let rows = self.rows();
        self.selected = row.min(rows.len().saturating_sub(1));
        // While there is none the marked one may come back.
        if let Some(row) = rows.get(self.selected) {
            self.marked = Some((row.of.id, row.of.pid));
        }
    }

    /// Rows have changed: marks the one with the same reservation, or what is in its place if that is gone.
    fn find(&mut self) {
        let same = |row: &Row| self.marked == Some((row.of.id, row.of.pid));
        let row = self.rows().iter().position(same);
        self.select(row.unwrap_or(self.selected));
    }

    /// A key is pressed while `page` rows are seen.
    pub fn key(&mut self, key: KeyEvent, page: usize) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::List) {
            Mode::List => return self.command(key.code, page.max(1)),
            Mode::Help => {
                if key.code == KeyCode::F(10) || key.code == KeyCode::Char('q') {
                    return Next::Quit;
                }
            }
            Mode::Filter => self.filter_key(key.code),
            Mode::Sort(at) => self.sort_key(key.code, at),
            Mode::Delay(text) => return self.delay_key(key.code, text),
        }
        self.find();
        Next::Go
    }

    fn command(&mut self, key: KeyCode, page: usize) -> Next {
        let at = self.selected;
        match key {
            KeyCode::Char('q') | KeyCode::F(10) => return Next::Quit,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/' | '\\') | KeyCode::F(4) => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::F(6) => self.mode = Mode::Sort(self.sort.index()),
            KeyCode::Char('<') => self.sort_by(self.sort.index().saturating_sub(1)),
            KeyCode::Char('>') => self.sort_by((self.sort.index() + 1).min(Column::ALL.len() - 1)),
            KeyCode::Char('I') => self.descending = !self.descending,
            KeyCode::Char('s' | 'd') => self.mode = Mode::Delay(String::new()),
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                return if self.paused { Next::Go } else { Next::Look };
            }
            KeyCode::Up => self.select(at.saturating_sub(1)),
            KeyCode::Down => self.select(at + 1),
            KeyCode::PageUp => self.select(at.saturating_sub(page)),
            KeyCode::PageDown => self.select(at + page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            _ => (),
        }
        self.find();
        Next::Go
    }

    fn sort_by(&mut self, index: usize) {
        self.sort = Column::ALL[index];
        self.descending = self.sort.most_first();
    }

    fn filter_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter | KeyCode::F(4) => return,
            KeyCode::Esc => return self.filter.clear(),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
            _ => (),
        }
        self.mode = Mode::Filter;
    }

    fn sort_key(&mut self, key: KeyCode, at: usize) {
        self.mode = Mode::Sort(match key {
            KeyCode::Esc | KeyCode::Char('q') => return,
            KeyCode::Enter | KeyCode::F(6) => return self.sort_by(at),
            KeyCode::Up => at.saturating_sub(1),
            KeyCode::Down => (at + 1).min(Column::ALL.len() - 1),
            KeyCode::Home | KeyCode::PageUp => 0,
            KeyCode::End | KeyCode::PageDown => Column::ALL.len() - 1,
            _ => at,
        });
    }

    fn delay_key(&mut self, key: KeyCode, mut text: String) -> Next {
        match key {
            KeyCode::Esc => return Next::Go,
            KeyCode::Enter => {
                let Ok(seconds) = text.parse::<f64>() else { return Next::Go };
                self.delay = Duration::from_secs_f64(seconds.clamp(DELAYS.0, DELAYS.1));
                return Next::Look;
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if c.is_ascii_digit() || c == '.' => text.push(c),
            _ => (),
        }
        self.mode = Mode::Delay(text);
        Next::Go
    }
}
