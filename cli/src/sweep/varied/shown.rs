// SPDX-License-Identifier: GPL-2.0-only
//! What a sweep over a task set found: for people, for programs, as a picture.

use std::fmt::Write as _;

use anyhow::Result;
use onbeat_report::html::Verdict;
use onbeat_report::plot::{Curve, Panel, panels};
use serde_json::{Value, json};

use super::Values;
use super::file::{Figure, Varied};
use crate::mean::Mean;

/// All that was found.
pub struct Table<'a> {
    sweep: &'a Varied,
    values: &'a Values,
}

impl<'a> Table<'a> {
    /// Of this sweep.
    pub fn new(sweep: &'a Varied, values: &'a Values) -> Self {
        Self { sweep, values }
    }

    fn at(&self, figure: usize, configuration: usize, point: usize) -> Mean {
        let scale = self.sweep.figures[figure].scale;
        self.values.mean(figure, configuration, point).times(scale)
    }

    /// A table for each figure, then the claims.
    pub fn to_text(&self) -> String {
        let replications = self.sweep.replications;
        let narrowed = self.sweep.figures.iter().any(|figure| figure.reach.is_some());
        let most = if narrowed { "at most " } else { "" };
        let mut text = match replications {
            1 => format!("{}, 1 replication\n", self.sweep.title),
            n => {
                let what = "mean ± 95 % confidence interval";
                format!("{}, {most}{n} replications, {what}\n", self.sweep.title)
            }
        };
        for (f, figure) in self.sweep.figures.iter().enumerate() {
            let _ = writeln!(text, "\n{}: {}, {}", figure.name, figure.title, figure.unit);
            let _ = write!(text, "{:>8}", "");
            for configuration in &self.sweep.configurations {
                let _ = write!(text, " {:>20}", configuration.name);
            }
            text.push('\n');
            for (p, x) in self.values.x.iter().enumerate() {
                let _ = write!(text, "{x:>8}");
                for c in 0..self.sweep.configurations.len() {
                    let mean = self.at(f, c, p);
                    let mut shown = match mean.n {
                        0 => "-".into(),
                        1 => format!("{:.3}", mean.value),
                        _ => format!("{:.3} ±{:.3}", mean.value, mean.reach),
                    };
                    if mean.n > 0 && (mean.n as u64) < replications {
                        let _ = write!(shown, " n={}", mean.n);
                    }
                    let _ = write!(text, " {shown:>20}");
                }
                text.push('\n');
            }
        }
        for claim in &self.sweep.claims {
            let (verdict, against) = claim.judge(self.sweep, self.values);
            let _ = writeln!(text, "\n{} {}: {}", claim.figure, word(verdict), claim.text);
            against.iter().for_each(|why| text.push_str(&format!("    {why}\n")));
            if let (Verdict::Partly | Verdict::Differs, Some(why)) = (verdict, &claim.otherwise) {
                let _ = writeln!(text, "    {why}");
            }
        }
        text
    }

    /// The same for programs, with the values of all replications.
    pub fn to_json(&self) -> String {
        let point = |f: usize, c: usize, p: usize| {
            let Mean { value, reach, n, least, most } = self.at(f, c, p);
            json!({"x": self.values.x[p], "n": n, "mean": number(value), "reach": (n > 1).then_some(reach),
                   "least": number(least), "most": number(most)})
        };
        let curves = |f: usize| -> Vec<Value> {
            let curve = |(c, name): (usize, &String)| {
                let points: Vec<Value> = (0..self.values.x.len()).map(|p| point(f, c, p)).collect();
                json!({"configuration": name, "points": points})
            };
            self.sweep.configurations.iter().map(|c| &c.name).enumerate().map(curve).collect()
        };
        let figure = |(f, figure): (usize, &Figure)| {
            let Figure { name, title, unit, .. } = figure;
            json!({"name": name, "title": title, "unit": unit, "curves": curves(f)})
        };
        let claim = |claim: &super::claims::Claim| {
            let (verdict, against) = claim.judge(self.sweep, self.values);
            json!({"figure": claim.figure, "text": claim.text, "verdict": word(verdict), "against": against})
        };
        let object = json!({
            "title": self.sweep.title,
            "world": "sim",
            "replications": self.sweep.replications,
            "axis": self.sweep.axis,
            "figures": self.sweep.figures.iter().enumerate().map(figure).collect::<Vec<_>>(),
            "claims": self.sweep.claims.iter().map(claim).collect::<Vec<_>>(),
        });
        format!("{object:#}\n")
    }

    /// A row for each figure, configuration, point and replication.
    pub fn to_csv(&self) -> String {
        let mut text = "figure,configuration,x,replication,value\n".to_owned();
        for (f, figure) in self.sweep.figures.iter().enumerate() {
            for (c, configuration) in self.sweep.configurations.iter().enumerate() {
                for (x, values) in self.values.x.iter().zip(&self.values.of[f][c]) {
                    for (r, value) in values.iter().enumerate() {
                        let value = value * figure.scale;
                        let _ = writeln!(
                            text,
                            "{},{},{x},{r},{value}",
                            figure.name, configuration.name
                        );
                    }
                }
            }
        }
        text
    }

    /// A panel for each figure.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn plot(&self) -> Result<String> {
        let all: Vec<Panel> = (0..self.sweep.figures.len()).map(|f| self.panel(f)).collect();
        Ok(panels(&all)?)
    }

    fn panel(&self, f: usize) -> Panel {
        let (figure, x) = (&self.sweep.figures[f], &self.values.x);
        let count = self.sweep.configurations.len();
        let gap = x.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        let gap = if gap.is_finite() { gap } else { 1.0 };
        // Side by side around their x, as in the paper: intervals that lie over each other cannot be read.
        let apart = if self.sweep.replications > 1 { gap * 0.4 / count as f64 } else { 0.0 };
        let curve = |c: usize| {
            let means: Vec<Mean> = (0..x.len()).map(|p| self.at(f, c, p)).collect();
            let aside = apart * (c as f64 - (count - 1) as f64 / 2.0);
            let floor = |value: f64| match figure.logarithmic {
                true if value < LOG_FLOOR => LOG_FLOOR,
                _ => value,
            };
            Curve {
                name: self.sweep.configurations[c].name.clone(),
                points: x.iter().zip(&means).map(|(x, m)| (x + aside, floor(m.value))).collect(),
                reach: means.iter().map(|mean| mean.reach).collect(),
                // Nothing is between one task set and the next.
                marks_only: self.sweep.bases.len() > 1,
            }
        };
        let curves: Vec<Curve> = (0..count).map(curve).collect();
        let tops = curves
            .iter()
            .flat_map(|c| c.points.iter().zip(&c.reach).map(|(point, reach)| point.1 + reach));
        let level = figure.level.as_ref().map_or(0.0, |level| level.0);
        let top = tops.filter(|y| y.is_finite()).fold(level, f64::max);
        let low = if figure.logarithmic { LOG_FLOOR } else { 0.0 };
        Panel {
            title: format!("{}: {}", figure.name, figure.title),
            axes: (self.sweep.axis.clone(), figure.unit.clone()),
            x: (x.first().unwrap_or(&0.0) - gap / 2.0, x.last().unwrap_or(&1.0) + gap / 2.0),
            y: (low, if top > low { top * 1.05 } else { low + 1.0 }),
            curves,
            limit: None,
            level: figure.level.clone(),
            logarithmic: figure.logarithmic,
        }
    }
}

/// What is drawn at the foot of a logarithmic axis: that and less.
const LOG_FLOOR: f64 = 0.01;

fn number(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Partly => "holds in part",
        Verdict::Differs => "differs",
        Verdict::Open => "is open",
    }
}
