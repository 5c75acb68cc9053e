//! The original: a part of the captures, observed packet by packet, and the model of its sessions.
//!
//! Captures are read twice. The first time only their volume is recorded, second by second, and the part is
//! chosen (`part`). The second time the part is observed, by the same code that will observe the copy. Where
//! sessions are drawn, on request or because there are too many, they are read once more (`drawn`).

use anyhow::{Result, bail};
use nilometer_conversation::drawn::Amount;
use nilometer_conversation::{Connection, RecordDetail};
use nilometer_likeness::Observed;
use nilometer_traffic::estimate::Estimate;
use nilometer_traffic::model::{Input, Origin};
use nilometer_traffic::vector_model::{self, VectorModelOptions};
use nilometer_traffic::vectors::Vectors;
use nilometer_wire::packet::{IpPacket, Transport};

use super::drawn::{self, Reader};
use super::input_warning::{InputWarning, texts};
use super::part::{Part, Volume, Wanted};
use super::refusal::no_tcp_packet;
use super::source::{BOUND_S, EstimateRequest, file_name};
use super::stamps::Stamps;
use nilometer_files::input::contents::Contents;
use nilometer_files::input::observe::{is_pipe, one_sided};
use nilometer_files::input::records::{Progress, read_packets};
use nilometer_files::input::source::EMBEDDED;
use nilometer_files::input::summary::FlowSummary;
use nilometer_files::tool;

/// The share of payload lost by the capture above which a warning is given.
const LOST_LOW: f64 = 0.01;
/// The share of bytes other than TCP above which a warning is given.
const BESIDE_LOW: f64 = 0.001;

/// The original's part, as it was observed.
pub struct Original {
    /// What its packets showed.
    pub observed: Observed,
    /// Which part it is.
    pub part: Part,
    /// Bytes of all IP packets of the inputs, of any protocol, in the part or not.
    pub input_octets: u64,
    /// Which fields its records have, where it was observed from records and not from packets.
    pub detail: Option<RecordDetail>,
    /// All of the part, where it has more than can be played, and the rest was observed.
    pub whole: Option<Amount>,
}

/// Records among the inputs have no packets to play.
fn records_left(records: u64) -> Option<InputWarning> {
    (records > 0).then_some(InputWarning::RecordsNotPlayed(records))
}

/// Connections that carry nothing.
fn no_payload(observed: &Observed) -> Option<InputWarning> {
    let connections = observed.connections.len();
    (observed.payload_bytes() == 0).then_some(InputWarning::NoPayload { connections })
}

/// A warning about payload lost by the capture, from a hundredth on.
fn lost(observed: &Observed) -> Option<InputWarning> {
    let share = observed.lost_bytes() as f64 / observed.payload_bytes().max(1) as f64;
    (share > LOST_LOW).then_some(InputWarning::CaptureLost { share })
}

/// A warning about traffic other than TCP, which is not played, from a thousandth of the bytes on.
pub(super) fn beside_tcp(observed: &Observed) -> Option<InputWarning> {
    let kinds = [("UDP", observed.udp), ("other protocols", observed.others)];
    let shares = kinds.map(|(name, bin)| (name, observed.share(bin)));
    let large: Vec<_> = shares.into_iter().filter(|(_, share)| *share > BESIDE_LOW).collect();
    (!large.is_empty()).then_some(InputWarning::BesideTcp(large))
}

/// The original's part and its model; none where the inputs hold no TCP packet, but records of exporters.
///
/// # Errors
/// Where an input cannot be read, the packets have no usable clock, or the part holds no TCP.
pub fn learn(
    request: &EstimateRequest,
    wanted: &Wanted,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Option<(Estimate, Original)>> {
    if request.inputs.iter().any(|input| is_pipe(input)) {
        return Ok(None);
    }
    let (mut volume, mut contents) = (Volume::default(), Contents::default());
    let mut stamps = Stamps::of(request.rate);
    let taken = &mut |ns, packet: &IpPacket| {
        contents.take(packet);
        let at_ns = stamps.next(ns);
        // (Until a packet has a stamp there is no time to use.)
        if matches!(packet.transport, Transport::Tcp(_)) && at_ns > 0 {
            volume.add(at_ns, packet.ip_bytes.into());
        }
    };
    let summary = read_packets(&request.inputs, true, progress, taken)?;
    let names: Vec<String> = summary.inputs.iter().map(|input| file_name(&input.name)).collect();
    let is_unstamped = stamps.is_unstamped();
    if volume.span_ns().is_none() && !is_unstamped {
        if summary.flow_records > 0 {
            return Ok(None);
        }
        let names: Vec<&str> = summary.inputs.iter().map(|input| input.name.as_str()).collect();
        bail!(no_tcp_packet(&names.join(" "), &summary, &contents));
    }
    match request.rate {
        None if is_unstamped => bail!(
            "{}: its packets have no usable clock (stamps of 0); --rate PACKETS_PER_SECOND plays them evenly spaced",
            names.join(", ")
        ),
        Some(_) if !is_unstamped => bail!(
            "{}: its packets have a clock, which --rate would put aside; leave it out (--speed plays faster)",
            names.join(", ")
        ),
        _ => {}
    }
    let clock = volume.clock(request.bound_s.unwrap_or(BOUND_S));
    let volume = volume.by(&clock);
    let Some((first_ns, _)) = volume.span_ns() else { return Ok(None) };
    let chosen = volume.choose(wanted);
    let part = chosen.part;
    let [begins_ns, _] = chosen.between_ns();
    let reader = Reader { request, clock: &clock };
    let drawn = drawn::observe(&reader, &chosen, progress)?;
    let observed = drawn.observed;
    chosen.holds(observed.connections.len(), "TCP packet")?;
    let mut warnings = summary.warnings.clone();
    warnings.extend(texts([
        clock.warning(),
        request.rate.map(|rate| InputWarning::NoClock { rate }),
        chosen.warning(),
        drawn.warning,
        records_left(summary.flow_records),
    ]));
    warnings.extend(observed.one_side().map(one_sided));
    warnings.extend(texts([lost(&observed), no_payload(&observed), beside_tcp(&observed)]));
    let original =
        Original { observed, part, input_octets: summary.bytes, detail: None, whole: drawn.whole };
    let vectors =
        vectors(request, &original, &original.observed.connections, [first_ns, begins_ns]);
    let estimate = estimate(request, &summary, &original, (vectors, warnings));
    Ok(Some((estimate, original)))
}

/// The joint table of connections as they are to be played, where the original and its part begin then, ns since 1970.
pub(super) fn vectors(
    request: &EstimateRequest,
    original: &Original,
    connections: &[Connection],
    begins_ns: [u64; 2],
) -> Vectors {
    let bound_s = request.bound_s.unwrap_or(BOUND_S);
    Vectors::of(connections, begins_ns, original.part.seconds, (bound_s * 1e9) as u64)
}

/// The model of a table, and warnings about it.
pub(super) fn estimate(
    request: &EstimateRequest,
    summary: &FlowSummary,
    original: &Original,
    (vectors, warnings): (Vectors, Vec<String>),
) -> Estimate {
    let inputs = summary.inputs.iter().map(|input| Input {
        name: file_name(&input.name),
        sha256: input.sha256.clone().expect("what a model is made of is digested"),
    });
    let inputs: Vec<Input> = inputs.collect();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let options = VectorModelOptions {
        tool: tool::tool(),
        origin: Origin { description: names.join(", "), synthetic: names == [EMBEDDED], inputs },
        bound_s: request.bound_s.unwrap_or(BOUND_S),
        pools: [request.clients.clone(), request.servers.clone()],
        other_octets: original.observed.beside_tcp_octets(),
    };
    let model = vector_model::model(vectors, options);
    Estimate { model, warnings, notes: Vec::new(), largest_batch: 0 }
}
