// SPDX-License-Identifier: GPL-2.0-only
//! Gives the shared library a soname, so that programs find the version of the interface that they were linked with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libonbeat_client.so.{major}");
}
