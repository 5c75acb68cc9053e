//! Traces of delays: lines `SECONDS,DELAY_MS`, by rising times since the traffic began; the last delay stays.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nilometer_files::document::bounded::{LINES_BYTES_MAX, read_text};
use nilometer_wire::Span;

/// The longest delay, and so the longest of each time in a specification.
pub(super) const DELAY_MAX: Span = Span::from_nanos(10_000_000_000);
/// Steps of a trace at most.
const STEPS_MAX: usize = 1 << 20;

/// A trace that a specification names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trace {
    path: PathBuf,
    /// The text of its file, once it has been read.
    pub text: String,
}

impl Trace {
    /// A trace that is yet to be read.
    pub fn named(path: &str) -> Trace {
        Trace { path: PathBuf::from(path), text: String::new() }
    }

    /// Reads it, relative to `folder`: the delays, each with the time from which it applies.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn read(&mut self, folder: &Path) -> Result<Vec<(Span, Span)>> {
        let path = folder.join(&self.path);
        self.text = read_text(&path, LINES_BYTES_MAX)?;
        steps(&path.display().to_string(), &self.text)
    }
}

/// The steps of the text of a trace, which is shown as `shown`.
fn steps(shown: &str, text: &str) -> Result<Vec<(Span, Span)>> {
    let mut steps: Vec<(Span, Span)> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let is_heading = steps.is_empty() && line.starts_with(|first: char| first.is_alphabetic());
        if line.is_empty() || is_heading {
            continue;
        }
        let step = step(line).with_context(|| format!("{shown}, line {number}"))?;
        let rises = steps.last().is_none_or(|last| last.0 < step.0);
        ensure!(rises, "{shown}, line {number}: times must rise from line to line");
        ensure!(steps.len() < STEPS_MAX, "{shown}: a trace has {STEPS_MAX} steps at most");
        steps.push(step);
    }
    if steps.is_empty() {
        bail!("{shown}: no steps; write lines SECONDS,DELAY_MS, for instance 0,20");
    }
    Ok(steps)
}

fn step(line: &str) -> Result<(Span, Span)> {
    let numbers = line.split_once(',').and_then(|(seconds, delay_ms)| {
        Some((seconds.trim().parse().ok()?, delay_ms.trim().parse().ok()?))
    });
    let (seconds, delay_ms): (f64, f64) = numbers.with_context(|| {
        format!("{line:?} is not of the form SECONDS,DELAY_MS, for instance 0,20")
    })?;
    let most_ms = DELAY_MAX.as_secs_f64() * 1e3;
    ensure!((0.0..=1e6).contains(&seconds), "{seconds} s is not from 0 to 1,000,000 s");
    ensure!((0.0..=most_ms).contains(&delay_ms), "{delay_ms} ms is not from 0 to {most_ms} ms");
    Ok((Span::from_secs_f64(seconds), Span::from_secs_f64(delay_ms / 1e3)))
}
