// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling written down as naively as can be: time goes step by step, and in every step the
//! first m ready jobs run. Shares no code and no idea with the core.

use onbeat_model::policy::{CorePolicy, Key, Server};

use super::{Case, STEP, domain_of, domains, late_kept};

struct Job {
    /// Releases so far, and completions.
    released: usize,
    done: usize,
    /// Steps of work the current job still needs.
    work: u64,
    /// It has not slept since its last job: the server saw no new release.
    awake: bool,
    /// When it last woke.
    woke: i128,
    e: i128,
    s: i128,
    /// A hard reservation waits until then.
    until: Option<i128>,
}

/// Finishing times (ns) of all jobs of `case` under EDF, RM or FIFO with no server, soft or hard CBS.
/// All its times but the deadlines must be multiples of [`STEP`]; tasks may use all CPUs of their
/// domain, and no two may ever have the same deadline or period.
pub fn finishes(case: &Case, policy: &CorePolicy) -> Vec<Vec<u64>> {
    let step = STEP as i128;
    let new = |_| {
        let (released, done, work, awake) = (0, 0, 0, false);
        Job { released, done, work, awake, woke: 0, e: 0, s: 0, until: None }
    };
    let mut jobs: Vec<Job> = case.tasks.iter().map(new).collect();
    let mut ends = vec![Vec::new(); case.tasks.len()];
    let late = late_kept(policy, case.cpus) as i128;
    for now in (0..case.most as i128).step_by(STEP as usize) {
        for (task, job) in case.tasks.iter().zip(&mut jobs) {
            let (q, p, d) =
                (task.budget.unwrap() as i128, task.period as i128, task.deadline as i128);
            let release = task.first as i128 + job.released as i128 * p;
            if release <= now && job.released < task.times.len() {
                job.released += 1;
            }
            if job.work == 0 && job.done < job.released {
                job.work = task.times[job.done] / STEP;
                if !job.awake {
                    (job.awake, job.woke) = (true, now);
                    // The rule of Abeni and Buttazzo for a new arrival.
                    let fresh = job.s <= now || (job.e >= 0 && job.e * d >= (job.s - now) * q);
                    if fresh || policy.server == Server::None {
                        (job.e, job.s) = (q, now + d);
                    }
                }
            }
            if !job.awake {
                continue;
            }
            let mut renewed = false;
            if job.e <= 0 && policy.server == Server::Cbs {
                (job.e, job.s, renewed) = (job.e + q, job.s + p, true);
            }
            if job.e <= 0 && policy.server == Server::CbsHard && job.until.is_none() {
                job.until = Some(job.s - d + p);
            }
            if job.until.is_some_and(|until| until <= now) {
                job.until = None;
                (job.e, job.s, renewed) = (job.e + q, job.s + p, true);
            }
            // In overload that deadline may have passed as well. Who is too late begins anew.
            if renewed && job.s + late <= now {
                (job.e, job.s) = (q, now + d);
            }
        }
        for i in chosen(case, policy, &jobs) {
            let job = &mut jobs[i];
            job.work -= 1;
            job.e -= step;
            if job.work == 0 {
                job.done += 1;
                let end = now + step;
                ends[i].push(end as u64);
                let task = &case.tasks[i];
                let next = task.first as i128 + job.done as i128 * task.period as i128;
                // Sleeps unless the next release has come.
                job.awake = job.done < task.times.len() && next <= end;
            }
        }
    }
    ends
}

/// Who runs in this step.
fn chosen(case: &Case, policy: &CorePolicy, jobs: &[Job]) -> Vec<usize> {
    let size = (case.cpus / domains(policy.order, case.cpus)) as usize;
    let mut chosen = Vec::new();
    for domain in 0..domains(policy.order, case.cpus) {
        let ready = |i: &usize| {
            domain_of(policy.order, case.cpus, case.tasks[*i].home) == domain
                && jobs[*i].work > 0
                && jobs[*i].until.is_none()
        };
        let mut ready: Vec<usize> = (0..jobs.len()).filter(ready).collect();
        ready.sort_by_key(|i| match policy.order.key {
            Key::Rm => case.tasks[*i].period as i128,
            Key::Fifo => jobs[*i].woke,
            _ => jobs[*i].s,
        });
        chosen.extend(ready.into_iter().take(size));
    }
    chosen
}
