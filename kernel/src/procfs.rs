// SPDX-License-Identifier: GPL-2.0-only
//! /proc, as an instance of its own: who looks for a file there waits for everybody who is looking for the same one in
//! the same instance, and a thread that is held to its budget in the midst of that may take seconds.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, readlinkat, statat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{CapabilitySet, capabilities};

/// Nobody else sees it, for it is mounted nowhere. Without CAP_SYS_ADMIN it is the usual one, which systemd makes one
/// of the service's own (ProtectProc= in its unit).
fn root() -> io::Result<BorrowedFd<'static>> {
    static ROOT: OnceLock<io::Result<OwnedFd>> = OnceLock::new();
    let root = ROOT.get_or_init(|| own().or_else(|_| Ok(File::open("/proc")?.into())));
    root.as_ref().map(AsFd::as_fd).map_err(|e| e.kind().into())
}

fn own() -> io::Result<OwnedFd> {
    // Where it is not allowed a filter of system calls may end the program.
    if !capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let (flags, kinds) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    Ok(fsmount(context.as_fd(), flags, kinds)?)
}

/// What the file at `path` below /proc holds.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut all = Vec::new();
    File::from(openat(root()?, path, flags, Mode::empty())?).read_to_end(&mut all)?;
    Ok(all)
}

/// The numbers among the names in the folder at `path`.
pub fn numbers<N: FromStr>(path: &str) -> io::Result<Vec<N>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = Dir::new(openat(root()?, path, flags, Mode::empty())?)?;
    let names = folder.flatten();
    Ok(names.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect())
}

/// Where the link at `path` leads.
pub fn link(path: &str) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let to = readlinkat(root()?, path, Vec::new())?;
    Ok(std::ffi::OsString::from_vec(to.into_bytes()).into())
}

/// How many links the folder at `path` has.
pub fn links(path: &str) -> io::Result<u64> {
    Ok(statat(root()?, path, AtFlags::empty())?.st_nlink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_proc_says_and_is_no_part_of_it() {
        let me = std::process::id();
        assert!(numbers::<u32>(".").unwrap().contains(&me));
        assert_eq!(read(&format!("{me}/comm")).unwrap(), std::fs::read("/proc/self/comm").unwrap());
        assert_eq!(link(&format!("{me}/exe")).unwrap(), std::env::current_exe().unwrap());
        let threads = numbers::<i32>(&format!("{me}/task")).unwrap().len() as u64;
        assert!(links(&format!("{me}/task")).unwrap() >= 2 + threads.min(1));
        assert_eq!(read("0/comm").unwrap_err().kind(), io::ErrorKind::NotFound);
        if capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_ADMIN) {
            let usual = File::open("/proc").unwrap();
            let device = |fd: BorrowedFd| rustix::fs::fstat(fd).unwrap().st_dev;
            assert_ne!(device(root().unwrap()), device(usual.as_fd()));
        }
    }
}
