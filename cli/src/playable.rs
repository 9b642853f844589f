// SPDX-License-Identifier: GPL-2.0-only
//! Whether a policy can play a task set.

use anyhow::{Result, anyhow};
use onbeat_kernel::settings::Settings;
use onbeat_model::policy::CorePolicy;
use onbeat_model::taskset::{Part, TaskSet};
use onbeat_model::units::Fraction;

/// What the service would be told for one of the set's parts, where `played` serves the default one.
pub fn settings(set: &TaskSet, part: &Part, played: &CorePolicy) -> Settings {
    let of = set.policy_of(part, played);
    Settings {
        set: part.cpus,
        best_effort_share: set.best_effort_share,
        servers: set.servers(),
        user_share: Fraction::from_integer(1),
        ..Settings::whole(of.order, of.server, set.cpus, part.clusters)
    }
}

/// Whether `policy` can serve the set's default part.
///
/// # Errors
/// It knows nothing of what is in the file, or best effort's servers do not fit.
pub fn check(set: &TaskSet, policy: &CorePolicy) -> Result<()> {
    let named = onbeat_model::policy::Policy::Core { order: policy.order, server: policy.server };
    set.plays(&named).map_err(|why| anyhow!(why))?;
    for part in set.parts().iter().filter(|part| part.set.is_none()) {
        settings(set, part, policy).check_servers().map_err(|why| anyhow!(why))?;
    }
    Ok(())
}
