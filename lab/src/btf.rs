// SPDX-License-Identifier: GPL-2.0-only
//! Whether a kernel's type information lets sched_ext schedulers load.
//!
//! Since Linux 7.0 the kernel passes some functions for BPF programs (kfuncs) a hidden argument.
//! Their type information must come in two forms: without it under the plain name, with it under
//! the name plus `_impl`. Kernels whose build tools did not know that refuse every scheduler with
//! "malformed scx kfunc prototype".

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use btf_rs::{Btf, FuncProto, Type};
use fallible_iterator::FallibleIterator;

/// Checks the contents of `/sys/kernel/btf/vmlinux`.
///
/// # Errors
/// When it cannot be read, has no sched_ext functions, or has malformed ones.
pub fn check(bytes: &[u8]) -> Result<()> {
    let btf = Btf::from_bytes(bytes).context("the kernel's type information (BTF) is damaged")?;
    let mut functions = HashMap::new();
    let mut types = btf.type_iter();
    while let Some(kind) = types.next()? {
        if let Type::Func(function) = kind {
            let name = btf.resolve_name(&function)?;
            if name.starts_with("scx_bpf_") {
                functions.insert(name, function);
            }
        }
    }
    if functions.is_empty() {
        bail!("the kernel's type information (BTF) has no sched_ext functions");
    }
    for (name, function) in &functions {
        let Type::FuncProto(prototype) = btf.resolve_chained_type(function)? else {
            bail!("the kernel's type information (BTF) gives `{name}` no prototype");
        };
        let twin = name.ends_with("_impl") || functions.contains_key(&format!("{name}_impl"));
        if takes_hidden_argument(&btf, &prototype)? && !twin {
            bail!(
                "the kernel's type information (BTF) is broken: `{name}` lacks its twin \
                 `{name}_impl`, so no sched_ext scheduler can be loaded"
            );
        }
    }
    Ok(())
}

/// Whether the last parameter is a pointer to `struct bpf_prog_aux`.
fn takes_hidden_argument(btf: &Btf, prototype: &FuncProto) -> Result<bool> {
    let Some(last) = prototype.parameters.last() else { return Ok(false) };
    if last.is_variadic() {
        return Ok(false);
    }
    let Type::Ptr(pointer) = btf.resolve_chained_type(last)? else { return Ok(false) };
    for target in btf.chained_type_iter(&pointer) {
        if let Type::Struct(target) = target {
            return Ok(btf.resolve_name(&target)? == "bpf_prog_aux");
        }
    }
    Ok(false)
}
