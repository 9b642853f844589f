// SPDX-License-Identifier: GPL-2.0-only
//! The stock kernels the lab boots.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Flavour;
use crate::cache;

/// A kernel in the cache, checked.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Which one.
    pub flavour: Flavour,
    /// Its folder in the cache.
    pub folder: PathBuf,
    /// As `uname -r` will print it.
    pub release: String,
    /// The version of the package it came from.
    pub package: String,
}

impl Kernel {
    /// The boot image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The configuration it was built with.
    pub fn config(&self) -> PathBuf {
        self.folder.join("config")
    }

    /// The folder with its (uncompressed) modules.
    pub fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }

    /// Something that differs when any of its files does.
    pub(crate) fn fingerprint(&self) -> Result<String> {
        fs::read_to_string(self.folder.join(cache::MANIFEST)).context("the kernel has no manifest")
    }

    /// Finds a fetched kernel, checks its files and that it can run sched_ext schedulers.
    ///
    /// # Errors
    /// When it is missing, damaged, or lacks sched_ext or BTF.
    pub fn load(flavour: Flavour) -> Result<Self> {
        Self::load_from(&cache::root()?.join("kernel").join(flavour.name()), flavour)
    }

    fn load_from(folder: &Path, flavour: Flavour) -> Result<Self> {
        cache::verify(folder).with_context(|| {
            format!("the lab's `{}` kernel is not usable; run `make setup`", flavour.name())
        })?;
        Self::unchecked(folder, flavour)
    }

    /// The same for files that are known to be good.
    pub(crate) fn unchecked(folder: &Path, flavour: Flavour) -> Result<Self> {
        let version = fs::read_to_string(folder.join("version"))?;
        let field = |name: &str| {
            let line = version.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
                .with_context(|| format!("`{}/version` lacks `{name}`", folder.display()))
        };
        check_config(&fs::read_to_string(folder.join("config"))?)?;
        Ok(Kernel {
            flavour,
            folder: folder.into(),
            release: field("release ")?,
            package: field("package ")?,
        })
    }
}

/// Refuses a kernel configuration without what sched_ext needs.
fn check_config(config: &str) -> Result<()> {
    for (option, what) in [
        ("CONFIG_SCHED_CLASS_EXT=y", "sched_ext, so no scheduler can be loaded"),
        ("CONFIG_DEBUG_INFO_BTF=y", "type information (BTF), so no BPF scheduler can be loaded"),
    ] {
        if !config.lines().any(|line| line == option) {
            bail!("this kernel was built without {what} ({option} is not set)");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_sched_ext_or_btf_is_refused_by_the_options_name() {
        let good = "CONFIG_SCHED_CLASS_EXT=y\nCONFIG_DEBUG_INFO_BTF=y\n";
        check_config(good).unwrap();
        for option in ["CONFIG_SCHED_CLASS_EXT", "CONFIG_DEBUG_INFO_BTF"] {
            let bad = good.replace(&format!("{option}=y"), &format!("# {option} is not set"));
            assert!(check_config(&bad).unwrap_err().to_string().contains(option));
        }
    }
}
