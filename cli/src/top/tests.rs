// SPDX-License-Identifier: GPL-2.0-only
//! What is shown of which state, and what keys do.

use onbeat_model::protocol::{Cpu, Reservation};
use onbeat_model::units::{MS, SEC};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::columns::{Column, fitting};
use super::state::{Mode, Seen, Snapshot};
use super::*;

fn reservation(id: u32, name: &str) -> Reservation {
    Reservation {
        id,
        name: name.into(),
        pid: 100 + id,
        uid: 1000,
        policy: "g-edzl+cbs-predict".into(),
        cpus: vec![0, 1],
        budget_ns: 10 * MS,
        period_ns: 40 * MS,
        deadline_ns: 40 * MS,
        jobs: 1000,
        misses: 7,
        owed: 900,
        threads: 3,
        age_ns: 40 * SEC,
        consumed_ns: 4 * SEC,
        ..Default::default()
    }
}

fn snapshot(reservations: Vec<Reservation>) -> Snapshot {
    let cpu =
        |cpu| Cpu { cpu, set: "default".into(), reserved: 0.5, served_ns: SEC, idle_ns: Some(SEC) };
    Snapshot {
        policy: "g-edzl+cbs-predict".into(),
        cpus: vec![0, 1],
        reserved: 1.0,
        free: 0.9,
        reservations,
        best_effort: "fair".into(),
        time_ns: 10 * SEC,
        per_cpu: vec![cpu(0), cpu(1)],
        users: [(1000, "anna".to_owned())].into(),
        ..Default::default()
    }
}

fn state(reservations: Vec<Reservation>) -> State {
    let mut state = State::new(Duration::from_secs(1), true);
    state.take(Seen::Status(Box::new(snapshot(reservations))));
    state
}

fn three() -> State {
    state(vec![reservation(1, "mpv"), reservation(2, "jackd"), reservation(3, "games")])
}

fn buffer(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..area.height).map(line).collect()
}

fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    lines(&buffer(state, width, height))
}

/// Where a line has that part.
fn line_with(lines: &[String], part: &str) -> usize {
    let at = lines.iter().position(|line| line.contains(part));
    at.unwrap_or_else(|| panic!("no {part} in\n{}", lines.join("\n")))
}

fn press(state: &mut State, keys: impl IntoIterator<Item = KeyCode>) -> Next {
    let press = |_, key| state.key(KeyEvent::new(key, KeyModifiers::NONE), 10);
    keys.into_iter().fold(Next::Go, press)
}

fn write(state: &mut State, text: &str) -> Next {
    press(state, text.chars().map(KeyCode::Char))
}

fn names(state: &State) -> Vec<String> {
    state.rows().into_iter().map(|row| row.of.name).collect()
}

#[test]
fn the_reservation_with_a_late_owed_job_is_marked_and_no_other() {
    let broken = Reservation { owed_late: 2, ..reservation(2, "jackd") };
    let state = state(vec![reservation(1, "mpv"), broken]);
    for (width, height) in [(80, 24), (40, 10), (200, 60)] {
        let buffer = buffer(&state, width, height);
        let lines = lines(&buffer);
        let heads = line_with(&lines, "PROGRAM");
        let late = heads + line_with(&lines[heads..], "jackd");
        let marks = |y: &usize| lines[*y].starts_with('!');
        assert_eq!(
            (0..lines.len()).filter(marks).collect::<Vec<_>>(),
            [late],
            "{}",
            lines.join("\n")
        );
        let mark = &buffer[(0, late as u16)];
        assert!(mark.fg == Color::Red && mark.modifier.contains(Modifier::BOLD));
        let end = lines[heads].find("OWED LATE").unwrap() + "OWED LATE".len();
        assert!(lines[late][..end].ends_with(" 2"), "{}", lines[late]);
    }
}

#[test]
fn at_80_columns_user_program_budget_period_use_jobs_and_late_ones_stand_under_their_heads() {
    let lines = screen(&three(), 80, 24);
    let heads = line_with(&lines, "PROGRAM");
    let words: Vec<&str> = lines[heads].split_whitespace().collect();
    let all = ["ID", "USER", "PROGRAM", "PERIOD", "BUDGET", "USED", "JOBS", "LATE", "OWED", "LATE"];
    assert_eq!(words, all, "{}", lines[heads]);
    // 4 s in 40 s are a tenth of a CPU, and 10 ms of 40 ms a quarter.
    let words: Vec<&str> = lines[heads + 1].split_whitespace().collect();
    assert_eq!(words, ["1", "anna", "mpv", "40ms", "10ms", "40.0", "1000", "7", "0"]);
    for (column, x, wide) in fitting(80) {
        if !column.is_text() {
            let end = usize::from(x + wide);
            assert_ne!(&lines[heads][end - 1..end], " ", "{column:?}: {}", lines[heads]);
            assert_ne!(&lines[heads + 1][end - 1..end], " ", "{column:?}: {}", lines[heads + 1]);
        }
    }
}

#[test]
fn use_is_what_was_used_between_two_looks_and_of_a_new_one_since_it_was_granted() {
    let mut state = state(vec![reservation(1, "mpv")]);
    let old =
        Reservation { consumed_ns: 4 * SEC + 125 * MS, age_ns: 41 * SEC, ..reservation(1, "mpv") };
    let new = Reservation { consumed_ns: 50 * MS, age_ns: SEC / 2, ..reservation(2, "jackd") };
    let mut now = Snapshot { time_ns: 11 * SEC, ..snapshot(vec![old.clone(), new]) };
    // 18 % of the second reservations, 61 % nothing: so 21 % others.
    (now.per_cpu[0].served_ns, now.per_cpu[0].idle_ns) = (SEC + 180 * MS, Some(SEC + 610 * MS));
    state.take(Seen::Status(Box::new(now)));
    let used: Vec<f64> = state.rows().iter().map(|row| row.used()).collect();
    // An eighth of a CPU of a quarter; a tenth of a CPU of a quarter.
    assert!((used[0] - 0.5).abs() < 1e-9 && (used[1] - 0.4).abs() < 1e-9, "{used:?}");
    let load = state.loads()[0];
    assert!((load.served.unwrap() - 0.18).abs() < 1e-9, "{load:?}");
    assert!((load.others.unwrap() - 0.21).abs() < 1e-9, "{load:?}");
    let lines = screen(&state, 80, 24);
    let cpu = &lines[line_with(&lines, "  0[")];
    assert!(cpu.contains("  18/ 50%  21%"), "{cpu}");
    // Of the same number, but another.
    let other = Reservation { pid: 9, age_ns: SEC, consumed_ns: 200 * MS, ..old };
    state.take(Seen::Status(Box::new(Snapshot { time_ns: 12 * SEC, ..snapshot(vec![other]) })));
    assert!((state.rows()[0].used() - 0.8).abs() < 1e-9, "{:?}", state.rows());
}

#[test]
fn a_bar_is_as_long_as_what_is_used_and_has_a_mark_where_what_is_reserved_ends() {
    let mut state = three();
    let mut now = Snapshot { time_ns: 11 * SEC, ..snapshot(vec![]) };
    (now.per_cpu[1].served_ns, now.per_cpu[1].idle_ns) = (SEC + SEC / 4, Some(SEC + SEC / 2));
    now.per_cpu[1].reserved = 0.75;
    state.take(Seen::Status(Box::new(now)));
    let lines = screen(&state, 40, 12);
    let bar = lines[line_with(&lines, "  1[")].split(['[', ']']).nth(1).unwrap().to_owned();
    let of = |c| bar.matches(c).count();
    assert_eq!(
        (of('#'), of(':')),
        ((bar.len() + 2) / 4, bar.len().div_ceil(2) - (bar.len() + 2) / 4),
        "{bar}"
    );
    let mark = bar.find('|').unwrap() as f64;
    assert!((mark + 1.0 - 0.75 * bar.len() as f64).abs() <= 0.5, "{bar}");
}

#[test]
fn at_40_columns_program_use_and_broken_promises_are_still_there() {
    let lines = screen(&three(), 40, 12);
    for part in ["PROGRAM", "USED", "OWED LATE", "games", "  0[", "  1[", "Quit"] {
        line_with(&lines, part);
    }
}

#[test]
fn a_tall_screen_has_more_rows_and_a_wide_one_all_columns() {
    let many: Vec<_> = (0..100).map(|id| reservation(id, "mpv")).collect();
    let state = state(many);
    let rows =
        |height| screen(&state, 80, height).iter().filter(|line| line.contains(" anna  ")).count();
    assert!(rows(24) >= 15 && rows(60) == rows(24) + 36, "{} {}", rows(24), rows(60));
    assert_eq!(rows(24), draw::rows_of(&state, ratatui::layout::Rect::new(0, 0, 80, 24)));
    assert_eq!(fitting(200).iter().map(|c| c.0).collect::<Vec<_>>(), Column::ALL);
}

#[test]
fn of_64_cpus_those_without_room_are_summed_up_and_half_of_the_screen_is_for_reservations() {
    let mut state = State::new(Duration::from_secs(1), true);
    let mut now = snapshot(vec![reservation(1, "mpv")]);
    now.per_cpu = (0..64).map(|cpu| Cpu { cpu, ..Default::default() }).collect();
    state.take(Seen::Status(Box::new(now)));
    let lines = screen(&state, 80, 24);
    // Ten lines of two.
    let more = line_with(&lines, "45 more CPUs");
    assert_eq!(line_with(&lines, "PROGRAM"), more + 1);
    assert!(more < 12, "{}", lines.join("\n"));
}

#[test]
fn without_a_service_it_says_so_waits_and_comes_back_with_it() {
    let mut state = three();
    let words = "no reservation service at /run/onbeat/control.sock: have it started";
    state.take(Seen::Down(words.into()));
    let lines = screen(&state, 80, 24);
    let at = line_with(&lines, "no reservation service at");
    assert!(line_with(&lines, "Waiting for it") > at);
    assert!(!lines.iter().any(|line| line.contains("jackd")), "nothing old stands there");
    assert!(screen(&state, 40, 10).iter().any(|line| line.contains("Waiting for it")));
    state.take(Seen::Status(Box::new(snapshot(vec![reservation(1, "mpv")]))));
    let lines = screen(&state, 80, 24);
    line_with(&lines, "mpv");
    assert!(!lines.iter().any(|line| line.contains("Waiting")));
}

#[test]
fn where_nothing_is_reserved_it_says_how_to() {
    line_with(&screen(&state(vec![]), 80, 24), "onbeat run --period");
}

#[test]
fn without_colours_every_cell_has_the_terminals_own() {
    let mut state = state(vec![Reservation { owed_late: 1, ..reservation(1, "mpv") }]);
    state.colour = false;
    for mode in [Mode::List, Mode::Help, Mode::Sort(3), Mode::Filter] {
        state.mode = mode;
        let buffer = buffer(&state, 80, 24);
        assert!(
            buffer.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset))
        );
    }
}

#[test]
fn a_name_reaches_the_terminal_without_its_control_characters_and_a_long_one_is_cut_off() {
    let state =
        state(vec![reservation(1, "a\x1b[2Jb\u{7}\n"), reservation(2, &"long ".repeat(20))]);
    let lines = screen(&state, 80, 24);
    line_with(&lines, "a[2Jb ");
    let cut = &lines[line_with(&lines, "long long")];
    assert!(cut.contains('~'), "{cut}");
}

#[test]
fn q_f10_and_ctrl_c_end_it_and_while_a_filter_is_written_q_is_a_letter() {
    for key in [KeyCode::Char('q'), KeyCode::F(10)] {
        assert_eq!(press(&mut three(), [key]), Next::Quit);
    }
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for before in ["", "/", "h", "d"] {
        let mut state = three();
        write(&mut state, before);
        assert_eq!(state.key(ctrl_c, 10), Next::Quit);
    }
    let mut state = three();
    assert_eq!(write(&mut state, "/q"), Next::Go);
    assert_eq!(state.filter, "q");
}

#[test]
fn a_filter_leaves_those_with_the_words_in_their_names_and_esc_shows_all() {
    let mut state = three();
    press(&mut state, [KeyCode::End]);
    write(&mut state, "/JA");
    assert_eq!((names(&state), state.selected), (vec!["jackd".to_owned()], 0));
    press(&mut state, [KeyCode::Enter]);
    assert_eq!(state.mode, Mode::List);
    assert!(screen(&state, 80, 24).iter().any(|line| line.contains("Filter: JA")));
    press(&mut state, [KeyCode::F(4), KeyCode::Backspace, KeyCode::Backspace]);
    assert_eq!(names(&state).len(), 3);
    write(&mut state, "nobody");
    line_with(&screen(&state, 80, 24), "No reservation has \"nobody\"");
    press(&mut state, [KeyCode::Esc]);
    assert_eq!((names(&state).len(), &state.mode), (3, &Mode::List));
    // By user, policy and process, too.
    for (text, left) in [("anna", 3), ("cbs-predict", 3), ("102", 1)] {
        state.filter = text.into();
        assert_eq!(names(&state).len(), left, "{text}");
    }
}

#[test]
fn rows_are_sorted_by_the_chosen_column_counts_with_the_greatest_first() {
    let late = |id, name: &str, misses| Reservation { misses, ..reservation(id, name) };
    let mut state = state(vec![late(1, "b", 5), late(2, "c", 9), late(3, "a", 7)]);
    let until = |state: &mut State, column: Column| {
        let steps = column.index() as i64 - state.sort.index() as i64;
        let key = if steps < 0 { '<' } else { '>' };
        press(state, std::iter::repeat_n(KeyCode::Char(key), steps.unsigned_abs() as usize));
        names(state).concat()
    };
    assert_eq!(until(&mut state, Column::Program), "abc");
    assert_eq!(until(&mut state, Column::Late), "cab");
    write(&mut state, "I");
    assert_eq!(names(&state).concat(), "bac");
    assert_eq!(until(&mut state, Column::Id), "bca");
    // The same by the menu.
    press(&mut state, [KeyCode::F(6)]);
    let down = std::iter::repeat_n(KeyCode::Down, Column::Late.index());
    press(&mut state, down);
    line_with(&screen(&state, 80, 24), "Sort by");
    press(&mut state, [KeyCode::Enter]);
    assert_eq!(names(&state).concat(), "cab");
    assert_eq!(press(&mut state, std::iter::repeat_n(KeyCode::Char('>'), 99)), Next::Go);
}

#[test]
fn the_marked_row_moves_by_lines_and_pages_stays_in_the_list_and_is_seen() {
    let mut state = state((0..100).map(|id| reservation(id, &format!("program-{id}"))).collect());
    let moves = [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::PageDown, 11),
        (KeyCode::PageDown, 21),
        (KeyCode::PageUp, 11),
        (KeyCode::End, 99),
        (KeyCode::Down, 99),
        (KeyCode::Up, 98),
        (KeyCode::Home, 0),
        (KeyCode::PageUp, 0),
    ];
    for (key, row) in moves {
        press(&mut state, [key]);
        assert_eq!(state.selected, row, "{key:?}");
        line_with(&screen(&state, 80, 24), &format!(" program-{row} "));
    }
    press(&mut state, [KeyCode::End]);
    state.take(Seen::Status(Box::new(snapshot(vec![reservation(1, "mpv")]))));
    assert_eq!(state.selected, 0, "others have gone");
}

#[test]
fn the_mark_stays_with_its_reservation_when_rows_are_sorted_anew_or_come_and_go() {
    let one = |id, misses| Reservation { misses, ..reservation(id, &format!("program-{id}")) };
    let take = |state: &mut State, all: Vec<Reservation>| {
        state.take(Seen::Status(Box::new(snapshot(all))));
        state.rows().get(state.selected).map(|row| row.of.id)
    };
    let mut state = state(vec![one(2, 5), one(4, 9), one(6, 7)]);
    press(&mut state, [KeyCode::Down]);
    // One comes before it, one goes.
    assert_eq!(take(&mut state, vec![one(1, 0), one(2, 5), one(4, 9), one(6, 7)]), Some(4));
    assert_eq!(take(&mut state, vec![one(4, 9), one(6, 7)]), Some(4));
    // By late jobs it is the first, and later the last.
    let steps = Column::Late.index() - state.sort.index();
    press(&mut state, std::iter::repeat_n(KeyCode::Char('>'), steps));
    assert_eq!((state.selected, names(&state)[0].as_str()), (0, "program-4"));
    assert_eq!(take(&mut state, vec![one(4, 9), one(6, 10), one(8, 11)]), Some(4));
    assert_eq!(state.selected, 2);
    write(&mut state, "I");
    assert_eq!(state.selected, 0);
    line_with(&screen(&state, 80, 24), "4 (program-4): process 104");
    // What another process has under its number is not it.
    let other = Reservation { pid: 9, ..one(4, 12) };
    assert_eq!(take(&mut state, vec![other, one(6, 10), one(8, 11)]), Some(6));
    // While there is no service nothing is marked; it is again when all is back.
    state.take(Seen::Down("gone".into()));
    assert_eq!(take(&mut state, vec![one(1, 0), one(6, 10)]), Some(6));
}

#[test]
fn space_pauses_until_it_is_pressed_again_which_looks_at_once() {
    let mut state = three();
    assert_eq!(write(&mut state, " "), Next::Go);
    assert!(state.paused);
    line_with(&screen(&state, 80, 24), "PAUSED");
    assert_eq!(write(&mut state, " "), Next::Look);
    assert!(!state.paused);
}

#[test]
fn the_time_between_looks_is_written_in_seconds_within_bounds_and_nonsense_changes_nothing() {
    for (keys, seconds) in
        [("d2.5", 2.5), ("s10", 10.0), ("d0", 0.1), ("s99999", 3600.0), ("d1.2.3", 1.0), ("d", 1.0)]
    {
        let mut state = three();
        write(&mut state, keys);
        let next = press(&mut state, [KeyCode::Enter]);
        assert_eq!(state.delay.as_secs_f64(), seconds, "{keys}");
        assert_eq!(state.mode, Mode::List);
        assert_eq!(next == Next::Look, seconds != 1.0);
    }
}

#[test]
fn help_names_every_key_and_any_key_ends_it() {
    let mut state = three();
    press(&mut state, [KeyCode::F(1)]);
    let text = screen(&state, 80, 24).join("\n");
    for key in ["q, F10", "/, F4", "F6", "< >", "PgDn", "Space", "d, s"] {
        assert!(text.contains(key), "{key}\n{text}");
    }
    write(&mut state, "x");
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn the_marked_reservation_has_what_no_column_has_room_for() {
    let one = Reservation { donated_ns: 3 * MS, slack_ns: 7 * MS, ..reservation(1, "mpv") };
    let lines = screen(&state(vec![one]), 80, 24);
    for part in [
        "process 101 of anna, 3 threads; g-edzl+cbs-predict on CPUs 0-1",
        "gave 3ms",
        "7ms of slack",
        "owed jobs: 0 of 900 late",
    ] {
        line_with(&lines, part);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_the_size_the_figures_and_the_keys_it_draws(
        (width, height) in (0u16..150, 0u16..60),
        cpus in 0u32..65,
        figures in proptest::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 12),
        count in 0u32..40,
        keys in proptest::collection::vec(prop_oneof![
            Just(KeyCode::F(6)), Just(KeyCode::F(1)), Just(KeyCode::Down), Just(KeyCode::End), Just(KeyCode::Esc),
            Just(KeyCode::PageDown), Just(KeyCode::Enter), any::<char>().prop_map(KeyCode::Char),
            "[ q<>/dI1]".prop_map(|c| KeyCode::Char(c.chars().next().unwrap())),
        ], 0..12),
    ) {
        let mut state = State::new(Duration::from_secs(1), true);
        for look in 0..2 {
            let mut now = snapshot((0..count).map(|id| Reservation {
                budget_ns: figures[0], period_ns: figures[1], jobs: figures[2], misses: figures[3], owed: figures[4],
                owed_late: figures[5].wrapping_mul(look), consumed_ns: figures[6].wrapping_mul(look),
                tardiness_max_ns: figures[7], donated_ns: figures[8], slack_ns: figures[9], age_ns: figures[10],
                ..reservation(id, "\u{1f3b5} wide \u{4e2d}\u{6587}\u{5b57}")
            }).collect());
            now.time_ns = figures[11].wrapping_add(look);
            now.per_cpu = (0..cpus)
                .map(|cpu| Cpu { cpu, served_ns: figures[6].wrapping_mul(look), reserved: 1.5, ..Default::default() })
                .collect();
            state.take(Seen::Status(Box::new(now)));
        }
        for key in keys {
            state.key(KeyEvent::new(key, KeyModifiers::NONE), height.into());
        }
        screen(&state, width, height);
    }
}
