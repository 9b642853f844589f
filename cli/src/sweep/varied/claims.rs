// SPDX-License-Identifier: GPL-2.0-only
//! What is claimed of a sweep's figures, each claim with its verdict.

use anyhow::{Result, ensure};
use onbeat_report::html::Verdict;
use serde::Deserialize;

use super::Values;
use super::file::Varied;

/// A claim about one figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the figure.
    pub figure: String,
    /// What is claimed, in a sentence.
    pub text: String,
    /// It holds if all of these do, at all their points.
    expect: Vec<Expectation>,
    /// Why it may not hold here.
    pub otherwise: Option<String>,
}

/// `SIDE OPERATOR SIDE [at X | at X..Y]`. A side is a number, or a configuration, perhaps with `.least`, `.most` (of
/// the replications), `.low` or `.high` (the ends of the interval), perhaps with `* NUMBER`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct Expectation {
    text: String,
    left: Side,
    operator: String,
    right: Side,
    at: Option<(f64, f64)>,
}

#[derive(Debug, Clone)]
enum Side {
    Number(f64),
    Of { configuration: String, what: What, factor: f64 },
}

#[derive(Debug, Clone, Copy)]
enum What {
    Mean,
    Least,
    Most,
    Low,
    High,
}

impl Claim {
    /// Whether all that it names is there.
    ///
    /// # Errors
    /// It names something else.
    pub fn check(&self, sweep: &Varied) -> Result<()> {
        let known = sweep.figures.iter().any(|figure| figure.name == self.figure);
        ensure!(known, "a claim is about \"{}\", which is no [[figure]]", self.figure);
        for e in &self.expect {
            for side in [&e.left, &e.right] {
                let Side::Of { configuration, .. } = side else { continue };
                let known = sweep.configurations.iter().any(|c| c.name == *configuration);
                ensure!(known, "\"{}\": \"{configuration}\" is no [[configuration]]", e.text);
            }
            let within = |x: f64| e.at.is_none_or(|(from, to)| (from..=to).contains(&x));
            let some = sweep.over_time.is_some() || sweep.points.iter().any(|p| within(p.x));
            ensure!(some, "\"{}\" is about no point", e.text);
        }
        Ok(())
    }

    /// Whether it holds; and each expectation that does not, with where and by how much.
    pub fn judge(&self, sweep: &Varied, values: &Values) -> (Verdict, Vec<String>) {
        let figure = sweep.figures.iter().position(|f| f.name == self.figure).unwrap_or(0);
        let scale = sweep.figures[figure].scale;
        let mut against = Vec::new();
        for e in &self.expect {
            let within = |x: f64| e.at.is_none_or(|(from, to)| (from..=to).contains(&x));
            let mut points = (0..values.x.len()).filter(|p| within(values.x[*p])).peekable();
            // A claim does not hold of what nobody has seen.
            let failed = match points.peek() {
                None => Some("nothing measured".into()),
                Some(_) => points.find_map(|point| {
                    let side = |side: &Side| side.value(sweep, values, figure, point, scale);
                    let why = match (side(&e.left), side(&e.right)) {
                        (Ok(left), Ok(right)) if e.holds(left, right) => return None,
                        (Ok(left), Ok(right)) => format!("{left:.4} and {right:.4}"),
                        (Err(why), _) | (_, Err(why)) => why.to_owned(),
                    };
                    Some(format!("{why} at {}", values.x[point]))
                }),
            };
            if let Some(why) = failed {
                against.push(format!("not \"{}\": {why}", e.text));
            }
        }
        let verdict = match against.len() {
            0 => Verdict::Holds,
            n if n == self.expect.len() => Verdict::Differs,
            _ => Verdict::Partly,
        };
        (verdict, against)
    }
}

impl Side {
    /// What it is at a point, or why it is nothing there.
    fn value(
        &self,
        sweep: &Varied,
        values: &Values,
        figure: usize,
        point: usize,
        scale: f64,
    ) -> Result<f64, &'static str> {
        let (configuration, what, factor) = match self {
            Side::Number(number) => return Ok(*number),
            Side::Of { configuration, what, factor } => (configuration, what, factor),
        };
        let at = sweep.configurations.iter().position(|c| c.name == *configuration).unwrap_or(0);
        let mean = values.mean(figure, at, point);
        if mean.n == 0 {
            return Err("nothing measured");
        }
        if mean.n == 1 && matches!(what, What::Low | What::High) {
            return Err("one value has no interval");
        }
        let value = match what {
            What::Mean => mean.value,
            What::Least => mean.least,
            What::Most => mean.most,
            What::Low => mean.value - mean.reach,
            What::High => mean.value + mean.reach,
        };
        Ok(value * factor * scale)
    }
}

impl Expectation {
    fn holds(&self, left: f64, right: f64) -> bool {
        match self.operator.as_str() {
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            _ => left >= right,
        }
    }
}

impl TryFrom<String> for Expectation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not SIDE OPERATOR SIDE [* NUMBER] [at X | at X..Y]");
        let words: Vec<&str> = text.split_whitespace().collect();
        let (words, at) = match words[..] {
            [.., "at", at] => {
                let (from, to) = at.split_once("..").unwrap_or((at, at));
                let ends = from.parse().ok().zip(to.parse().ok());
                (&words[..words.len() - 2], Some(ends.ok_or_else(wrong)?))
            }
            _ => (&words[..], None),
        };
        let operator = words.iter().position(|word| ["<", "<=", ">", ">="].contains(word));
        let operator = operator.ok_or_else(wrong)?;
        let side = |words: &[&str]| -> Result<Side, String> {
            let (name, factor) = match words {
                [name] => (*name, 1.0),
                [name, "*", factor] => (*name, factor.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            };
            if let Ok(number) = name.parse::<f64>() {
                return Ok(Side::Number(number * factor));
            }
            let ends = [
                (".least", What::Least),
                (".most", What::Most),
                (".low", What::Low),
                (".high", What::High),
            ];
            let found =
                ends.into_iter().find_map(|(end, what)| Some((name.strip_suffix(end)?, what)));
            let (name, what) = found.unwrap_or((name, What::Mean));
            Ok(Side::Of { configuration: name.to_owned(), what, factor })
        };
        let (left, right) = (side(&words[..operator])?, side(&words[operator + 1..])?);
        Ok(Self { operator: words[operator].to_owned(), left, right, at, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_read_in_all_their_forms_and_others_are_refused() {
        for text in [
            "a >= 1.1",
            "a.least < 1.1 at 22",
            "a.low > b.high at 21..57",
            "a < b.most * 0.01",
            "2 * 3 <= a",
        ] {
            Expectation::try_from(text.to_owned()).unwrap();
        }
        for text in ["a", "a = 1", "a > ", "a > b at x", "a > b * c", "a b > c", "a > b at 1.."] {
            Expectation::try_from(text.to_owned()).unwrap_err();
        }
    }
}
