//! The original: a part of what captures hold, observed packet by packet, and the model of its sessions.
//!
//! Captures are read twice. The first time only their volume is taken down, second by second, and the part is
//! chosen: all of a capture that is no longer than the run, else the window of that length that carries the median
//! of what windows carry (each window begins with a second in which TCP passed). The second time the part is
//! observed, by the very code that will observe the copy.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use nilometer_conversation::Limits;
use nilometer_likeness::{Observed, Observer};
use nilometer_traffic::estimate::Estimate;
use nilometer_traffic::model::{Input, Origin};
use nilometer_traffic::of_vectors::{self, Beside};
use nilometer_traffic::vectors::Vectors;
use nilometer_wire::packet::{IpPacket, Transport};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::config::FIT_S;
use super::source::{Asked, file_name};
use crate::cli::VERSION;
use crate::input::observe::{can_be_read_again, hold, one_sided};
use crate::input::records::{Progress, read_packets};
use crate::input::source::EMBEDDED;
use crate::input::summary::FlowSummary;

/// The inter-connection bound of the paper, seconds.
const BOUND_S: f64 = 60.0;
/// A share of the payload that the capture lost, beyond which it is said.
const LOST_LOW: f64 = 0.01;
const SECOND_NS: u64 = 1_000_000_000;
/// A share of bytes beside TCP, beyond which it is said.
const BESIDE_LOW: f64 = 0.001;
/// The shortest part, seconds: a capture of one packet lasts no time.
const PART_MIN_S: f64 = 0.5;

/// A part of the original.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// When it begins, seconds after the original does.
    pub start_s: f64,
    /// How long it is, seconds.
    pub seconds: f64,
}

/// The original's part, as it was observed.
pub struct Original {
    /// What its packets showed.
    pub observed: Observed,
    /// Which part it is.
    pub part: Part,
    /// Bytes of all IP packets of the inputs, of any protocol, in the part or not.
    pub input_octets: u64,
}

impl std::str::FromStr for Part {
    type Err = anyhow::Error;

    /// `START+LENGTH`, in seconds.
    fn from_str(text: &str) -> Result<Part> {
        let number = |text: &str| text.trim().parse().ok().filter(|s: &f64| s.is_finite());
        let both = text.split_once('+').map(|(start, seconds)| (number(start), number(seconds)));
        match both {
            Some((Some(start_s), Some(seconds))) if start_s >= 0.0 && seconds >= PART_MIN_S => {
                Ok(Part { start_s, seconds })
            }
            _ => bail!(
                "'{text}' is no part: write START+LENGTH in seconds, such as 120+60, of at least \
                 {PART_MIN_S} s"
            ),
        }
    }
}

/// TCP by second, and when it was.
#[derive(Default)]
struct Volume {
    /// Seconds since 1970, and the bytes that passed.
    seconds: BTreeMap<u64, u64>,
    span_ns: Option<(u64, u64)>,
    unstamped: bool,
}

impl Volume {
    fn take(&mut self, stamp_ns: u64, packet: &IpPacket) {
        if !matches!(packet.transport, Transport::Tcp(_)) {
            return;
        }
        *self.seconds.entry(stamp_ns / SECOND_NS).or_default() += u64::from(packet.ip_bytes);
        let (first, last) = self.span_ns.unwrap_or((stamp_ns, stamp_ns));
        self.span_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
    }

    /// As this clock shows it.
    fn by(self, clock: &Clock) -> Volume {
        let mut seconds = BTreeMap::new();
        for (second, bytes) in self.seconds {
            *seconds.entry(clock.at(second * SECOND_NS) / SECOND_NS).or_default() += bytes;
        }
        let span_ns = self.span_ns.map(|(first, last)| (clock.at(first), clock.at(last)));
        Volume { seconds, span_ns, ..self }
    }

    /// When the window of so many seconds begins that carries the median of all, ns since 1970.
    fn median_window_ns(&self, seconds: f64) -> u64 {
        let length = seconds.ceil() as u64;
        let last = self.seconds.keys().next_back().copied().unwrap_or(0);
        let mut windows: Vec<(u64, u64)> = Vec::new();
        for &begins in self.seconds.keys() {
            // A window that reaches beyond the end is no whole one, unless there is no other.
            if begins + length > last + 1 && !windows.is_empty() {
                break;
            }
            let carried = self.seconds.range(begins..begins + length).map(|(_, bytes)| bytes).sum();
            windows.push((carried, begins));
        }
        windows.sort_unstable();
        windows.get(windows.len() / 2).map_or(0, |(_, begins)| begins * SECOND_NS)
    }
}

/// When packets passed, in the order in which they are read.
struct Stamps {
    /// From one packet to the next where they have no clock of their own, ns.
    spacing_ns: Option<f64>,
    packets: u64,
}

impl Stamps {
    /// Those of the packets, or so many a second.
    fn of(rate: Option<f64>) -> Stamps {
        Stamps { spacing_ns: rate.map(|rate| 1e9 / rate), packets: 0 }
    }

    /// The stamp of the next packet, ns since 1970, where it has this one of its own.
    fn next(&mut self, own_ns: u64) -> u64 {
        self.packets += 1;
        self.spacing_ns.map_or(own_ns, |spacing| (self.packets as f64 * spacing) as u64)
    }
}

/// What a person should know of the choice.
fn told(part: Part, whole_s: f64, is_chosen: bool) -> Option<String> {
    (whole_s > part.seconds + 1.0 && !is_chosen).then(|| {
        format!(
            "the original lasts {whole_s:.1} s: {:.1} s of it are played, from {:.1} s on, the window that carries \
             the median of what windows of that length carry; --part START+LENGTH chooses another, --duration \
             its length",
            part.seconds, part.start_s
        )
    })
}

/// What its capture lost is worth a word from a hundredth on.
fn lost(observed: &Observed) -> Option<String> {
    let share = observed.lost_bytes() as f64 / observed.payload_bytes().max(1) as f64;
    (share > LOST_LOW).then(|| {
        format!(
            "The capture lost {:.1} % of what was sent, by its sequence numbers. It is played all the same, so that \
             rates and packets are more than the capture has.",
            100.0 * share
        )
    })
}

/// Times that nobody saw are said to be none.
fn evenly(rate: f64) -> String {
    format!(
        "The packets have no clock and are taken to be evenly spaced, {rate} a second (--rate): pauses, paces and          durations are of that, and not of the original."
    )
}

/// What is not TCP is not played, and said from a thousandth of the bytes on.
fn beside_tcp(observed: &Observed) -> Option<String> {
    let kinds = [("UDP", observed.udp), ("other protocols", observed.others)];
    let said: Vec<String> = { kinds.into_iter().map(|(name, bin)| (name, observed.share(bin))) }
        .filter(|(_, share)| *share > BESIDE_LOW)
        .map(|(name, share)| format!("{:.1} % of the part's bytes are {name}", 100.0 * share))
        .collect();
    (!said.is_empty()).then(|| format!("{}: TCP alone is played.", said.join(" and ")))
}

/// The original's part and its model; none where the inputs hold no TCP packet, but records of exporters.
///
/// # Errors
/// Where an input cannot be read, the packets have no usable clock, or the part holds no TCP.
pub fn learn(
    asked: &Asked,
    part: Option<Part>,
    duration_s: Option<f64>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Option<(Estimate, Original)>> {
    if asked.inputs.iter().any(|input| input == Path::new("-")) {
        return Ok(None);
    }
    asked.inputs.iter().try_for_each(|input| can_be_read_again(input))?;
    let mut volume = Volume::default();
    let mut stamps = Stamps::of(asked.rate);
    let taken = &mut |ns, packet: &IpPacket| {
        volume.unstamped |= ns == 0;
        volume.take(stamps.next(ns), packet);
    };
    let summary = read_packets(&asked.inputs, true, progress, taken)?;
    let clock = Clock::of(volume.seconds.keys().copied(), asked.bound_s.unwrap_or(BOUND_S));
    let volume = volume.by(&clock);
    let Some((first_ns, last_ns)) = volume.span_ns else { return Ok(None) };
    let names: Vec<String> = summary.inputs.iter().map(|input| file_name(&input.name)).collect();
    match asked.rate {
        None if volume.unstamped => bail!(
            "{}: its packets have no usable clock (stamps of 0); --rate PACKETS_PER_SECOND plays them evenly spaced",
            names.join(", ")
        ),
        Some(_) if !volume.unstamped => bail!(
            "{}: its packets have a clock, which --rate would put aside; leave it out (--speed plays faster)",
            names.join(", ")
        ),
        _ => {}
    }
    let whole_s = (last_ns - first_ns) as f64 / 1e9;
    let chosen = part.unwrap_or_else(|| {
        let seconds = duration_s.unwrap_or(FIT_S).min(whole_s.max(PART_MIN_S) + 0.001);
        let start_ns = match whole_s > seconds {
            true => volume.median_window_ns(seconds).max(first_ns),
            false => first_ns,
        };
        Part { start_s: (start_ns - first_ns) as f64 / 1e9, seconds }
    });
    let begins_ns = first_ns + (chosen.start_s * 1e9) as u64;
    let ends_ns = begins_ns + (chosen.seconds * 1e9) as u64;
    let mut observer = Observer::between(Limits::default(), begins_ns, ends_ns);
    let mut stamps = Stamps::of(asked.rate);
    let watch = &mut |ns, packet: &IpPacket| observer.observe(clock.at(stamps.next(ns)), packet);
    read_packets(&asked.inputs, false, progress, watch)?;
    let observed = observer.finish();
    hold(&observed)?;
    if observed.connections.is_empty() {
        bail!(
            "no TCP packet passed in the part from {:.3} s on, of {:.3} s; the original lasts {whole_s:.3} s",
            chosen.start_s,
            chosen.seconds
        );
    }
    let mut warnings = summary.warnings.clone();
    warnings.extend(clock.told());
    warnings.extend(asked.rate.map(evenly));
    warnings.extend(told(chosen, whole_s, part.is_some()));
    warnings.extend(observed.one_side().map(one_sided));
    warnings.extend(lost(&observed));
    warnings.extend(beside_tcp(&observed));
    let original = Original { observed, part: chosen, input_octets: summary.bytes };
    let estimate = estimate(asked, &summary, &original, [first_ns, begins_ns], warnings);
    Ok(Some((estimate, original)))
}

fn estimate(
    asked: &Asked,
    summary: &FlowSummary,
    original: &Original,
    begins_ns: [u64; 2],
    warnings: Vec<String>,
) -> Estimate {
    let bound_s = asked.bound_s.unwrap_or(BOUND_S);
    let connections = &original.observed.connections;
    let seconds = original.part.seconds;
    let vectors = Vectors::of(connections, begins_ns, seconds, (bound_s * 1e9) as u64);
    let inputs = summary.inputs.iter().map(|input| Input {
        name: file_name(&input.name),
        sha256: input.sha256.clone().expect("what a model is made of is digested"),
    });
    let inputs: Vec<Input> = inputs.collect();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let beside = Beside {
        tool: format!("nilometer {VERSION}"),
        origin: Origin { description: names.join(", "), synthetic: names == [EMBEDDED], inputs },
        bound_s,
        pools: [asked.clients.clone(), asked.servers.clone()],
        other_octets: original.observed.beside_tcp_octets(),
    };
    let model = of_vectors::model(vectors, beside);
    Estimate { model, warnings, notes: Vec::new(), together_max: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_start_and_a_length() {
        let part: Part = "120+60".parse().expect("a part");
        assert_eq!(part, Part { start_s: 120.0, seconds: 60.0 });
        for wrong in ["120", "60s", "a+b", "-1+60", "0+0.1", "nan+60", ""] {
            let said = wrong.parse::<Part>().expect_err(wrong).to_string();
            assert!(said.contains("START+LENGTH"), "{said}");
        }
    }

    #[test]
    fn the_window_has_the_median_volume() {
        let mut volume = Volume::default();
        // A busy beginning, a long quiet middle, and a middling end.
        for second in 0..100u64 {
            let bytes = match second {
                0..10 => 1_000,
                10..90 => 10,
                _ => 100,
            };
            volume.seconds.insert(1_000 + second, bytes);
        }
        let begins = volume.median_window_ns(10.0) / 1_000_000_000 - 1_000;
        assert!((10..=80).contains(&begins), "{begins}");
        assert_eq!(Volume::default().median_window_ns(10.0), 0);
    }
}
