// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the core natively and makes Rust bindings of its structures.

use std::{env, path::PathBuf, process::Command};

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    for entry in ["", "policies", "orders", "others", "place", "choose"] {
        for file in std::fs::read_dir(here.join(entry)).expect("the core's sources").flatten() {
            if file.path().extension().is_some_and(|e| e == "h" || e == "c") {
                println!("cargo:rerun-if-changed={}", file.path().display());
            }
        }
    }
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    // The simulator's inner loop: optimised in every profile, by the compiler of the kernel's side where that is
    // installed: gcc 12 makes the loop 7 % slower.
    let clang = env::var("BPF_CLANG").unwrap_or("clang".into());
    let mut native = cc::Build::new();
    if env::var_os("CC").is_none() && Command::new(&clang).arg("--version").output().is_ok() {
        native.compiler(clang);
    }
    native
        .file("ob_native.c")
        .opt_level(3)
        .flag("-fno-semantic-interposition")
        .flag("-fno-strict-aliasing")
        .flag("-Wno-unused-parameter");
    native.clone().compile("onbeat_core");
    native.define("OB_COUNT_STEPS", None).compile("onbeat_core_counted");
    // Compiled for a thread sanitizer, which the test itself is.
    cc::Build::new()
        .file("ob_interleaved.c")
        .opt_level(1)
        .flag("-fsanitize=thread")
        .flag("-Wno-unused-parameter")
        .compile("onbeat_core_interleaved");
    // For `kernel`, whose BPF build includes these headers (DEP_ONBEAT_CORE_INCLUDE).
    println!("cargo:include={}", here.display());
    let bindings =
        |file| bindgen::Builder::default().header(file).layout_tests(false).wrap_unsafe_ops(true);
    let write = |bindings: bindgen::Builder, file| {
        bindings
            .generate()
            .expect("bindings of the core (libclang is needed: `make setup`)")
            .write_to_file(out.join(file))
            .expect("OUT_DIR is writable");
    };
    let core = bindings("ob_native.c")
        .allowlist_function("onbeat_.*")
        .allowlist_type("ob.*|ob_.*")
        .allowlist_var("OB_.*")
        .derive_default(true)
        .prepend_enum_name(false);
    write(core, "core.rs");
    let counted = bindings("ob_native.c")
        .clang_arg("-DOB_COUNT_STEPS")
        .allowlist_function("onbeat_counted_.*")
        .allowlist_recursively(false);
    write(counted, "counted.rs");
    let interleaved = bindings("ob_interleaved.c")
        .allowlist_function("onbeat_step_.*")
        .allowlist_recursively(false);
    write(interleaved, "interleaved.rs");
}
