//! `profile calibrate`: the bare wire by rate and size of frame, and the delay that the instrument
//! itself adds.
//!
//! Each point is a short trial. One that is not valid is repeated, up to [`TRIES`] times, and then reported as it
//! is: it is never averaged with others. Before the points, the receiver's two ways of waiting are
//! compared, and the ring is sized by its greatest backlog, as BBP chose polling and 256 slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use nilometer_files::tool;
use nilometer_linux::stamp::Stamping;
use nilometer_profile::stream::frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use nilometer_profile::stream::validity::Bounds;
use nilometer_profile::stream::{Sizes, Spacing, StreamSettings};
use nilometer_wire::Span;
use serde::{Deserialize, Serialize};

use super::config::{PPS_MAX, PPS_MIN, SECONDS_MAX, SECONDS_MIN, StampChoice};
use super::device::DeviceRequest;
use super::outcome::{Pacing, Stamps, StreamOutcome, noise_ns};
use super::receiver::Reading;
use super::run::{stamping, through};
use super::transmit::{Transmission, Transmit, TransmitChoice, transmit};
use super::trial::{Instrument, Seen};
use crate::trial::outcome::Delay;

/// Default rates, frames a second.
pub const RATES: [f64; 7] = [500.0, 10e3, 40e3, 70e3, 150e3, 300e3, 500e3];
/// The default sizes, with their check sequences.
pub const SIZES: [u16; 4] = [64, 92, 512, 1_518];
/// How often a point is tried until it is valid.
pub const TRIES: u32 = 3;
/// The format of the document.
pub const FORMAT: &str = "nilometer-calibration/1";

/// The ring in the trials that choose one.
const RING_MAX: usize = 1 << 16;
/// The least that is chosen.
const RING_MIN: u64 = 1 << 12;
/// How many times as large as what waited at most the ring is to be.
const HEADROOM: u64 = 4;
/// The ring holds the frames of at least this many seconds.
const RING_S: f64 = 0.02;
/// The rate at which the ring and the way of waiting are chosen, and for how long.
const CHOICE_PPS: f64 = 150e3;
const CHOICE_S: f64 = 1.0;
/// How long the last frames are waited for.
const WAIT: Span = Span::from_nanos(2_000_000_000);

/// The settings of a calibration.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Rates, frames a second.
    pub pps: Vec<f64>,
    /// Sizes of frames, with their check sequences.
    pub frame_bytes: Vec<u16>,
    /// How long each point lasts.
    pub seconds: f64,
    /// What takes stamps.
    pub stamps: StampChoice,
    /// How frames are sent.
    pub transmit: TransmitChoice,
    /// The seed.
    pub seed: u64,
}

/// One rate and size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The offered rate, frames a second.
    pub pps: f64,
    /// Bytes of a frame with its check sequence.
    pub frame_bytes: u16,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that came.
    pub received: u64,
    /// Frames a second that were sent.
    pub sent_pps: f64,
    /// How frames were sent.
    #[serde(default)]
    pub transmit: Transmission,
    /// From sent to received.
    pub delay_ns: Option<Delay>,
    /// p95 − p5 of that.
    pub noise_ns: Option<u64>,
    /// From due to sent.
    pub pacing_ns: Option<Pacing>,
    /// Whether it may be believed.
    pub valid: bool,
    /// Why not.
    pub why: Vec<String>,
    /// How often it was tried.
    pub tries: u32,
}

/// How the receiver is to wait, and how large its ring is, with reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// `sleeping` or `polling`.
    pub reading: String,
    /// Frames that the ring holds.
    pub ring: u64,
    /// Why.
    pub why: String,
}

/// A calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the tool.
    pub version: String,
    /// Commit that it was built from.
    pub commit: String,
    /// What took stamps.
    pub stamps: Stamps,
    /// How the receiver waited.
    pub choice: Choice,
    /// By size and rate.
    pub points: Vec<Point>,
    /// Whether all points may be believed.
    pub valid: bool,
    /// Which may not.
    pub why: Vec<String>,
}

impl Wanted {
    /// Checks the settings.
    ///
    /// # Errors
    /// One line names the invalid value and the valid ones.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.pps.is_empty() && !self.frame_bytes.is_empty(), "name a rate and a size");
        for &pps in &self.pps {
            ensure!(
                (PPS_MIN..=PPS_MAX).contains(&pps),
                "--pps {pps}: choose {PPS_MIN} to {PPS_MAX}"
            );
        }
        for &bytes in &self.frame_bytes {
            ensure!(
                (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&bytes),
                "--frame-bytes {bytes}: choose {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}"
            );
        }
        let seconds = self.seconds;
        ensure!(
            (SECONDS_MIN..=SECONDS_MAX).contains(&seconds),
            "--seconds {seconds}: choose {SECONDS_MIN} to {SECONDS_MAX}"
        );
        Ok(())
    }

    fn stream(&self, pps: f64, frame_bytes: u16, seconds: f64) -> StreamSettings {
        StreamSettings {
            spacing: Spacing::Constant,
            sizes: Sizes::Fixed(frame_bytes),
            pps,
            length: Span::from_secs_f64(seconds),
            flows: 1,
            seed: self.seed,
            stream: 0,
        }
    }
}

fn trial(stream: &StreamSettings, instrument: Instrument, stop: &Arc<AtomicBool>) -> Result<Seen> {
    let streams = std::slice::from_ref(stream);
    Ok(through(&DeviceRequest::wire(), streams, (instrument, WAIT), None, (None, stop))?.0)
}

/// Compares both ways of waiting.
fn choose(
    wanted: &Wanted,
    stamping: Stamping,
    stop: &Arc<AtomicBool>,
) -> Result<(Instrument, Choice)> {
    let pps = wanted.pps.iter().copied().fold(0.0, f64::max).min(CHOICE_PPS);
    let bounds = Bounds::of_bursts(1, pps);
    let frame_bytes = wanted.frame_bytes.iter().copied().min().unwrap_or(FRAME_BYTES_MIN);
    let stream = wanted.stream(pps, frame_bytes, CHOICE_S);
    let transmit = Transmit::Socket;
    let with = |reading, ring_slots| Instrument { stamping, transmit, reading, ring_slots, bounds };
    let mut seen = Vec::new();
    for reading in [Reading::Sleeping, Reading::Polling] {
        let one = trial(&stream, with(reading, RING_MAX), stop)?;
        let outcome = StreamOutcome::of(&one.streams[0], &stream);
        seen.push((noise_ns(outcome.delay_ns).unwrap_or(u64::MAX), one.streams[0].most_waiting));
    }
    let [(sleeping, most), (polling, _)] = [seen[0], seen[1]];
    // Polling takes a processor: it has to be worth that.
    let is_worth = polling < sleeping - sleeping / 4;
    let reading = if is_worth { Reading::Polling } else { Reading::Sleeping };
    let ring = (most * HEADROOM).next_power_of_two().clamp(RING_MIN, RING_MAX as u64);
    let why = format!(
        "at {pps:.0} frames/s the noise is {sleeping} ns if the receiver sleeps between reads and {polling} \
         ns if it polls, {}; at most {most} frames waited in the ring, which should hold {HEADROOM} times as \
         many, at least {RING_MIN}",
        if is_worth { "which is worth a processor" } else { "which is not worth a processor" }
    );
    let name = if is_worth { "polling" } else { "sleeping" };
    let choice = Choice { reading: name.to_owned(), ring, why };
    Ok((with(reading, ring as usize), choice))
}

/// One point, tried until it is valid.
fn point(
    wanted: &Wanted,
    (pps, frame_bytes): (f64, u16),
    instrument: Instrument,
    stop: &Arc<AtomicBool>,
) -> Result<(Point, String)> {
    let stream = wanted.stream(pps, frame_bytes, wanted.seconds);
    let streams = std::slice::from_ref(&stream);
    let (how, transmission) = transmit(wanted.transmit, streams, instrument.stamping)?;
    // (The ring was chosen at a rate below that of live frames.)
    let ring_slots = ((pps * RING_S) as usize).next_power_of_two().min(RING_MAX);
    let ring_slots = ring_slots.max(instrument.ring_slots);
    let instrument = Instrument { transmit: how, ring_slots, ..instrument };
    let mut tries = 0;
    loop {
        tries += 1;
        let seen = trial(&stream, instrument, stop)?;
        let one = StreamOutcome::of(&seen.streams[0], &stream);
        let mut why = one.why;
        // A wire loses nothing: the instrument has lost any missing frames.
        if one.packets.lost > 0 && why.is_empty() {
            why.push(format!("the bare wire lost {} frames", one.packets.lost));
        }
        let valid = why.is_empty();
        if valid || tries == TRIES || stop.load(Ordering::Relaxed) {
            let point = Point {
                pps,
                frame_bytes,
                sent: one.sent,
                received: one.received,
                sent_pps: one.sent_pps,
                transmit: transmission,
                delay_ns: one.delay_ns,
                noise_ns: noise_ns(one.delay_ns),
                pacing_ns: one.pacing_ns,
                valid,
                why,
                tries,
            };
            return Ok((point, seen.arrivals));
        }
    }
}

/// Calibrates; each point is passed to `each` as soon as it is had.
///
/// # Errors
/// When the system does not let us stamp or send.
pub fn calibrate(
    wanted: &Wanted,
    mut each: impl FnMut(&Point),
    stop: &Arc<AtomicBool>,
) -> Result<Calibration> {
    wanted.check()?;
    let (stamping, mut stamps) = stamping(wanted.stamps)?;
    let (instrument, choice) = choose(wanted, stamping, stop)?;
    let mut points = Vec::new();
    for &frame_bytes in &wanted.frame_bytes {
        for &pps in &wanted.pps {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (one, arrivals) = point(wanted, (pps, frame_bytes), instrument, stop)?;
            stamps.pair[1] = arrivals;
            each(&one);
            points.push(one);
        }
    }
    let mut why: Vec<String> = { points.iter().filter(|point| !point.valid) }
        .map(|one| format!("{} fps of {} bytes: {}", one.pps, one.frame_bytes, one.why.join("; ")))
        .collect();
    if stop.load(Ordering::Relaxed) {
        let all = wanted.frame_bytes.len() * wanted.pps.len();
        why.push(format!("interrupted after {} of {all} points", points.len()));
    }
    Ok(Calibration {
        format: FORMAT.to_owned(),
        version: tool::version().to_owned(),
        commit: tool::commit().to_owned(),
        stamps,
        choice,
        valid: why.is_empty(),
        points,
        why,
    })
}
