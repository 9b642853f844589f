// SPDX-License-Identifier: GPL-2.0-only
//! Claims of papers as data, checked against outcomes. `experiments/claims/kato.toml` explains the format.

use serde::Deserialize;
use thiserror::Error;

use onbeat_model::policy::Policy;

use crate::Outcome;
use crate::html::{Claim, Verdict};

/// A file of claims.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    #[serde(default, rename = "claim")]
    claims: Vec<Entry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    experiment: String,
    figure: String,
    text: String,
    #[serde(default)]
    expect: Vec<Expectation>,
    /// Why it may not hold here.
    otherwise: Option<String>,
}

/// `POLICY FIGURE OPERATOR VALUE`, perhaps with `+ NUMBER`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Expectation {
    /// `None` = all.
    policy: Option<String>,
    figure: String,
    operator: Operator,
    value: Side,
    /// Added to the value.
    more: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Side {
    Number(f64),
    Policy(String),
}

/// Why a file of claims cannot be used.
#[derive(Debug, Error)]
#[error("the claims cannot be read: {0}")]
pub struct ClaimsError(String);

impl Claims {
    /// Reads the text of a claims file.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, ClaimsError> {
        toml::from_str(text).map_err(|e| ClaimsError(e.to_string()))
    }

    /// The claims about an experiment (or the experiment whose `-decode` variant it is), set beside the outcomes of
    /// one world. A claim *holds* if all its expectations do, *differs* if none does, and is *open* as long as a
    /// policy it speaks of did not run.
    pub fn about(&self, experiment: &str, outcomes: &[&Outcome]) -> Vec<Claim> {
        let base = experiment.strip_suffix("-decode").unwrap_or(experiment);
        self.claims
            .iter()
            .filter(|c| c.experiment == base || c.experiment == experiment)
            .map(|c| {
                let by_expectation: Vec<Vec<Check>> =
                    c.expect.iter().map(|e| e.check(outcomes)).collect();
                let complete = by_expectation.iter().all(|checks| !checks.is_empty());
                let checks: Vec<Check> = by_expectation.into_iter().flatten().collect();
                let kept = checks.iter().filter(|c| c.holds).count();
                let verdict = match kept {
                    _ if checks.is_empty() || !complete => Verdict::Open,
                    n if n == checks.len() => Verdict::Holds,
                    0 => Verdict::Differs,
                    _ => Verdict::Partly,
                };
                Claim {
                    id: experiment.into(),
                    figure: c.figure.clone(),
                    claim: c.text.clone(),
                    ours: in_words(&checks),
                    verdict,
                    why: match verdict {
                        Verdict::Partly | Verdict::Differs => c.otherwise.clone(),
                        Verdict::Holds | Verdict::Open => None,
                    },
                }
            })
            .collect()
    }
}

/// One expectation about one policy, checked.
struct Check {
    holds: bool,
    /// Values that were compared: figure, policy, value.
    values: Vec<(String, String, f64)>,
}

/// Each value once, by figure: `worst second: g-edf+fcbs 23, deadline 14`.
fn in_words(checks: &[Check]) -> String {
    let mut figures: Vec<(&str, Vec<String>)> = Vec::new();
    for (figure, policy, value) in checks.iter().flat_map(|c| &c.values) {
        let digits = match value.abs() {
            _ if value.fract() == 0.0 => 0,
            small if small < 0.1 => 4,
            _ => 2,
        };
        let text = format!("{policy} {value:.digits$}");
        match figures.iter_mut().find(|f| f.0 == figure) {
            Some((_, list)) if list.contains(&text) => {}
            Some((_, list)) => list.push(text),
            None => figures.push((figure, vec![text])),
        }
    }
    let parts: Vec<String> = figures
        .iter()
        .map(|(f, list)| format!("{}: {}", f.replace('_', " "), list.join(", ")))
        .collect();
    if parts.is_empty() { "not measured".into() } else { parts.join("; ") }
}

impl Expectation {
    /// One check for each policy meant that ran.
    fn check(&self, outcomes: &[&Outcome]) -> Vec<Check> {
        let meant = |o: &&&Outcome| self.policy.as_ref().is_none_or(|p| *p == o.policy);
        let check = |o: &&Outcome| {
            let left = figure(o, &self.figure)?;
            let mut values = vec![(self.figure.clone(), o.policy.clone(), left)];
            let right = match &self.value {
                Side::Number(x) => *x,
                Side::Policy(p) => {
                    let other = outcomes.iter().find(|o| o.policy == *p)?;
                    let x = figure(other, &self.figure)?;
                    values.push((self.figure.clone(), p.clone(), x));
                    x
                }
            };
            Some(Check { holds: self.operator.holds(left, right + self.more), values })
        };
        outcomes.iter().filter(meant).filter_map(check).collect()
    }
}

impl Operator {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Operator::Less => left < right,
            Operator::LessOrEqual => left <= right,
            Operator::Greater => left > right,
            Operator::GreaterOrEqual => left >= right,
        }
    }
}

/// A figure of the metrics by its name in the result JSON.
fn figure(o: &Outcome, name: &str) -> Option<f64> {
    if name == WORST_SECOND {
        return o.metrics.fps_per_second.iter().map(|s| f64::from(s.worst)).reduce(f64::min);
    }
    serde_json::to_value(&o.metrics).ok()?.get(name)?.as_f64()
}

const WORST_SECOND: &str = "worst_second";

impl TryFrom<String> for Expectation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = || format!("\"{text}\" is not POLICY FIGURE OPERATOR VALUE [+ NUMBER]");
        let (words, more) = match words[..] {
            [.., "+", more] => {
                (&words[..words.len() - 2], more.parse::<f64>().map_err(|_| wrong())?)
            }
            _ => (&words[..], 0.0),
        };
        let [policy, figure, operator, value] = words[..] else { return Err(wrong()) };
        let known = |p: &str| p.parse::<Policy>().map(|p| p.to_string()).map_err(|e| e.to_string());
        let policy = if policy == "all" { None } else { Some(known(policy)?) };
        let metrics = serde_json::to_value(onbeat_model::metrics::Metrics::default());
        let keys = metrics.map_err(|e| e.to_string())?;
        if figure != WORST_SECOND && keys.get(figure).is_none() {
            return Err(format!("there is no figure \"{figure}\"; see docs/events.md"));
        }
        let operator = match operator {
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            other => return Err(format!("\"{other}\" is none of <, <=, >, >=")),
        };
        let value = match value.parse() {
            Ok(number) => Side::Number(number),
            Err(_) => Side::Policy(known(value)?),
        };
        Ok(Self { policy, figure: figure.into(), operator, value, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    fn claims(expect: &str) -> Claims {
        let text = format!(
            "[[claim]]\nexperiment = \"kato-10\"\nfigure = \"f\"\ntext = \"t\"\nexpect = [{expect}]"
        );
        Claims::parse(&text).unwrap()
    }

    fn verdict(expect: &str) -> Verdict {
        let (mut ours, other) = (outcome("g-edf+fcbs"), outcome("deadline"));
        ours.metrics.miss_ratio = 0.01;
        claims(expect).about("kato-10", &[&ours, &other])[0].verdict
    }

    #[test]
    fn a_claim_holds_if_all_expectations_do_and_differs_if_none_does() {
        let (yes, no) = ("\"fcbs miss_ratio < deadline\"", "\"deadline jobs < 3\"");
        assert_eq!(verdict(yes), Verdict::Holds);
        assert_eq!(verdict(no), Verdict::Differs);
        assert_eq!(verdict(&format!("{yes}, {no}")), Verdict::Partly);
        assert_eq!(verdict("\"all worst_second >= 24\""), Verdict::Holds);
        assert_eq!(verdict("\"deadline miss_ratio > fcbs + 0.5\""), Verdict::Differs);
        assert_eq!(verdict("\"deadline jobs <= fcbs + 0.5\""), Verdict::Holds);
        assert_eq!(verdict("\"all miss_ratio <= 0.01\""), Verdict::Partly);
    }

    #[test]
    fn the_reason_is_given_only_for_a_claim_that_does_not_hold() {
        let text = "[[claim]]\nexperiment = \"e\"\nfigure = \"f\"\ntext = \"t\"\n\
                    otherwise = \"today's frames are longer\"\n";
        let why = |expect: &str| {
            let claims = Claims::parse(&format!("{text}expect = [\"{expect}\"]")).unwrap();
            claims.about("e", &[&outcome("deadline")])[0].why.clone()
        };
        assert_eq!(why("deadline jobs < 3").as_deref(), Some("today's frames are longer"));
        assert_eq!(why("deadline jobs > 3"), None);
        assert_eq!(why("fifo jobs > 3"), None);
        let wrong = Claims::parse(&text.replace("\"today's frames are longer\"", "3")).unwrap_err();
        assert!(wrong.to_string().contains("otherwise"), "{wrong}");
    }

    #[test]
    fn what_did_not_run_is_not_judged() {
        assert_eq!(verdict("\"fifo jobs > 3\""), Verdict::Open);
        assert_eq!(verdict("\"fcbs jobs > fifo\""), Verdict::Open);
        assert_eq!(verdict("\"fcbs jobs > 3\", \"fcbs jobs > fifo\""), Verdict::Open);
        assert_eq!(verdict(""), Verdict::Open);
    }

    #[test]
    fn measured_values_are_named_once() {
        let (a, b) = (outcome("g-edf+fcbs"), outcome("deadline"));
        let both = claims("\"fcbs worst_second >= deadline\", \"fcbs worst_second > 3\"");
        let claim = &both.about("kato-10-decode", &[&a, &b])[0];
        assert_eq!(claim.ours, "worst second: g-edf+fcbs 24, deadline 24");
        assert_eq!(claim.id, "kato-10-decode");
        let mut few = outcome("g-edf+fcbs");
        few.metrics.miss_ratio = 0.0014;
        let claim = &claims("\"fcbs miss_ratio < deadline\"").about("kato-10", &[&few, &b])[0];
        assert!(
            claim.ours.starts_with("miss ratio: g-edf+fcbs 0.0014, deadline "),
            "{}",
            claim.ours
        );
        assert!(both.about("kato-1", &[&a]).is_empty());
    }

    #[test]
    fn mistakes_in_the_file_are_named() {
        for (expect, part) in [
            ("fcbs jobs >", "POLICY FIGURE OPERATOR VALUE"),
            ("nobody jobs > 3", "there is no policy"),
            ("fcbs beauty > 3", "no figure"),
            ("fcbs jobs ~ 3", "none of"),
            ("fcbs jobs > fifo + some", "[+ NUMBER]"),
        ] {
            let text = format!(
                "[[claim]]\nexperiment = \"e\"\nfigure = \"f\"\ntext = \"t\"\nexpect = [\"{expect}\"]"
            );
            let error = Claims::parse(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn every_claim_of_the_repository_is_about_an_experiment_and_its_policies() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments");
        let text = std::fs::read_to_string(format!("{folder}/claims/kato.toml")).unwrap();
        for claim in Claims::parse(&text).unwrap().claims {
            let file = format!("{folder}/{}.toml", claim.experiment);
            let set = onbeat_model::taskset::TaskSet::load(file).unwrap();
            let runs = |p: &String| set.policies.iter().any(|q| q.to_string() == *p);
            for e in &claim.expect {
                assert!(e.policy.as_ref().is_none_or(runs), "{e:?}");
                assert!(!matches!(&e.value, Side::Policy(p) if !runs(p)), "{e:?}");
            }
        }
    }
}
