//! The result of a stream, `result.json`: rates, packets by fate, delays, pacing, and whether it is
//! valid.

use nilometer_profile::Direction;
use nilometer_profile::stream::StreamSettings;
use nilometer_report::format::time_ns;
use nilometer_report::story::PacketCounts;
use nilometer_stat::Histogram;
use serde::{Deserialize, Serialize};

use super::added::AddedDelay;
use super::remote::ClockSeen;
use super::transmit::Transmission;
use super::trial::{Seen, StreamSeen};
use crate::trial::outcome::Delay;
use crate::trial::run_story;

/// The name and version of the document.
pub const FORMAT: &str = "nilometer-stream/1";

/// From the time at which a frame was due to that at which it was sent, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The latest.
    pub max: u64,
}

/// Which stamps there are, and which were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stamps {
    /// Stamps of a card's clock; the lab's links have no card.
    pub hardware: bool,
    /// Stamps taken by programs in the driver.
    pub driver: bool,
    /// Stamps that the kernel takes where the driver passes a frame on (as packet sockets are given them).
    pub software: bool,
    /// Packet sockets.
    pub socket: bool,
    /// The pair in use, in words: sending, receiving.
    pub pair: [String; 2],
    /// Why a better pair was not used; nothing where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Delays of one size of frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeDelay {
    /// Bytes of the frame with its check sequence.
    pub frame_bytes: u16,
    /// Frames that came unharmed.
    pub packets: u64,
    /// Their delay.
    pub delay_ns: Delay,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// `to_servers` or `to_clients`.
    pub name: String,
    /// Frames a second that were due.
    pub offered_pps: f64,
    /// Frames a second that were sent.
    pub sent_pps: f64,
    /// Frames a second that came.
    pub received_pps: f64,
    /// Frames that were due.
    pub scheduled: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that came, copies included.
    pub received: u64,
    /// Of those that were sent, frames that found no room in front of the device.
    pub refused: u64,
    /// By fate.
    pub packets: PacketCounts,
    /// From sent to received, of frames that came unharmed.
    pub delay_ns: Option<Delay>,
    /// From due to received, of frames that came unharmed.
    pub delay_scheduled_ns: Option<Delay>,
    /// From due to sent.
    pub pacing_ns: Option<Pacing>,
    /// By size of frame.
    pub sizes: Vec<SizeDelay>,
    /// Whether it may be believed.
    pub valid: bool,
    /// Why not.
    pub why: Vec<String>,
}

/// The bare wire for comparison with the device, measured by the same stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WireOutcome {
    /// Delay over it.
    pub delay_ns: Option<Delay>,
    /// The noise of the instrument: p95 − p5 of that.
    pub noise_ns: Option<u64>,
    /// Whether the calibration may be believed.
    pub valid: bool,
    /// Why not.
    pub why: Vec<String>,
}

/// A `result.json` of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the tool.
    pub version: String,
    /// Commit that it was built from.
    pub commit: String,
    /// The device under test.
    pub dut: String,
    /// The seed.
    pub seed: u64,
    /// When frames were due, and which sizes they had.
    pub pattern: String,
    /// Bytes of a frame on average, with its check sequence.
    pub frame_bytes: f64,
    /// Flows that took turns.
    pub flows: u32,
    /// How long the stream was to last.
    pub seconds: f64,
    /// How long the last frames were waited for, seconds, beyond their stay in the device.
    #[serde(default)]
    pub wait_s: f64,
    /// The run number in the tags, drawn anew each time.
    #[serde(default)]
    pub run: u32,
    /// What took stamps.
    pub stamps: Stamps,
    /// How frames were sent.
    #[serde(default)]
    pub transmit: Transmission,
    /// Frames a second that were due, both directions together.
    pub offered_pps: f64,
    /// Frames a second that were sent, by the same stream.
    pub sent_pps: f64,
    /// By fate, likewise.
    pub packets: PacketCounts,
    /// From sent to received, likewise.
    pub delay_ns: Option<Delay>,
    /// From due to received, likewise.
    pub delay_scheduled_ns: Option<Delay>,
    /// From due to sent, likewise.
    pub pacing_ns: Option<Pacing>,
    /// The bare wire; none where the device is one, and where it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireOutcome>,
    /// What the device adds to the delay over the bare wire, both directions together; none without a valid calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_ns: Option<AddedDelay>,
    /// To the servers, then to the clients.
    pub directions: Vec<StreamOutcome>,
    /// The receiver, where it is on another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// Its clock; none where there is no such receiver, or the offset is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOutcome>,
    /// Whether it may be believed.
    pub valid: bool,
    /// Why not.
    pub why: Vec<String>,
    /// The device's faults and when they began, and other warnings about the run.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The most frames in the receiver's ring at once, and its capacity.
    pub ring: [u64; 2],
    /// What a hypervisor took of the processors, in percent.
    pub stolen_percent: f64,
    /// How often the kernel broke off its receiving work, of all interfaces of the machine.
    pub squeezed: u64,
    /// The fault box's own counts, where it was the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultTruth>,
    /// Rows of the table of frames, and frames that have none.
    pub rows: [u64; 2],
}

/// The clock of a receiver on another host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOutcome {
    /// What it shows minus what this host's shows at the end of the trial, ns: the difference of two uptimes.
    pub offset_ns: i64,
    /// By how much the offset that was used, and with it a delay, may be wrong: the most in the trial, ns.
    pub uncertainty_ns: u64,
    /// Exchanges of messages by which it was found.
    pub exchanges: u64,
}

impl From<ClockSeen> for ClockOutcome {
    fn from(seen: ClockSeen) -> ClockOutcome {
        let ClockSeen { offset_ns, uncertainty_ns, exchanges } = seen;
        ClockOutcome { offset_ns, uncertainty_ns, exchanges }
    }
}

/// The fault box's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultTruth {
    /// Packets that it was given.
    pub received: u64,
    /// Packets that it sent, copies included.
    pub sent: u64,
    /// Packets that it lost.
    pub lost: u64,
    /// Packets that it damaged.
    pub corrupted: u64,
    /// Packets that it copied.
    pub duplicated: u64,
    /// Packets that it held back.
    pub held_back: u64,
    /// Packets that it had no room for.
    pub discarded: u64,
}

/// The usual quantiles of some nanoseconds.
pub fn delay(histogram: &Histogram) -> Option<Delay> {
    Some(Delay {
        p5: histogram.quantile(0.05)?,
        mean: histogram.mean()?,
        p50: histogram.quantile(0.50)?,
        p95: histogram.quantile(0.95)?,
        p99: histogram.quantile(0.99)?,
    })
}

/// The noise of a wire: p95 − p5.
pub fn noise_ns(delay: Option<Delay>) -> Option<u64> {
    delay.map(|delay| delay.p95 - delay.p5)
}

fn pacing(histogram: &Histogram) -> Option<Pacing> {
    Some(Pacing {
        p50: histogram.quantile(0.50)?,
        p95: histogram.quantile(0.95)?,
        p99: histogram.quantile(0.99)?,
        max: histogram.max()?,
    })
}

/// How long the sender took, seconds: at least as long as the stream was to last.
fn sending_s(seen: &StreamSeen, length_s: f64) -> f64 {
    f64::max(length_s, seen.paced.last_sent_ns as f64 / 1e9)
}

/// How long a stream went on, seconds: as it was to, or until it was stopped.
fn length_s(seen: &StreamSeen, settings: &StreamSettings) -> f64 {
    let whole = settings.length.as_secs_f64();
    let is_stopped = seen.why.contains(&nilometer_profile::stream::validity::Reason::Interrupted);
    if is_stopped { (seen.paced.last_due_ns as f64 / 1e9).clamp(1e-3, whole) } else { whole }
}

impl StreamOutcome {
    /// What came of one stream.
    pub fn of(seen: &StreamSeen, settings: &StreamSettings) -> StreamOutcome {
        let length_s = length_s(seen, settings);
        let rate = |count: u64| count as f64 / length_s;
        let sizes = seen.by_size.iter().filter_map(|(&frame_bytes, histogram)| {
            let packets = histogram.count();
            Some(SizeDelay { frame_bytes, packets, delay_ns: delay(histogram)? })
        });
        let name = match seen.direction {
            Direction::ClientToServer => "to_servers",
            Direction::ServerToClient => "to_clients",
        };
        StreamOutcome {
            name: name.to_owned(),
            offered_pps: rate(seen.paced.due),
            sent_pps: seen.paced.sent as f64 / sending_s(seen, length_s),
            received_pps: seen.counts.left as f64 / sending_s(seen, length_s),
            scheduled: seen.paced.due,
            sent: seen.paced.sent,
            received: seen.counts.left,
            refused: seen.paced.refused,
            packets: run_story::packets(&seen.counts, seen.receiver_lost),
            delay_ns: delay(&seen.timings.delay),
            delay_scheduled_ns: delay(&seen.timings.delay_scheduled),
            pacing_ns: pacing(&seen.timings.pacing),
            sizes: sizes.collect(),
            valid: seen.why.is_empty(),
            why: seen.why.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Sums of both directions: rates, packets, delays, pacing, reasons.
pub(super) fn together(outcome: &mut Outcome, seen: &Seen) {
    outcome.offered_pps = outcome.directions.iter().map(|way| way.offered_pps).sum();
    outcome.sent_pps = outcome.directions.iter().map(|way| way.sent_pps).sum();
    for way in &outcome.directions {
        let (sum, packets) = (&mut outcome.packets, &way.packets);
        sum.entered += packets.entered;
        sum.left += packets.left;
        sum.lost += packets.lost;
        sum.originated += packets.originated;
        sum.consumed += packets.consumed;
        sum.reordered += packets.reordered;
        sum.duplicated += packets.duplicated;
        sum.corrupted += packets.corrupted;
        sum.meter_lost += packets.meter_lost;
    }
    outcome.delay_ns = delay(&seen.delays());
    outcome.delay_scheduled_ns = delay(&seen.merged(|stream| &stream.timings.delay_scheduled));
    outcome.pacing_ns = pacing(&seen.merged(|stream| &stream.timings.pacing));
    outcome.valid = outcome.directions.iter().all(|way| way.valid);
    let is_one = outcome.directions.len() == 1;
    let why = outcome.directions.iter().flat_map(|way| {
        way.why
            .iter()
            .map(move |why| if is_one { why.clone() } else { format!("{}: {why}", way.name) })
    });
    outcome.why = why.collect();
    let faults = seen.streams.iter().flat_map(|stream| &stream.faults);
    outcome.warnings.extend(faults.map(ToString::to_string));
    let early: u64 = seen.streams.iter().map(|stream| stream.counts.early).sum();
    if let Some(clock) = seen.clock.filter(|_| early > 0) {
        outcome.warnings.push(format!(
            "{early} frames arrived before they were sent, by an offset of the clocks that is known to ±{}: their delay \
             counts as 0; a network with a shorter round trip between the hosts gives a better one",
            time_ns(clock.uncertainty_ns as f64)
        ));
    }
    for way in outcome.directions.iter().filter(|way| way.refused > 0) {
        outcome.warnings.push(format!(
            "{} of {} frames found no room at the device's port and are among those lost ({})",
            way.refused,
            way.sent,
            way.name.replace('_', " ")
        ));
    }
    outcome.stolen_percent = 100.0 * seen.machine.stolen_share;
    outcome.squeezed = seen.machine.softnet.squeezed;
    let most = seen.streams.iter().map(|stream| stream.most_waiting).max();
    outcome.ring[0] = most.unwrap_or(0);
}
