// SPDX-License-Identifier: GPL-2.0-only
//! What the tests of the verbs share.

#![allow(dead_code)] // each test program uses its own part

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

use serde_json::Value;

/// The folder of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `onbeat`.
pub fn onbeat(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onbeat")).args(words).output().unwrap()
}

/// Builds, once, what is shipped to guests.
pub fn build_the_guests_programs() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        // Of the whole workspace, and with its tests: else they are other programs, with other features of their
        // libraries, which would take turns with those that `cargo test` puts there, and guests boot now these, now
        // those.
        cargo.args(["build", "--quiet", "--workspace", "--bins", "--tests"]);
        if Path::new(env!("CARGO_BIN_EXE_onbeat")).parent().unwrap().ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the guest's programs do not build");
    });
}

/// What a program said to stdout.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a program complained about.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON object on stdout.
pub fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", complaint(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The JSON object on stdout of a verb that answered, whatever its answer was.
pub fn answered(output: &Output) -> Value {
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", complaint(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A task-set file of its own folder.
pub struct File {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    /// With these contents.
    pub fn new(contents: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.toml");
        fs::write(&path, contents).unwrap();
        Self { folder, path }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Path of another file in its folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A short task set: two movies on two CPUs, best effort of three processes.
pub fn short(policies: &str) -> File {
    File::new(format!(
        "cpus = 2\nduration = \"1s\"\npolicies = [{policies}]\n\
         [[task]]\nname = \"movie\"\ncount = 2\nperiod = \"41ms\"\nbudget = \"25ms\"\n\
         work = {{ uniform = [\"10ms\", \"30ms\"] }}\n[best_effort]\ncount = 2\ngenerators = 1\n"
    ))
}
