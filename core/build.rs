// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the core natively and makes Rust bindings of its structures.

use std::{env, path::PathBuf};

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    for entry in ["", "policies"] {
        for file in std::fs::read_dir(here.join(entry)).expect("the core's sources").flatten() {
            if file.path().extension().is_some_and(|e| e == "h" || e == "c") {
                println!("cargo:rerun-if-changed={}", file.path().display());
            }
        }
    }
    // The simulator's inner loop: optimised in every profile.
    cc::Build::new()
        .file("ob_native.c")
        .opt_level(3)
        .flag("-fno-semantic-interposition")
        .flag("-Wno-unused-parameter")
        .compile("onbeat_core");
    // For `kernel`, whose BPF build includes these headers (DEP_ONBEAT_CORE_INCLUDE).
    println!("cargo:include={}", here.display());
    bindgen::Builder::default()
        .header("ob_native.c")
        .allowlist_function("onbeat_.*")
        .allowlist_type("ob.*|ob_.*")
        .allowlist_var("OB_.*")
        .layout_tests(false)
        .derive_default(true)
        .wrap_unsafe_ops(true)
        .prepend_enum_name(false)
        .generate()
        .expect("bindings of the core (libclang is needed: `make setup`)")
        .write_to_file(out.join("core.rs"))
        .expect("OUT_DIR is writable");
}
