// SPDX-License-Identifier: GPL-2.0-only
//! The scheduling core: model, dispatcher and policies, one C source compiled here natively and by
//! the `kernel` room to BPF. This crate holds the raw bindings; `Core` in the `sim` room and the
//! loader in the `kernel` room give them a safe face.

/// Structures and functions of the core, as C lays them out.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    dead_code,
    unnecessary_transmutes
)]
pub mod ffi {
    include!(concat!(env!("OUT_DIR"), "/core.rs"));
}

/// The same functions once more, which count the turns of their loops. For the test of what operations cost; each
/// thread has a count of its own.
#[allow(missing_docs, clippy::all)]
pub mod counted {
    use crate::ffi::*;

    include!(concat!(env!("OUT_DIR"), "/counted.rs"));
}

/// Terms of a reservation that is split: the length of each window, ns, whether it changes CPUs at windows' ends only,
/// and CPU and budget, ns, of at most `OB_MAX_LEGS` windows. Domain and CPUs in `terms` are those of the first.
pub fn split(
    mut terms: ffi::ob_terms,
    window: u64,
    postponed: bool,
    shares: &[(u32, u64)],
) -> ffi::ob_terms {
    (terms.window, terms.postponed, terms.legs) = (window, postponed.into(), 0);
    for (leg, (cpu, budget)) in terms.plan.iter_mut().zip(shares) {
        *leg = ffi::ob_leg { cpus: 1 << cpu, budget: *budget, domain: (*cpu).into() };
        terms.legs += 1;
    }
    terms
}

/// The unlocked paths and what they race with, compiled so that each access to memory is told of first: whoever calls
/// one of these defines the functions of a thread sanitizer (`__tsan_read8`, …). For the test that interleaves CPUs.
#[allow(missing_docs, clippy::all)]
pub mod interleaved {
    use crate::ffi::*;

    include!(concat!(env!("OUT_DIR"), "/interleaved.rs"));
}

/// Names of the server policies in the order of the core's registry; "" is no server.
pub fn server_policies() -> Vec<&'static str> {
    (0..)
        .map_while(|kind| {
            // SAFETY: any number is a valid argument; the strings are static.
            let name = unsafe { ffi::onbeat_policy_name(kind) };
            (!name.is_null())
                .then(|| unsafe { std::ffi::CStr::from_ptr(name) }.to_str().expect("ASCII names"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn registry_names_every_policy_once_and_no_server_first() {
        let names = super::server_policies();
        let once: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names[0], "");
        assert_eq!(once.len(), names.len(), "{names:?}");
    }
}
