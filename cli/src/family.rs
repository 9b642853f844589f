// SPDX-License-Identifier: GPL-2.0-only
//! `onbeat family`: policies judged on families of task sets with bursts.

mod figures;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::Args;
use onbeat_analysis::family::Family;
use onbeat_command::misuse;
use onbeat_lab::LabSpec;
use onbeat_model::metrics::Metrics;
use onbeat_model::policy::{CorePolicy, DEFAULT, Policy};
use onbeat_model::taskset::{TaskEntry, TaskSet};
use onbeat_model::units::{Fraction, SEC, format_percent, parse_percent};
use onbeat_sim::{Detail, simulate_with};

use crate::lab::carry::{self, carry_out, guests_at_a_time};
use crate::lab::progress::Board;
use crate::lab::ship::{Cargo, Programs};
use crate::lab::{cancel_on_signals, fit};
use crate::many::{Tally, on_all_processors};
use crate::output::{print, whole};
use crate::sim::core;
use figures::{Judged, Report};

/// The largest seed of a task-set file.
const SEED_MOST: u64 = i64::MAX as u64;
/// Who plays beside the judged one in the simulator.
const RIVALS: [&str; 8] = [
    "g-fifo",
    "g-edf+cbs",
    "g-edf+fcbs",
    "g-edzl+cbs",
    "g-edzl+fcbs-lag",
    "g-edzl+cbs-slack",
    "g-edzl+cbs-predict",
    "edf-wmr+fcbs",
];
/// And in the lab.
const LAB_RIVALS: [&str; 4] = ["fifo", "deadline", "g-edf+fcbs", "g-edzl+fcbs-lag"];

/// Judge policies on families of random task sets whose load comes in bursts
///
/// Plays sets S, S+1, … of each family (docs/families.md) under each policy and prints late jobs, late jobs that
/// the reservation owed, greatest tardiness, preemptions and what best-effort work got; then, for each family,
/// whether the judged policy is better than first come, first served and all the others. With --write the sets are
/// written as files instead.
#[derive(Debug, Args)]
#[command(before_help = "Example: onbeat family scenes --sets 3")]
pub struct Options {
    /// scenes, scattered, pictures, drift, mixed, heavy, or all
    #[arg(default_value = "all", value_name = "NAME")]
    family: String,
    /// The first set; the others follow
    #[arg(
        long,
        default_value = "1",
        value_name = "S",
        value_parser = whole::<u64>(0..=SEED_MOST),
        allow_hyphen_values = true
    )]
    seed: u64,
    /// How many sets of each family [default: 10; with --write 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=10_000), allow_hyphen_values = true)]
    sets: Option<u64>,
    /// Policies to play, separated by commas [default: eight of Onbeat's; in the lab two of them and two of the
    /// kernel's]
    #[arg(long, value_name = "P,…", value_delimiter = ',')]
    policies: Vec<Policy>,
    /// The policy to judge; it is played too [default: g-edzl+cbs-predict]
    #[arg(long, value_name = "P")]
    judge: Option<Policy>,
    /// For how many seconds jobs are released
    #[arg(
        long,
        default_value = "20",
        value_name = "N",
        value_parser = whole::<u64>(1..=3600),
        allow_hyphen_values = true
    )]
    seconds: u64,
    /// What the reservations, as those of one user, may take ahead of best effort, such as 95%; beyond it an overrun
    /// takes turns with best effort
    #[arg(long, value_name = "PERCENT", value_parser = share, allow_hyphen_values = true)]
    max_share: Option<Fraction>,
    /// Where they are played
    #[arg(long, value_enum, default_value = "sim")]
    by: By,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Exit with 1 if the judged policy fails in a family
    #[arg(long)]
    strict: bool,
    /// Write the sets as task-set files with their traces into this folder, and play nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "strict", "by"])]
    write: Option<PathBuf>,
    /// Replace files that are there with other contents
    #[arg(long, requires = "write")]
    force: bool,
}

/// Where sets are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// In the simulator.
    Sim,
    /// On a real kernel in the lab.
    Lab,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Sim => "sim",
            By::Lab => "lab",
        }
    }

    /// First come, first served.
    fn reference(self) -> &'static str {
        match self {
            By::Sim => "g-fifo",
            By::Lab => "fifo",
        }
    }
}

/// Carries out the verb.
///
/// # Errors
/// A family, a policy or a number makes no sense, the lab fails, or results cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let families = match options.family.as_str() {
        "all" => Family::ALL.to_vec(),
        name => {
            vec![name.parse().map_err(|e| misuse(format!("{e}; \"all\" means all of them")))?]
        }
    };
    let sets = options.sets.unwrap_or(if options.write.is_some() { 1 } else { 10 });
    let last = options.seed.checked_add(sets - 1).filter(|last| *last <= SEED_MOST);
    if last.is_none() {
        bail!(misuse(format!(
            "--seed {} leaves no room for {sets} sets: seeds end at {SEED_MOST}; choose a smaller one",
            options.seed
        )));
    }
    let (policies, judged) = options.policies()?;
    let sets: Vec<(Family, u64)> =
        families.iter().flat_map(|family| (0..sets).map(|i| (*family, options.seed + i))).collect();
    let duration = options.seconds * SEC;
    let set_of = |(family, seed): (Family, u64)| TaskSet {
        max_share: options.max_share,
        ..family.generate(seed, duration, policies.clone())
    };
    if let Some(share) = options.max_share {
        sets.iter().try_for_each(|set| fits_in(share, &set_of(*set)))?;
    }
    if let Some(folder) = &options.write {
        return write::sets(folder, &sets, &set_of, options.force);
    }
    let played = match options.by {
        By::Sim => in_simulator(&sets, &policies, &set_of)?,
        By::Lab => in_lab(&sets, &policies, &set_of)?,
    };
    let report = Report {
        world: options.by.name(),
        seed: options.seed,
        seconds: options.seconds,
        reference: options.by.reference().parse()?,
        judged,
        families: families
            .iter()
            .map(|family| {
                let of = |set: usize| &played[set];
                let own = (0..sets.len()).filter(|i| sets[*i].0 == *family).map(of).collect();
                Judged::new(*family, &policies, own)
            })
            .collect(),
    };
    print(&if options.json { report.to_json() } else { report.to_text() })?;
    let failed = options.strict && !report.passes();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A limit.
fn share(text: &str) -> Result<Fraction, String> {
    let share = parse_percent(text).map_err(|e| e.to_string())?;
    match share == Fraction::ZERO || share > Fraction::ONE {
        true => Err("choose above 0% and at most 100%, for example 95%".into()),
        false => Ok(share),
    }
}

/// The service would refuse what it is not to grant to one user.
fn fits_in(share: Fraction, set: &TaskSet) -> Result<()> {
    let load = |task: &TaskEntry| task.budget.unwrap_or(0) as f64 / task.period as f64;
    let load: f64 = set.tasks.iter().map(load).sum();
    let most = *share.numer() as f64 / *share.denom() as f64 * f64::from(set.cpus);
    if load > most {
        let (share, set, cpus) = (format_percent(share), &set.name, set.cpus);
        bail!(misuse(format!(
            "--max-share {share}: the reservations of {set} ask for {load:.2} of {cpus} CPUs; choose more"
        )));
    }
    Ok(())
}

impl Options {
    /// Who plays, each once, first come, first served at the head, and who of them is judged.
    fn policies(&self) -> Result<(Vec<Policy>, Policy)> {
        let judged = match &self.judge {
            Some(policy) => policy.clone(),
            None => DEFAULT.parse()?,
        };
        let mut all: Vec<Policy> = vec![self.by.reference().parse()?];
        let rivals: &[&str] = match self.by {
            By::Sim => &RIVALS,
            By::Lab => &LAB_RIVALS,
        };
        let rivals: Vec<Policy> = match self.policies.is_empty() {
            true => rivals.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
            false => self.policies.clone(),
        };
        for policy in rivals.into_iter().chain([judged.clone()]) {
            if !all.contains(&policy) {
                all.push(policy);
            }
        }
        let foreign = |p: &&Policy| self.by == By::Sim && !p.is_core();
        if let Some(policy) = all.iter().find(foreign) {
            bail!(misuse(format!(
                "{policy}: only Onbeat's own policies can be simulated; play it with --by lab, or \
                 g-fifo in place of fifo"
            )));
        }
        Ok((all, judged))
    }
}

/// Figures of each policy, for each set.
type Played = Vec<Vec<Metrics>>;

/// Plays all sets on all processors.
fn in_simulator(
    sets: &[(Family, u64)],
    policies: &[Policy],
    set_of: &(dyn Fn((Family, u64)) -> TaskSet + Sync),
) -> Result<Played> {
    let policies: Vec<&CorePolicy> = policies.iter().filter_map(core).collect();
    let tally = Tally::new("family", (sets.len() * policies.len()) as u64, "runs");
    let done = on_all_processors(sets.len(), &AtomicBool::new(false), |i| {
        let set = set_of(sets[i]);
        let play = |policy: &&CorePolicy| {
            let run = simulate_with(&set, policy, Detail::Jobs)?;
            tally.add();
            Ok(onbeat_model::metrics::metrics(&run))
        };
        policies.iter().map(play).collect::<Result<Vec<Metrics>>>()
    });
    drop(tally);
    let mut all = Vec::new();
    for (one, (family, seed)) in done.into_iter().zip(sets) {
        match one {
            Some(played) => all.push(played.with_context(|| format!("{family}-{seed}"))?),
            // Sets are begun in order: the one that failed may come after this one.
            None => continue,
        }
    }
    Ok(all)
}

/// Plays all sets in guests, each policy in one of its own.
fn in_lab(
    sets: &[(Family, u64)],
    policies: &[Policy],
    set_of: &dyn Fn((Family, u64)) -> TaskSet,
) -> Result<Played> {
    let (programs, board) = (Programs::new()?, Board::new(sets.len() * policies.len()));
    let cancel = cancel_on_signals()?;
    let mut works = Vec::new();
    for set in sets {
        let set = set_of(*set);
        let cargo = Arc::new(Cargo::load(&set, ".".as_ref(), policies, &programs)?);
        let mut spec = LabSpec::new(["sh"]);
        fit(&mut spec, &set);
        spec.cancel = Some(Arc::clone(&cancel));
        works.extend(policies.iter().map(|policy| carry::Work {
            cargo: Arc::clone(&cargo),
            policy: policy.clone(),
            spec: spec.clone(),
        }));
    }
    let carried = carry_out(&works, guests_at_a_time(), &cancel, &board, &|_, _| ());
    let mut all: Vec<Metrics> = Vec::new();
    for (work, one) in works.iter().zip(carried) {
        let place = || format!("{} under {}", work.cargo.set.name, work.policy);
        all.push(one.ended.outcome.map_err(anyhow::Error::msg).with_context(place)?.metrics);
    }
    Ok(all.chunks(policies.len()).map(<[Metrics]>::to_vec).collect())
}
