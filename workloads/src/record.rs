// SPDX-License-Identifier: GPL-2.0-only
//! Recording what a movie costs, so that the same load can be replayed exactly.

use crate::movie::Movie;
use crate::sys;
use anyhow::{Result, ensure};
use std::fmt::Write;

/// Shape of the movie of Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive real-time
/// applications", figure 6 and section 7.1: most frames, which is read as this share of them, ...
const MAJORITY: f64 = 0.92;
/// ... take less than this time, ns, ...
const MAJORITY_BELOW: f64 = 25e6;
/// ... and the longest about this, ns.
const LONGEST: f64 = 45e6;

/// CPU time to decode and convert each picture of the movie, ns, the least of `passes` passes:
/// whatever disturbs a pass can only add.
///
/// # Errors
/// When the video is damaged, or `passes` is 0.
pub fn frame_times(movie: &mut Movie, passes: u32) -> Result<Vec<u64>> {
    ensure!(passes > 0, "--passes must be at least 1");
    let mut best = vec![u64::MAX; movie.pictures()];
    for _ in 0..best.len() {
        movie.show()?;
    }
    for pass in 1..=passes {
        for _ in 0..best.len() {
            let at = movie.position();
            let begin = sys::thread_cpu();
            movie.show()?;
            best[at] = best[at].min(sys::thread_cpu() - begin);
        }
        eprintln!("pass {pass} of {passes}");
    }
    Ok(best)
}

/// Maps times by t -> 25 ms (t / q)^g, where q is the 92 % quantile and g such that the longest
/// becomes 45 ms. Order is kept: a longer frame stays longer. Returns g, too.
///
/// `None` when the frames do not differ enough for such a map.
pub fn scale(times: &[u64]) -> Option<(Vec<u64>, f64)> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let last = *sorted.last()? as f64;
    let middle = sorted[(MAJORITY * sorted.len() as f64) as usize] as f64;
    if middle <= 0.0 || last <= middle {
        return None;
    }
    let power = (LONGEST / MAJORITY_BELOW).ln() / (last / middle).ln();
    let map = |&t: &u64| (MAJORITY_BELOW * (t as f64 / middle).powf(power)).round() as u64;
    Some((times.iter().map(map).collect(), power))
}

/// The text of a trace file: comments that say how it was made, then ns per job, one a line.
///
/// # Errors
/// When the times are to be scaled and cannot be.
pub fn trace(movie: &str, times: &[u64], passes: u32, scaled: bool) -> Result<String> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let mean = |t: &[u64]| ms(t.iter().sum()) / t.len().max(1) as f64;
    let most = |t: &[u64]| ms(t.iter().copied().max().unwrap_or(0));
    let mut text = format!(
        "# CPU time per job in ns: decoding one H.264 picture and converting it to RGB.\n\
         # Recorded with: onbeat-play {movie} --record --passes {passes}{}\n\
         # {} pictures, the least time of {passes} passes each; as recorded: mean {:.3} ms, \
         longest {:.3} ms.\n",
        if scaled { " --scale" } else { "" },
        times.len(),
        mean(times),
        most(times),
    );
    let mut out = times.to_vec();
    if scaled {
        let Some((mapped, power)) = scale(times) else {
            anyhow::bail!("the pictures of {movie} all cost the same; record without --scale");
        };
        out = mapped;
        let below = out.iter().filter(|&&t| (t as f64) < MAJORITY_BELOW).count();
        writeln!(
            text,
            "# Scaled to the movie of Kato, Ishikawa and Rajkumar, \"CPU scheduling and memory management \
             for interactive real-time applications\"\n# (figure 6: most frames under 25 ms, longest about 45 ms) \
             by\n# t -> 25 ms * (t / q)^{power:.4}, q the 92 % quantile: order is kept.\n\
             # Now: mean {:.3} ms, longest {:.3} ms, {:.1} % of the frames under 25 ms.",
            mean(&out),
            most(&out),
            100.0 * below as f64 / out.len() as f64,
        )?;
    }
    for time in out {
        writeln!(text, "{time}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u64> {
        (0..100).map(|i| 200_000 + i * i * 180).rev().collect()
    }

    #[test]
    fn scaling_keeps_the_order_and_meets_the_papers_two_numbers() {
        let times = sample();
        let (scaled, power) = scale(&times).unwrap();
        assert!(power > 0.0);
        assert!(scaled.is_sorted_by(|a, b| a >= b), "the sample falls, so must its image");
        assert_eq!(scaled.iter().max(), Some(&45_000_000));
        assert_eq!(scaled.iter().filter(|&&t| t < 25_000_000).count(), 92);
    }

    #[test]
    fn times_that_are_all_equal_are_refused() {
        assert!(trace("flat.mp4", &[5; 10], 1, true).is_err());
        assert!(trace("flat.mp4", &[5; 10], 1, false).is_ok());
    }

    #[test]
    fn a_trace_is_comments_and_then_one_number_a_line() {
        let text = trace("m.mp4", &sample(), 3, true).unwrap();
        let (comments, numbers): (Vec<_>, Vec<_>) =
            text.lines().partition(|line| line.starts_with('#'));
        assert!(comments.len() >= 4);
        assert_eq!(numbers.len(), 100);
        assert!(numbers.iter().all(|n| n.parse::<u64>().is_ok()));
    }
}
