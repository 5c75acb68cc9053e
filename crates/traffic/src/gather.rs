//! Flow records gathered for an estimate, and repaired.
//!
//! Records come one by one, are packed, and wait in parts by their address pairs. When all are there, the
//! parts are repaired, each by itself, and what is neither TCP nor UDP is counted and let go. Records without flags
//! and sampled ones are few or all there is: they are told by the whole of them, and wait together.

use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::{TCP, UDP};
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, RepairCounts, Screen, settle_all};

use crate::estimate::{count, represented_octets};
use crate::lengths::is_sampled;
use crate::model::Coverage;
use crate::parts::{Part, Parts};
use crate::runner::Runner;
use crate::unflagged::is_unflagged;

/// Records on their way into an estimate: some 50 bytes each, 110 where they are of IPv6 or sampled.
#[derive(Debug)]
pub struct Gathered {
    screen: Screen,
    parts: Parts,
    /// Without flags, or sampled.
    others: Vec<FlowRecord>,
    records: usize,
}

/// Flows, repaired or as they were given.
pub(crate) struct Flows {
    /// Those of TCP, metered whole, with flags; none where there are none at all.
    pub parts: Vec<Part>,
    /// Those of UDP, metered whole.
    pub udp: Vec<Part>,
    /// Records of TCP without flags, or sampled.
    pub others: Vec<FlowRecord>,
    /// All that is not TCP is counted, and the bytes of all.
    pub coverage: Coverage,
    /// From the first start to the last end, ns since 1970.
    pub span_ns: Option<(u64, u64)>,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered::new()
    }
}

impl Gathered {
    /// No records yet.
    pub fn new() -> Gathered {
        Gathered { screen: Screen::default(), parts: Parts::new(), others: Vec::new(), records: 0 }
    }

    /// Records taken.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Takes the next record, to be repaired with the others.
    pub fn take(&mut self, mut record: FlowRecord) {
        if !is_another(&record) {
            self.screen.set_right(&mut record);
        }
        self.take_as_given(record);
    }

    pub(crate) fn take_as_given(&mut self, record: FlowRecord) {
        self.records += 1;
        match is_another(&record) {
            true => self.others.push(record),
            false => self.parts.push(&record),
        }
    }

    /// The flows of all records, and what repair came to.
    pub(crate) fn into_repaired(self, runner: &impl Runner) -> (Flows, RepairCounts) {
        let repair = |part: Part| {
            let mut counts = RepairCounts::default();
            let flows = settle_all(part.unpack(0), HARPOON_GAP_MAX_NS, &mut counts);
            (OfPart::of(flows), counts)
        };
        let mut counts = self.screen.counts;
        let parts = runner.map(self.parts.into_parts(), repair);
        parts.iter().for_each(|(_, of_part)| counts.add(of_part));
        counts.assert_conserved();
        (Flows::of(parts.into_iter().map(|(part, _)| part), self.others), counts)
    }

    /// The flows of all records, each a flow.
    pub(crate) fn into_given(self, runner: &impl Runner) -> Flows {
        let parts = runner.map(self.parts.into_parts(), |part| OfPart::of(part.unpack(0)));
        Flows::of(parts.into_iter(), self.others)
    }
}

fn is_another(record: &FlowRecord) -> bool {
    is_sampled(record) || is_unflagged(record)
}

/// The flows of one part.
struct OfPart {
    part: Part,
    udp: Part,
    flows: usize,
    coverage: Coverage,
    span_ns: Option<(u64, u64)>,
}

impl OfPart {
    fn of(flows: Vec<FlowRecord>) -> OfPart {
        let mut coverage = Coverage::default();
        let span_ns = span_of(&flows);
        let (tcp, others): (Vec<_>, Vec<_>) =
            flows.into_iter().partition(|flow| is_tcp(flow, &mut coverage));
        let flows = tcp.len();
        let udp = others.into_iter().filter(|flow| flow.key.protocol == UDP);
        OfPart { part: Part::of(tcp.into_iter()), udp: Part::of(udp), flows, coverage, span_ns }
    }
}

impl Flows {
    fn of(parts: impl Iterator<Item = OfPart>, mut others: Vec<FlowRecord>) -> Flows {
        let (mut coverage, mut span_ns) = (Coverage::default(), span_of(&others));
        others.retain(|record| is_tcp(record, &mut coverage));
        let (mut kept, mut udp, mut flows) = (Vec::new(), Vec::new(), 0);
        for part in parts {
            coverage.add(&part.coverage);
            span_ns = both(span_ns, part.span_ns);
            flows += part.flows;
            kept.push(part.part);
            udp.push(part.udp);
        }
        if flows == 0 {
            kept.clear();
        }
        Flows { parts: kept, udp, others, coverage, span_ns }
    }
}

fn span_of(records: &[FlowRecord]) -> Option<(u64, u64)> {
    let first = records.iter().map(|record| record.start_ns).min()?;
    let last = records.iter().map(|record| record.end_ns).max()?;
    Some((first, last))
}

fn both(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        _ => one.or(other),
    }
}

/// Is this flow one of TCP? Others are counted as left out.
fn is_tcp(flow: &FlowRecord, coverage: &mut Coverage) -> bool {
    let octets = represented_octets(flow);
    coverage.octets += octets;
    let is_tcp = flow.key.protocol == TCP;
    if !is_tcp {
        coverage.flows += 1;
        count(&mut coverage.left_out.not_tcp, octets);
    }
    is_tcp
}
