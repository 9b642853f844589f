// SPDX-License-Identifier: GPL-2.0-only
//! The `work` of a task: exactly one kind, its parameters, and for a trace its file.

use std::path::Path;

use super::parse::line_of;
use super::table::{self, At, Fault, Table, fault};
use super::{Work, limits, pool};
use crate::units::{US, clip};

const KINDS: [&str; 8] =
    ["constant", "uniform", "normal", "exponential", "trace", "pool", "movie", "program"];

/// Reads the work of one task; traces are looked for in `folder`.
pub(super) fn work(folder: &Path, task: &Table<'_, '_>) -> Result<Work, Fault> {
    const LIKE: &str = "{ constant = \"20ms\" }";
    const FIELDS: [&str; 11] = [
        KINDS[0], KINDS[1], KINDS[2], KINDS[3], KINDS[4], KINDS[5], KINDS[6], KINDS[7], "start",
        "width", "height",
    ];
    let Some(w) = task.table("work", "work", LIKE, &FIELDS)? else {
        return fault(task.at, "[[task]] has no \"work\"", format!("add work = {LIKE}"));
    };
    let given: Vec<&str> = KINDS.into_iter().filter(|k| w.value(k).is_some()).collect();
    let kind = match given[..] {
        [kind] => kind,
        [] => {
            let remedy = format!("give one of {}", KINDS.join(", "));
            return fault(w.at, "work names no kind", remedy);
        }
        _ => {
            let reason = format!("work names several kinds: {}", given.join(", "));
            return fault(w.at, reason, "keep exactly one of them");
        }
    };
    for (field, owner) in [("start", "trace"), ("width", "movie"), ("height", "movie")] {
        if let Some(v) = w.value(field)
            && kind != owner
        {
            let reason = format!("work has \"{field}\", which belongs to {owner}, not {kind}");
            return fault(v.span().start, reason, format!("remove {field}"));
        }
    }
    match kind {
        "constant" => {
            let d = w.duration(kind, 1, limits::TIME)?;
            Ok(Work::Constant(w.required(kind, "\"20ms\"", d)?.value))
        }
        "uniform" => uniform(&w),
        "normal" => normal(&w),
        "exponential" => exponential(&w),
        "trace" => trace(folder, &w),
        "pool" => pool::read(folder, &w),
        "movie" => movie(&w),
        _ => program(&w),
    }
}

fn trace(folder: &Path, w: &Table<'_, '_>) -> Result<Work, Fault> {
    let path = w.required("trace", "\"traces/movie.csv\"", w.string("trace")?)?;
    let start = w.integer("start", 0, i64::MAX)?;
    let file = folder.join(path.value);
    let bytes = super::read_limited(&file, limits::TRACE_BYTES).map_err(|(reason, remedy)| {
        Fault { at: path.at, reason: format!("the trace {} {reason}", file.display()), remedy }
    })?;
    let values = trace_values(&bytes).map_err(|(line, reason, remedy)| {
        let place = line.map_or_else(String::new, |l| format!(":{l}"));
        let reason = format!("the trace {}{place} {reason}", file.display());
        Fault { at: path.at, reason, remedy: remedy.into() }
    })?;
    let begin = start.as_ref().map_or(0, |s| s.value as u64);
    if begin >= values.len() as u64 {
        let reason = format!("start = {begin} is past the trace's {} values", values.len());
        let remedy = format!("choose start between 0 and {}", values.len() - 1);
        return fault(start.map_or(w.at, |s| s.at), reason, remedy);
    }
    Ok(Work::Trace { path: path.value.into(), start: begin as usize, values: values.into() })
}

/// Reads a trace of execution times, ns, at least one value.
///
/// # Errors
/// The file cannot be read or holds something else; with line and remedy.
pub fn load_trace(path: &Path) -> Result<Vec<u64>, super::LoadError> {
    let error = |line, reason, remedy| super::LoadError { file: path.into(), line, reason, remedy };
    let bytes = super::read_limited(path, limits::TRACE_BYTES)
        .map_err(|(reason, remedy)| error(None, reason, remedy))?;
    trace_values(&bytes)
        .map_err(|(line, reason, remedy)| error(line, format!("the trace {reason}"), remedy.into()))
}

/// Values of a trace: one number of ns a line; empty lines and lines that begin with `#` are skipped.
/// On failure the line, the reason, and the remedy.
#[allow(clippy::type_complexity)]
fn trace_values(bytes: &[u8]) -> Result<Vec<u64>, (Option<usize>, String, &'static str)> {
    const FORM: &str = "write one whole number of nanoseconds a line";
    let text = std::str::from_utf8(bytes)
        .map_err(|e| (Some(line_of(bytes, e.valid_up_to())), "is not text".to_string(), FORM))?;
    let mut values = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = |what: String, remedy| Err((Some(i + 1), what, remedy));
        let value: u64 = match line.parse() {
            Ok(value) => value,
            Err(_) => return fail(format!("holds \"{}\", which is no number", clip(line)), FORM),
        };
        if value == 0 || value > limits::TIME {
            return fail(format!("holds {value} ns"), "keep values between 1 ns and 1 h");
        }
        values.push(value);
    }
    if values.is_empty() { Err((None, "holds no values".into(), FORM)) } else { Ok(values) }
}

fn uniform(w: &Table<'_, '_>) -> Result<Work, Fault> {
    const LIKE: &str = "[\"5ms\", \"30ms\"]";
    let list = w.required("uniform", LIKE, w.array("uniform", LIKE)?)?;
    let items: Vec<_> = list.value.iter().collect();
    let [low, high] = items[..] else {
        let count = items.len();
        let bounds = if count == 1 { "bound" } else { "bounds" };
        let reason = format!("uniform has {count} {bounds} instead of two");
        return fault(list.at, reason, format!("write uniform = {LIKE}"));
    };
    let low = table::duration(low, "uniform", 1, limits::TIME)?.value;
    let high = table::duration(high, "uniform", 1, limits::TIME)?;
    if low > high.value {
        let remedy = "write the smaller bound first";
        return fault(high.at, "uniform ends below its beginning", remedy);
    }
    Ok(Work::Uniform(low, high.value))
}

/// Mean and max of a truncated distribution; the mean inside, so that draws end soon.
fn mean_max(t: &Table<'_, '_>) -> Result<(u64, u64), Fault> {
    let mean = t.required("mean", "\"15ms\"", t.duration("mean", 2 * US, limits::TIME)?)?;
    let max = t.required("max", "\"45ms\"", t.duration("max", 2 * US, limits::TIME)?)?;
    if mean.value > max.value {
        return fault(mean.at, "the mean is above the max", "raise max or lower mean");
    }
    Ok((mean.value, max.value))
}

fn normal(w: &Table<'_, '_>) -> Result<Work, Fault> {
    const LIKE: &str = "{ mean = \"15ms\", sd = \"5ms\", max = \"45ms\" }";
    let Some(t) = w.table("normal", "normal", LIKE, &["mean", "sd", "max"])? else {
        return fault(w.at, "work has no normal", format!("write normal = {LIKE}"));
    };
    let (mean, max) = mean_max(&t)?;
    let sd = t.required("sd", "\"5ms\"", t.duration("sd", 0, limits::TIME)?)?;
    if sd.value > max {
        let remedy = "lower sd, or use uniform: so wide a normal distribution is nearly that";
        return fault(sd.at, "the deviation is above the max", remedy);
    }
    Ok(Work::Normal { mean, sd: sd.value, max })
}

fn exponential(w: &Table<'_, '_>) -> Result<Work, Fault> {
    const LIKE: &str = "{ mean = \"15ms\", max = \"45ms\" }";
    let Some(t) = w.table("exponential", "exponential", LIKE, &["mean", "max"])? else {
        return fault(w.at, "work has no exponential", format!("write exponential = {LIKE}"));
    };
    let (mean, max) = mean_max(&t)?;
    Ok(Work::Exponential { mean, max })
}

fn movie(w: &Table<'_, '_>) -> Result<Work, Fault> {
    let path = w.required("movie", "\"bigbuckbunny.mp4\"", w.string("movie")?)?;
    if path.value.is_empty() || path.value.contains('\0') {
        return fault(path.at, "movie names no file", "write the path of an H.264 movie");
    }
    let side = |key| -> Result<Option<At<i64>>, Fault> { w.integer(key, 16, 8192) };
    let size = match (side("width")?, side("height")?) {
        (Some(x), Some(y)) => Some((x.value as u32, y.value as u32)),
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => {
            return fault(one.at, "only one of width and height is given", "give both or none");
        }
    };
    Ok(Work::Movie { path: path.value.into(), size })
}

fn program(w: &Table<'_, '_>) -> Result<Work, Fault> {
    const LIKE: &str = "[\"cmd\", \"arg\"]";
    let list = w.required("program", LIKE, w.array("program", LIKE)?)?;
    let mut argv = Vec::new();
    for item in list.value.iter() {
        let arg = table::string(item, "program")?;
        if arg.value.contains('\0') {
            return fault(arg.at, "a program argument holds a NUL character", "remove it");
        }
        argv.push(arg.value.to_string());
    }
    if argv.first().is_none_or(String::is_empty) {
        return fault(list.at, "program names no command", format!("write program = {LIKE}"));
    }
    Ok(Work::Program(argv))
}
