// SPDX-License-Identifier: GPL-2.0-only
//! What the simulator shows, of itself and of the core in it: one program, for to compile and link one takes seconds.
//! `cargo test --release --workspace --test sim NAME::` runs one file's. `promise` and `resources` are apart.

mod common;

mod accepted;
mod account;
mod auto;
mod beats;
mod berate;
mod best;
mod brief;
mod budgets;
mod capacities;
mod cheats;
mod choose;
mod crowd;
mod drawn;
mod fair;
mod figures;
mod frames;
mod groups;
mod guarantees;
mod hsb;
mod hsb_cpus;
mod idle;
mod late;
mod leaving;
mod lend;
mod limit;
mod linux24;
mod marks;
mod oracle;
mod order;
mod owed;
mod pinned;
mod plan;
mod reorder;
mod resize;
mod schedules;
mod sets;
mod srt;
mod swap;
mod timers;
mod turns;
mod verdicts;
mod wake;
mod windows;

#[test]
fn no_file_of_tests_is_left_out() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let rust = path.extension().is_some_and(|ending| ending == "rs");
        assert!(!rust || name == "main" || main.contains(&format!("mod {name};")), "{name}");
    }
}
