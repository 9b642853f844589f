// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the kernel shell, with the core in it, to BPF and generates its skeleton.

use std::{env, path::PathBuf};

fn main() {
    let core =
        env::var("DEP_ONBEAT_CORE_INCLUDE").expect("the core's build script names its folder");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let parts = ["policies", "orders", "place", "choose"].map(|part| format!("{core}/{part}"));
    for dir in parts.into_iter().chain([core.clone(), "src/bpf".into()]) {
        for file in std::fs::read_dir(dir).expect("sources").flatten() {
            println!("cargo:rerun-if-changed={}", file.path().display());
        }
    }
    // -fno-builtin: merged zero stores would become a memset, which the verifier refuses.
    scx_cargo::BpfBuilder::new()
        .expect("clang 19 for BPF (`make setup` installs it)")
        .add_include_path(&core)
        .add_cflag("-fno-builtin")
        .add_cflag("-mcpu=v4")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()
        .expect("the kernel shell compiles to BPF");
    bindgen::Builder::default()
        .header("src/bpf/shell.h")
        .clang_args(["-I", &core])
        .allowlist_type("shell.*")
        .blocklist_type("ob|ob_.*|u(8|32|64)|s64")
        .raw_line("use onbeat_core::ffi::*;")
        .layout_tests(false)
        .prepend_enum_name(false)
        .derive_default(true)
        .generate()
        .expect("bindings of the shell's structures")
        .write_to_file(out.join("shell.rs"))
        .expect("OUT_DIR is writable");
}
