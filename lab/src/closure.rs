// SPDX-License-Identifier: GPL-2.0-only
//! Which shared libraries a program needs.
//!
//! The program's own dynamic linker answers that best: `ld.so --list` resolves exactly as a start
//! would (RPATH, `ld.so.cache`, version checks) without running anything of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use elf::ElfBytes;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;

/// Everything beside the program file itself that must exist, at these paths, for it to start:
/// the dynamic linker and the libraries. Empty for static programs and for scripts.
///
/// # Errors
/// When the file cannot be read, is not a program for this machine, or a library is missing.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let bytes = fs::read(program)
        .with_context(|| format!("cannot read the program `{}`", program.display()))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let Some(linker) = interpreter(&bytes)
        .with_context(|| format!("`{}` is a damaged program file", program.display()))?
    else {
        return Ok(Vec::new());
    };
    if !linker.exists() {
        bail!(
            "`{}` is a program for another kind of machine: its dynamic linker `{}` is not here",
            program.display(),
            linker.display()
        );
    }
    let program = fs::canonicalize(program)?;
    // Libraries compiled for this very CPU model must not be picked: the guest's differs.
    let output = Command::new(&linker)
        .args(["--glibc-hwcaps-mask", "none", "--list"])
        .arg(&program)
        .env_remove("LD_PRELOAD")
        .output()
        .with_context(|| format!("cannot start `{}`", linker.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "the dynamic linker cannot load `{}`: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let mut found = parse_list(&text)
        .map_err(|missing| {
            anyhow::anyhow!("`{}` needs the library `{missing}`, not found", program.display())
        })?
        .into_iter()
        .collect::<Vec<_>>();
    found.push(linker);
    found.sort();
    found.dedup();
    Ok(found)
}

/// The dynamic linker a program names in its PT_INTERP header.
fn interpreter(bytes: &[u8]) -> Result<Option<PathBuf>> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes)?;
    let segments = file.segments().context("no program headers")?;
    let Some(header) = segments.iter().find(|header| header.p_type == PT_INTERP) else {
        return Ok(None);
    };
    let path = file.segment_data(&header)?;
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    Ok(Some(PathBuf::from(std::str::from_utf8(path)?)))
}

/// Reads lines like `libc.so.6 => /lib/libc.so.6 (0x…)`; `Err` holds a missing library's name.
fn parse_list(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place.starts_with("not found") {
            return Err(name.to_owned());
        }
        let place = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
        if place.starts_with('/') {
            paths.push(PathBuf::from(place));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closure_of_this_test_holds_libc_and_the_linker() {
        let found = libraries(&std::env::current_exe().unwrap()).unwrap();
        let names = found.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned());
        let names = names.collect::<Vec<_>>();
        assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
        assert!(names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
        assert!(found.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_script_needs_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(libraries(&script).unwrap().is_empty());
    }

    #[test]
    fn a_truncated_program_is_called_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let broken = dir.path().join("broken");
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        fs::write(&broken, &whole[..100]).unwrap();
        assert!(format!("{:#}", libraries(&broken).unwrap_err()).contains("damaged"));
    }

    #[test]
    fn a_missing_library_is_reported_by_name() {
        let text = "\tlibc.so.6 => /lib/libc.so.6 (0x7)\n\tlibodd.so.1 => not found\n";
        assert_eq!(parse_list(text), Err("libodd.so.1".into()));
    }
}
