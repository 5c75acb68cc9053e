//! The original where inputs are flow records: a part of the records, connection by connection.
//!
//! Records of both directions are joined to connections (`conversation::joined`), whose hosts, starts, gaps, sizes
//! and durations are the original's, and are played by its clock; each connection is taken as one exchange, over
//! the time that it took (`conversation::one_exchange`). The copy is judged by the records that the meter makes of
//! it, joined by the same code, using only fields that the original's records have.
//!
//! Packet-sampled records do not show connections, and records without flags do not show where these begin and
//! end. From those, laws are estimated, and fitted into a minute.

use std::collections::BTreeMap;

use anyhow::Result;
use nilometer_conversation::headers::without_time_stamps;
use nilometer_conversation::one_exchange::{one_exchange, within};
use nilometer_conversation::{Connection, RecordDetail, joined};
use nilometer_flow::FlowRecord;
use nilometer_flow::record::{TCP, UDP};
use nilometer_likeness::observed::{Bin, CONNECTIONS_MAX};
use nilometer_likeness::{Observed, Source};
use nilometer_traffic::estimate::Estimate;

use super::drawn;
use super::input_warning::{InputWarning, texts};
use super::original::{self, Original, beside_tcp};
use super::part::{Volume, Wanted};
use super::source::{BOUND_S, EstimateRequest};
use nilometer_files::input::observe::hold;
use nilometer_files::input::records::{FlowOptions, Progress, read_flows};

/// The most TCP records held, two to a connection; from more, laws are estimated.
const RECORDS_MAX: usize = 2 * CONNECTIONS_MAX;
/// Seconds over which the bytes of one connection are spread when the part is chosen.
const SPREAD_MAX_S: u64 = 3_600;
const SECOND_NS: u64 = 1_000_000_000;

/// What was learnt of records.
pub enum Learnt {
    /// Connections, which can be played as they were.
    Played(Box<(Estimate, Original)>),
    /// Laws only, and why, where that is not plain.
    Laws(Option<String>),
}

/// Records as they come.
#[derive(Default)]
struct Records {
    tcp: Vec<FlowRecord>,
    /// What records of other protocols count, by the second and by whether it is UDP.
    others: BTreeMap<(u64, bool), Bin>,
    /// Of TCP records, those of sampled packets, and one in how many those are at most.
    sampled: u64,
    sampling_max: u32,
    is_too_many: bool,
}

impl Records {
    fn take(&mut self, record: FlowRecord) {
        if record.key.protocol != TCP {
            let of = (record.start_ns / SECOND_NS, record.key.protocol == UDP);
            return add(self.others.entry(of).or_default(), record.packets, record.octets);
        }
        self.is_too_many |= self.tcp.len() >= RECORDS_MAX;
        if !self.is_too_many {
            self.sampled += u64::from(record.sampling_interval > 1);
            self.sampling_max = self.sampling_max.max(record.sampling_interval);
            self.tcp.push(record);
        }
    }

    /// Laws, and why, where their connections cannot be played.
    fn only_laws(&self, detail: RecordDetail) -> Option<Learnt> {
        let all = self.tcp.len();
        let why = match () {
            () if self.is_too_many => Some(format!("more than {RECORDS_MAX} TCP flow records")),
            () if self.tcp.is_empty() => None,
            () if self.sampled > 0 => Some(format!(
                "{} of {all} TCP records are of one packet in {} or fewer",
                self.sampled, self.sampling_max
            )),
            () if !detail.flags => {
                let bare = self.tcp.iter().filter(|record| record.tcp_flags == 0).count();
                Some(format!("{bare} of {all} TCP records have no TCP flags"))
            }
            () => return None,
        };
        Some(Learnt::Laws(why))
    }
}

/// Counts more.
fn add(bin: &mut Bin, packets: u64, octets: u64) {
    bin.packets = bin.packets.saturating_add(packets);
    bin.octets = bin.octets.saturating_add(octets);
}

/// The original's part and its model.
///
/// # Errors
/// Where an input cannot be read, or the part holds no TCP.
pub fn learn(
    request: &EstimateRequest,
    wanted: &Wanted,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Learnt> {
    let mut records = Records::default();
    let options =
        FlowOptions { repairs: true, counts_connections: false, ..FlowOptions::default() };
    let summary = read_flows(&request.inputs, &options, progress, &mut |record| {
        records.take(record);
        Ok(())
    })?;
    let detail = RecordDetail::of(&records.tcp);
    if let Some(laws) = records.only_laws(detail) {
        return Ok(laws);
    }
    let mut all = joined(&records.tcp, detail, None);
    if !detail.payload {
        without_time_stamps(&mut all);
    }
    let mut volume = Volume::default();
    all.iter().for_each(|one| spread(one, &mut volume));
    let clock = volume.clock(request.bound_s.unwrap_or(BOUND_S));
    let at = |mut one: Connection| {
        (one.start_ns, one.end_ns) = (clock.at(one.start_ns), clock.at(one.end_ns));
        one
    };
    let chosen = volume.by(&clock).choose(wanted);
    let between_ns = chosen.between_ns();
    let all: Vec<Connection> = all.into_iter().map(at).collect();
    let (all, drawn) = drawn::of_connections(all, request, &chosen);
    let connections: Vec<Connection> =
        { all.iter() }.filter_map(|one| within(one, between_ns)).collect();
    let mut observed = Observed::of(connections, source(detail));
    for ((second, is_udp), bin) in records.others {
        let at_ns = clock.at(second.saturating_mul(SECOND_NS));
        if drawn.is_some() || (between_ns[0]..between_ns[1]).contains(&at_ns) {
            let of = if is_udp { &mut observed.udp } else { &mut observed.others };
            add(of, bin.packets, bin.octets);
        }
    }
    if let Some(drawn) = &drawn {
        drawn::scale_beside(&mut observed, drawn);
    }
    hold(&observed)?;
    chosen.holds(observed.connections.len(), "TCP flow record")?;
    let mut warnings = summary.warnings.clone();
    warnings.extend(texts([
        clock.warning(),
        chosen.warning(),
        drawn.map(|drawn| drawn::sessions_drawn(&drawn, observed.tcp, &chosen)),
        Some(InputWarning::OneExchangeEach),
        beside_tcp(&observed),
    ]));
    let mut played = observed.connections.clone();
    played.iter_mut().for_each(one_exchange);
    let original = Original {
        observed,
        part: chosen.part,
        input_octets: summary.bytes,
        detail: Some(detail),
        whole: None,
    };
    let begins_ns = [between_ns[0] - (chosen.part.start_s * 1e9) as u64, between_ns[0]];
    let vectors = original::vectors(request, &original, &played, begins_ns);
    let estimate = original::estimate(request, &summary, &original, (vectors, warnings));
    Ok(Learnt::Played(Box::new((estimate, original))))
}

/// Observes the copy by the meter's records of traffic from `origin_ns` on, for `ns`, using only the fields of the
/// original's records. Where these count no payload it was inferred from bytes, and the copy was given that to
/// send; so for the copy the payload really sent is used. (Inferring it again would depend on how many
/// acknowledgements each connection had, and would lose small requests.)
pub fn observe(
    records: &[FlowRecord],
    detail: RecordDetail,
    [origin_ns, ns]: [u64; 2],
) -> Observed {
    let all = joined(records, RecordDetail { payload: true, ..detail }, None).into_iter();
    // Times are cut to the unit of the original's records, and so is the beginning.
    let begins_ns = origin_ns - origin_ns % detail.resolution_ns;
    let between_ns = [begins_ns, origin_ns.saturating_add(ns)];
    Observed::of(all.filter_map(|one| within(&one, between_ns)).collect(), source(detail))
}

fn source(detail: RecordDetail) -> Source {
    Source::Records { has_flags: detail.flags, has_payload: detail.payload }
}

/// Spreads a connection's bytes over its seconds.
fn spread(one: &Connection, volume: &mut Volume) {
    let octets: u64 = one.carried.iter().map(|side| side.octets).sum();
    let steps = ((one.end_ns - one.start_ns) / SECOND_NS).min(SPREAD_MAX_S) + 1;
    let step_ns = (one.end_ns - one.start_ns) / steps;
    (0..steps).for_each(|step| volume.add(one.start_ns + step * step_ns, octets / steps));
    volume.add(one.end_ns, octets % steps);
}
