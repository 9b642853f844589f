// SPDX-License-Identifier: GPL-2.0-only
//! Reads the registry of server policies in the core, so that a policy is registered once.

use std::{env, fs, path::PathBuf};

const REGISTRY: &str = "../core/policies/registry.h";

fn main() {
    println!("cargo:rerun-if-changed={REGISTRY}");
    println!("cargo:rerun-if-changed=build.rs");
    let text = fs::read_to_string(REGISTRY).expect("the core's registry of policies");
    let (_, table) = text.split_once("#define OB_POLICIES(X)").expect("its table, OB_POLICIES");
    // The macro goes on as long as lines end in a backslash.
    let mut servers = String::from("servers! {\n");
    let mut entry = String::new();
    for line in table.lines().skip(1) {
        entry.push_str(line.trim().trim_end_matches('\\').trim_end());
        if entry.ends_with(')') {
            servers += &server(&entry);
            entry.clear();
        } else {
            entry.push(' ');
        }
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    servers += "}\n";
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("servers.rs"), servers).expect("OUT_DIR is writable");
}

/// `X(CBS_HARD, cbs_hard, "cbs-hard", 1, 1, "waits …")` becomes `CbsHard "cbs-hard" true "waits …",`.
fn server(entry: &str) -> String {
    let fields = entry.strip_prefix("X(").and_then(|e| e.strip_suffix(')'));
    let fields: Vec<&str> = fields.map_or(vec![], |f| f.splitn(7, ',').map(str::trim).collect());
    let [name, _, text, _, isolates @ ("0" | "1"), _, about] = fields[..] else {
        panic!(
            "{REGISTRY}: \"{entry}\" is no X(NAME, prefix, \"name\", enforced, isolates, lends, \"about\")"
        );
    };
    let variant: String = name
        .split('_')
        .flat_map(|word| word[..1].chars().chain(word[1..].chars().map(|c| c.to_ascii_lowercase())))
        .collect();
    format!("    {variant} {text} {} {about},\n", isolates == "1")
}
