// SPDX-License-Identifier: GPL-2.0-only
//! What a program got under its reservation, told when it has ended.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use onbeat_client::Grant;
use onbeat_kernel::machine::name_cpus;
use onbeat_model::metrics::{Causes, in_words};
use onbeat_model::protocol;
use onbeat_model::units::format_duration;
use serde::Serialize;

use super::needs::{MOST_PERCENT, Summary};
use crate::output::print;

/// Of a reservation that began so much later than the program, ns, that is told.
const YOUNGER: u64 = 500_000_000;

/// What a program got, for people and programs.
#[derive(Serialize)]
struct Report<'a> {
    program: &'a str,
    policy: &'a str,
    cpus: &'a [u32],
    budget_ns: u64,
    period_ns: u64,
    deadline_ns: u64,
    elapsed_ns: u64,
    /// How long the reservation has been there, of which the figures are: since a service that was started anew.
    reserved_ns: u64,
    jobs: u64,
    misses: u64,
    #[serde(skip_serializing_if = "Causes::is_empty")]
    late_causes: &'a Causes,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_by: Option<u32>,
    owed: u64,
    owed_late: u64,
    owed_tardiness_max_ns: u64,
    tardiness_max_ns: u64,
    tardiness_mean_ns: u64,
    budget_used_per_period_ns: u64,
    exhaustions: u64,
    cpu_time_ns: u64,
    donated_ns: u64,
    received_ns: u64,
    slack_ns: u64,
    exit_status: u8,
    /// Of a program that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
}

/// What the jobs of a program were measured to need, and the options that would have been enough.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    needs: Summary,
    enough_ns: u64,
    options: String,
}

/// What is told of a program that was measured and got no reservation.
#[derive(Serialize)]
struct Nothing<'a> {
    program: &'a str,
    reserved: bool,
    reason: &'a str,
    exit_status: u8,
}

/// Tells that the program had no reservation, and why.
///
/// # Errors
/// Nobody can read it.
pub fn nothing(json: bool, program: &str, reason: &str, exit_status: u8) -> Result<()> {
    if json {
        let nothing = Nothing { program, reserved: false, reason, exit_status };
        print(&(serde_json::to_string(&nothing)? + "\n"))?;
    } else {
        complain!("onbeat: {program} had no reservation: {reason}");
    }
    Ok(())
}

/// Tells what the program got; if it was measured, `needs` are those of its jobs, and `words` what stood on the command
/// line in the place of the program.
///
/// # Errors
/// Nobody can read it.
pub fn report(
    json: bool,
    grant: &Grant,
    got: &protocol::Reservation,
    elapsed: Duration,
    exit_status: u8,
    needs: Option<Summary>,
    words: &str,
) -> Result<()> {
    let report = Report::of(grant, got, elapsed, exit_status, needs);
    if json {
        print(&(serde_json::to_string(&report)? + "\n"))?;
    } else {
        // The program's own status is not to be lost because nobody can read this.
        let _ = write!(std::io::stderr(), "{report}");
        if let Some(measured) = &report.measured {
            complain!("  to fix it  onbeat run {} {words}", measured.options);
        }
    }
    Ok(())
}

impl<'a> Report<'a> {
    fn of(
        grant: &'a Grant,
        got: &'a protocol::Reservation,
        elapsed: Duration,
        exit_status: u8,
        needs: Option<Summary>,
    ) -> Self {
        let elapsed_ns = elapsed.as_nanos() as u64;
        // It may be younger than the program. What ended sooner had one period all the same.
        let age = if got.age_ns == 0 { elapsed_ns } else { got.age_ns };
        let lasted = u128::from(age.max(got.period_ns).max(1));
        let per_period = u128::from(got.consumed_ns) * u128::from(got.period_ns) / lasted;
        // Where it is served may have changed; a service from before that was told tells nothing.
        let told = !got.policy.is_empty();
        let (policy, cpus) =
            if told { (&got.policy, &got.cpus) } else { (&grant.policy, &grant.cpus) };
        Self {
            program: &got.name,
            policy,
            cpus,
            budget_ns: got.budget_ns,
            period_ns: got.period_ns,
            deadline_ns: got.deadline_ns,
            elapsed_ns,
            reserved_ns: age.min(elapsed_ns),
            jobs: got.jobs,
            misses: got.misses,
            late_causes: &got.late_causes,
            late_by: got.late_by,
            owed: got.owed,
            owed_late: got.owed_late,
            owed_tardiness_max_ns: got.owed_tardiness_max_ns,
            tardiness_max_ns: got.tardiness_max_ns,
            tardiness_mean_ns: got.tardiness_sum_ns / got.jobs.max(1),
            budget_used_per_period_ns: per_period as u64,
            exhaustions: got.exhaustions,
            cpu_time_ns: got.consumed_ns,
            donated_ns: got.donated_ns,
            received_ns: got.received_ns,
            slack_ns: got.slack_ns,
            exit_status,
            measured: needs.map(|needs| Measured {
                needs,
                enough_ns: needs.enough(),
                options: needs.options(got.period_ns),
            }),
        }
    }
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |ns: u64| format!("{:.2}ms", ns as f64 / 1e6);
        let s = |ns: u64| format!("{:.3}s", ns as f64 / 1e9);
        let percent = |a: u64, b: u64| format!("{:.1}%", 100.0 * a as f64 / b.max(1) as f64);
        let whole = match self.reserved_ns.saturating_add(YOUNGER) < self.elapsed_ns {
            true => format!(", the last of its {}: all figures are of these", s(self.elapsed_ns)),
            false => String::new(),
        };
        writeln!(
            f,
            "onbeat: {} had {} every {} under {} on {} for {}{whole}",
            self.program,
            format_duration(self.budget_ns),
            format_duration(self.period_ns),
            self.policy,
            name_cpus(self.cpus),
            s(if whole.is_empty() { self.elapsed_ns } else { self.reserved_ns })
        )?;
        let (jobs, misses) = (self.jobs, self.misses);
        writeln!(f, "  jobs       {jobs}, {misses} late ({})", percent(misses, jobs))?;
        let (owed, broken) = (self.owed, self.owed_late);
        write!(f, "  promise    {broken} of {owed} owed jobs late")?;
        if broken > 0 {
            write!(f, ", by {} at worst", ms(self.owed_tardiness_max_ns))?;
        }
        writeln!(f, "; {} others late, beyond the budget", misses.saturating_sub(broken))?;
        if !self.late_causes.is_empty() {
            writeln!(f, "  late for   {}", in_words(self.late_causes))?;
        }
        let (worst, mean) = (ms(self.tardiness_max_ns), ms(self.tardiness_mean_ns));
        writeln!(f, "  tardiness  {worst} at worst, {mean} on average")?;
        let used = self.budget_used_per_period_ns;
        writeln!(
            f,
            "  budget     {} used per period on average ({}), used up {} times",
            ms(used),
            percent(used, self.budget_ns),
            self.exhaustions
        )?;
        write!(f, "  CPU time   {}", s(self.cpu_time_ns))?;
        if self.donated_ns + self.received_ns > 0 {
            let (given, got) = (s(self.donated_ns), s(self.received_ns));
            write!(f, "; {given} left over to others, {got} received from others")?;
        }
        if self.slack_ns > 0 {
            write!(f, "; {} of it beyond the budget, of slack", s(self.slack_ns))?;
        }
        writeln!(f)?;
        let Some(Measured { needs, enough_ns, .. }) = &self.measured else { return Ok(()) };
        let (p50, p99, max) = (ms(needs.p50_ns), ms(needs.p99_ns), ms(needs.max_ns));
        writeln!(
            f,
            "  measured   {} periods' work: half of them took {p50}, 99% at most {p99}, all at most {max}",
            needs.jobs
        )?;
        let much = match *enough_ns * 100 > MOST_PERCENT * self.period_ns {
            true => format!(": more than the {MOST_PERCENT}% of a CPU that can be reserved"),
            false => String::new(),
        };
        let period = format_duration(self.period_ns);
        writeln!(f, "  enough     {} every {period}{much}", ms(*enough_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_the_policy_and_the_cpus_that_served_at_the_end() {
        let grant = Grant { id: 3, policy: "g-edf+cbs".into(), cpus: vec![0, 1] };
        let of = |got: &protocol::Reservation| {
            let report = Report::of(&grant, got, Duration::from_secs(4), 0, None);
            (report.policy.to_owned(), report.cpus.to_vec(), report.budget_used_per_period_ns)
        };
        // Granted anew under another policy, a second before the end.
        let got = protocol::Reservation {
            policy: "p-edf+cbs-hard".into(),
            cpus: vec![1],
            period_ns: 10_000_000,
            consumed_ns: 200_000_000,
            age_ns: 1_000_000_000,
            ..Default::default()
        };
        assert_eq!(of(&got), ("p-edf+cbs-hard".into(), vec![1], 2_000_000));
        let said = Report::of(&grant, &got, Duration::from_secs(4), 0, None).to_string();
        assert!(said.contains("for 1.000s, the last of its 4.000s: all figures"), "{said}");
        let old = protocol::Reservation { policy: String::new(), age_ns: 0, ..got };
        let said = Report::of(&grant, &old, Duration::from_secs(4), 0, None).to_string();
        assert!(said.contains("for 4.000s\n"), "{said}");
        assert_eq!(of(&old), ("g-edf+cbs".into(), vec![0, 1], 500_000));
    }
}
