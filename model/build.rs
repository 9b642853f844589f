// SPDX-License-Identifier: GPL-2.0-only
//! Reads the core's registries of orders, of server policies and of orders of best effort, so that each is registered
//! once, and numbers of its headers.

use std::{env, fs, path::PathBuf};

const ORDERS: &str = "../core/orders/registry.h";
const SERVERS: &str = "../core/policies/registry.h";
const OTHERS: &str = "../core/others/registry.h";

/// Header, macro, its name here, type and meaning.
const NUMBERS: [[&str; 5]; 11] = [
    ["../core/ob_terms.h", "OB_MAX_CPUS", "CPUS", "u32", "CPUs of one machine."],
    [
        "../core/ob_terms.h",
        "OB_MAX_LEGS",
        "LEGS",
        "usize",
        "CPUs over which a reservation may be split.",
    ],
    ["../core/ob_terms.h", "OB_MAX_GROUPS", "GROUPS", "usize", "Groups of reservations."],
    ["../core/ob_terms.h", "OB_DEPTH", "DEPTH", "usize", "Groups inside each other."],
    ["../core/ob_terms.h", "OB_MAX_PURSES", "PURSES", "usize", "Purses."],
    ["../core/ob_terms.h", "OB_SEGMENTS", "SEGMENTS", "usize", "Amounts of time in a purse."],
    [
        "../core/ob_terms.h",
        "OB_MAX_ACCOUNTS",
        "ACCOUNTS",
        "usize",
        "Users who can hold reservations at a time.",
    ],
    [
        "../core/ob_owed.h",
        "OB_OWED_GRAIN",
        "OWED_GRAIN",
        "u64",
        "Budgets are enforced to within that, ns.",
    ],
    [
        "../core/ob_share.h",
        "OB_SHARE_QUANTUM",
        "SHARE_QUANTUM",
        "u64",
        "How much of its share best effort is served at a time, ns.",
    ],
    [
        "../core/place/registry.h",
        "OB_LATE_ISOLATED",
        "LATE_ISOLATED",
        "u64",
        "Who is later under an order and a policy that isolate begins anew, ns.",
    ],
    [
        "../core/orders/laxity.h",
        "OB_MARGIN",
        "LAXITY_MARGIN",
        "u64",
        "So much before its laxity ends a job may go first where slack is lent, ns.",
    ],
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let keys: String = entries(ORDERS, "OB_ORDERS").iter().map(key).collect();
    let servers: String = entries(SERVERS, "OB_POLICIES").iter().map(server).collect();
    let others: String = entries(OTHERS, "OB_OTHERS").iter().map(other).collect();
    let numbers: String = NUMBERS.iter().map(number).collect();
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("keys.rs"), format!("keys! {{\n{keys}}}\n")).expect("OUT_DIR is writable");
    fs::write(out.join("servers.rs"), format!("servers! {{\n{servers}}}\n"))
        .expect("OUT_DIR is writable");
    fs::write(out.join("others.rs"), format!("others! {{\n{others}}}\n"))
        .expect("OUT_DIR is writable");
    fs::write(out.join("numbers.rs"), numbers).expect("OUT_DIR is writable");
}

/// The macro `macro_name` of a header as a constant.
fn number([header, macro_name, name, kind, about]: &[&str; 5]) -> String {
    println!("cargo:rerun-if-changed={header}");
    let text = fs::read_to_string(header).expect("a header of the core");
    let (_, line) = text.split_once(&format!("#define {macro_name} ")).expect("its number");
    let word = line.split_whitespace().next().map(|v| v.trim_end_matches(['U', 'L']));
    let value: u64 = word.and_then(|v| v.parse().ok()).expect("a number");
    format!("/// {about}\npub const {name}: {kind} = {value};\n")
}

/// The `N` fields of each line `X(…)` of the macro `table` in `file`, which go on while lines end in a backslash. The
/// last is a text and may hold commas.
fn entries<const N: usize>(file: &str, table: &str) -> Vec<[String; N]> {
    println!("cargo:rerun-if-changed={file}");
    let text = fs::read_to_string(file).expect("a registry of the core");
    let (_, table) = text.split_once(&format!("#define {table}(X)")).expect("its table");
    let mut lines = Vec::new();
    let mut entry = String::new();
    for line in table.lines().skip(1) {
        entry.push_str(line.trim().trim_end_matches('\\').trim_end());
        if entry.ends_with(')') {
            lines.push(fields(file, &entry));
            entry.clear();
        } else {
            entry.push(' ');
        }
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    lines
}

fn fields<const N: usize>(file: &str, entry: &str) -> [String; N] {
    let fields = entry.strip_prefix("X(").and_then(|e| e.strip_suffix(')'));
    let fields: Vec<String> =
        fields.map_or(vec![], |f| f.splitn(N, ',').map(|f| f.trim().into()).collect());
    fields.try_into().unwrap_or_else(|_| {
        panic!("{file}: \"{entry}\" has not the {N} fields that its head names")
    })
}

/// `CBS_HARD` becomes `CbsHard`.
fn variant(name: &str) -> String {
    let word = |word: &str| word[..1].to_string() + &word[1..].to_ascii_lowercase();
    name.split('_').map(word).collect()
}

/// Yes or no.
fn flag(file: &str, field: &str) -> bool {
    match field {
        "0" => false,
        "1" => true,
        _ => panic!("{file}: \"{field}\" is neither 0 nor 1"),
    }
}

/// `X(EDF, edf, "edf", 1, 0, 0, 0, 1, "earliest …")` becomes `Edf "edf" true false false false 1 "earliest …",`.
fn key(
    [name, _, text, deadlines, laxity, chooses, ranks, isolates, about]: &[String; 9],
) -> String {
    let flags = [deadlines, laxity, chooses, ranks].map(|f| flag(ORDERS, f).to_string()).join(" ");
    format!("    {} {text} {flags} {isolates} {about},\n", variant(name))
}

/// `X(CBS_HARD, cbs_hard, "cbs-hard", 2, 1, NOT, "waits …")` becomes
/// `CbsHard "cbs-hard" true true true false "waits …",`.
fn server([name, _, text, enforced, isolates, lends, about]: &[String; 7]) -> String {
    let (enforces, rests) = (enforced != "0", enforced == "2");
    let (isolates, lends) = (flag(SERVERS, isolates), lends != "NOT");
    format!("    {} {text} {enforces} {rests} {isolates} {lends} {about},\n", variant(name))
}

/// `X(FAIR, fair, "fair", "who …")` becomes `Fair "fair" "who …",`.
fn other([name, _, text, about]: &[String; 4]) -> String {
    format!("    {} {text} {about},\n", variant(name))
}
