//! The laws of each class, measured batch by batch.
//!
//! Sums, series and laws cover all conversations; laws are counted in tallies, so that memory is
//! bounded.

use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_stat::{Empirical, Tally};

use super::{
    Classed, DirectionTotals, PeriodicServices, Starts, UdpClass, UdpModel, classify_all,
    conversations, paired, starts,
};
use crate::coverage::Share;
use crate::grid::Grid;
use crate::sessions::{Alive, PairLifetime};

/// Knots of each law.
const KNOTS: usize = 256;
/// The most distinct values in each of a class's laws.
const VALUES_MAX: usize = 1 << 14;
/// Mean bytes of a packet are counted in thousandths.
const THOUSANDTHS: f64 = 1e3;
/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// The laws of a class, in the order of their tallies.
#[derive(Clone, Copy)]
enum Of {
    RequestBytes,
    ResponseBytes,
    PacketMillibytes,
    DurationNs,
    PacketIntervalNs,
    InterRequestNs,
}

const LAWS: usize = 6;

/// The measures of one class's conversations.
#[derive(Debug)]
pub(crate) struct Measure {
    conversations: u64,
    answered: u64,
    carried: Share,
    packets: u64,
    laws: [Tally; LAWS],
    sessions: Alive,
    /// Starts of pairs whose conversations are not all here yet.
    starts: Starts,
}

/// The measures of no records.
pub(crate) fn empty(grid: Grid) -> Vec<Measure> {
    UdpClass::ALL.map(|_| Measure::new(grid)).into()
}

/// The measures of records, by class; `records` must hold all records of their address pairs.
pub(crate) fn measure(records: &[FlowRecord], grid: Grid) -> Vec<Measure> {
    let mut made = by_class(&conversations(records), grid);
    made.iter_mut().for_each(|measure| measure.settle(grid));
    made
}

/// The measures of some of the records of address pairs, whose periodic services are known.
pub(crate) fn measure_partial(
    records: &[FlowRecord],
    periodic: &PeriodicServices,
    grid: Grid,
) -> Vec<Measure> {
    let mut found = paired(records);
    classify_all(&mut found, periodic);
    by_class(&found, grid)
}

fn by_class(found: &[Classed], grid: Grid) -> Vec<Measure> {
    if found.is_empty() {
        return empty(grid);
    }
    let of = |class| found.iter().filter(|one| one.class == class).collect::<Vec<_>>();
    UdpClass::ALL.into_iter().map(|class| Measure::of(&of(class), grid)).collect()
}

/// A model of each class that occurs.
pub(crate) fn models(measures: Vec<Measure>, grid: Grid) -> Vec<UdpModel> {
    let classes = UdpClass::ALL.into_iter().zip(measures);
    classes.filter_map(|(class, measure)| measure.model(class, grid)).collect()
}

impl Measure {
    fn new(grid: Grid) -> Measure {
        Measure {
            conversations: 0,
            answered: 0,
            carried: Share::default(),
            packets: 0,
            laws: [(); LAWS].map(|()| Tally::new(VALUES_MAX)),
            sessions: Alive::new(grid.intervals),
            starts: Starts::new(),
        }
    }

    fn of(found: &[&Classed], grid: Grid) -> Measure {
        let mut made = Measure::new(grid);
        if found.is_empty() {
            return made;
        }
        let seconds = |ns: u64| ns.saturating_sub(grid.origin_ns) as f64 / 1e9;
        let life = |one: &&Classed| PairLifetime {
            first_start_s: seconds(one.span_ns.0),
            last_end_s: seconds(one.span_ns.1),
        };
        let lives: Vec<PairLifetime> = found.iter().map(life).collect();
        made.conversations = found.len() as u64;
        made.sessions = Alive::of(&lives, grid.interval_s, grid.intervals);
        let mut values: [Vec<u64>; LAWS] = Default::default();
        made.starts = starts(found.iter().copied());
        for one in found {
            let [request, answer] = one.conversation.ways;
            made.answered += u64::from(answer.packets > 0);
            values[Of::DurationNs as usize].push(one.span_ns.1 - one.span_ns.0);
            values[Of::RequestBytes as usize].push(request.octets);
            if answer.packets > 0 {
                values[Of::ResponseBytes as usize].push(answer.octets);
            }
            for way in [request, answer].into_iter().filter(|way| way.packets > 0) {
                made.carried.add(Share { flows: 1, octets: way.octets });
                made.packets += way.packets;
                note(&way, &mut values);
            }
        }
        made.laws = values.map(|values| Tally::of(values, VALUES_MAX));
        made
    }

    /// Adds other measures, on the same grid.
    pub(crate) fn add(&mut self, more: Measure) {
        self.conversations += more.conversations;
        self.answered += more.answered;
        self.carried.add(more.carried);
        self.packets += more.packets;
        self.laws.iter_mut().zip(more.laws).for_each(|(sum, more)| sum.merge(more));
        self.sessions.add(&more.sessions);
        for (service, starts) in more.starts {
            self.starts.entry(service).or_default().extend(starts);
        }
    }

    /// The number of conversations that wait for others of their address pairs.
    pub(crate) fn pending(&self) -> usize {
        self.starts.values().map(Vec::len).sum()
    }

    /// Measures the waiting conversations, whose address pairs are now complete.
    pub(crate) fn settle(&mut self, grid: Grid) {
        let starts = core::mem::take(&mut self.starts);
        let gaps = inter_requests_ns(starts, grid.bound_s);
        self.laws[Of::InterRequestNs as usize].merge(Tally::of(gaps, VALUES_MAX));
    }

    fn model(self, class: UdpClass, grid: Grid) -> Option<UdpModel> {
        let law = |of: Of, unit: f64| {
            let counts = self.laws[of as usize].clone().in_units_of(unit);
            Empirical::linear_from_counts(counts, KNOTS).ok()
        };
        Some(UdpModel {
            class,
            conversations: self.conversations,
            answered_share: self.answered as f64 / self.conversations.max(1) as f64,
            carried: self.carried,
            packets: self.packets,
            request_bytes: law(Of::RequestBytes, 1.0)?,
            response_bytes: law(Of::ResponseBytes, 1.0),
            packet_bytes: law(Of::PacketMillibytes, THOUSANDTHS)?,
            duration_s: law(Of::DurationNs, NANOS)?,
            packet_interval_s: law(Of::PacketIntervalNs, NANOS),
            inter_request_s: law(Of::InterRequestNs, NANOS),
            sessions: self.sessions.means(|at| grid.length_s(at)),
        })
    }
}

/// Adds one direction to the laws of packets.
fn note(way: &DirectionTotals, values: &mut [Vec<u64>; LAWS]) {
    let millibytes = libm::round(way.mean_bytes() * THOUSANDTHS) as u64;
    values[Of::PacketMillibytes as usize].push(millibytes);
    if way.packets > 1 {
        let interval_ns = libm::round(way.lasts_s * NANOS / (way.packets - 1) as f64) as u64;
        values[Of::PacketIntervalNs as usize].push(interval_ns);
    }
}

/// Nanoseconds between consecutive conversations of one pair.
fn inter_requests_ns(starts: Starts, bound_s: f64) -> Vec<u64> {
    let mut gaps = Vec::new();
    for (_, mut starts) in starts {
        starts.sort_unstable();
        gaps.extend(starts.windows(2).map(|two| two[1] - two[0]));
    }
    gaps.retain(|gap| *gap as f64 / NANOS <= bound_s);
    gaps
}
