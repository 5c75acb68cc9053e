//! Progress: what the run is doing, on stderr, and a log of it that survives a killed run.

use nilometer_files::say;
use std::fs::File;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::leg::LegLive;
use nilometer_files::document::results::ResultFile;
use nilometer_files::input::records::Progress;
use nilometer_files::terminal::plain;

/// How often a display is drawn.
const TICK: Duration = Duration::from_millis(200);

/// A display on stderr: a bar on a terminal, a line for each phase elsewhere.
pub struct Display {
    bar: Option<ProgressBar>,
}

/// One line of `live.ndjson`: where the run was at that second.
#[derive(Serialize)]
struct LiveLine {
    elapsed_s: f64,
    started: u64,
    completed: u64,
    failed: u64,
    payload_bytes: u64,
    packets_in: u64,
    packets_out: u64,
    packets_lost: u64,
    lateness_max_ns: u64,
}

impl Display {
    /// Finds out whether the output is a terminal.
    pub fn new() -> Display {
        let bar = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} [{bar:20}] {prefix}")
                .expect("a built-in template");
            ProgressBar::new(1_000).with_style(style)
        });
        Display { bar }
    }

    /// Inputs will be read. A log does not show this: they may still be refused, and a refusal
    /// is one line.
    pub fn reading_begins(&self, what: &str) {
        if self.bar.is_some() {
            self.phase(what);
        }
    }

    /// A new phase begins.
    pub fn phase(&self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_prefix("");
                bar.set_position(0);
                bar.set_message(plain(what).into_owned());
            }
            None => say!("{what}"),
        }
    }

    /// What makes figures suspect, and is known before any is taken.
    pub fn warn(&self, warning: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("warning: {warning}")),
            None => say!("warning: {warning}"),
        }
    }

    /// An input is being read.
    pub fn reading(&self, progress: &Progress<'_>) {
        if let (Some(bar), Some(total)) = (&self.bar, progress.total_bytes) {
            bar.set_position(progress.read_bytes * 1_000 / total.max(1));
            bar.set_prefix(format!("{} packets of {}", progress.packets, plain(progress.name)));
        }
    }

    /// Runs `work` and shows `live` meanwhile; `log` gets a line each second.
    pub fn during<T>(
        &self,
        live: &LegLive,
        seconds: f64,
        log: Option<&ResultFile>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let log = log.map(ResultFile::create).transpose()?;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.watch(live, seconds, log, &done));
            let made = work();
            done.store(true, Ordering::Release);
            made
        })
    }

    fn watch(&self, live: &LegLive, seconds: f64, mut log: Option<File>, done: &AtomicBool) {
        let began = Instant::now();
        let mut next_line = Duration::from_secs(1);
        while !done.load(Ordering::Acquire) {
            thread::sleep(TICK);
            let line = line(live, began.elapsed());
            self.draw(&line, seconds);
            if began.elapsed() >= next_line {
                next_line += Duration::from_secs(1);
                if let Some(file) = &mut log {
                    let text = serde_json::to_string(&line).expect("numbers are JSON");
                    // A log that cannot be written must not end the run it is about.
                    let _ = writeln!(file, "{text}");
                }
            }
        }
    }

    fn draw(&self, line: &LiveLine, seconds: f64) {
        let Some(bar) = &self.bar else { return };
        bar.set_position((line.elapsed_s / seconds.max(0.1) * 1_000.0).min(1_000.0) as u64);
        bar.set_prefix(format!(
            "{:.0} of {seconds:.0} s · {} connections · {:.1} MB · {} packets in · {} lost",
            line.elapsed_s.min(seconds),
            line.completed,
            line.payload_bytes as f64 / 1e6,
            line.packets_in,
            line.packets_lost,
        ));
    }
}

impl Default for Display {
    fn default() -> Display {
        Display::new()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(live: &LegLive, elapsed: Duration) -> LiveLine {
    let traffic = live.traffic.progress();
    LiveLine {
        elapsed_s: (elapsed.as_secs_f64() * 10.0).round() / 10.0,
        started: traffic.started,
        completed: traffic.completed,
        failed: traffic.failed,
        payload_bytes: traffic.bytes,
        packets_in: live.meter.entered.load(Ordering::Relaxed),
        packets_out: live.meter.left.load(Ordering::Relaxed),
        packets_lost: live.meter.lost.load(Ordering::Relaxed),
        lateness_max_ns: traffic.lateness_max_ns,
    }
}
