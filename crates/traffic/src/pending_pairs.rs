//! Address pairs whose flows are in several batches.
//!
//! A pair with too many flows for one batch is measured by its pairs of sockets. Gaps, activity and round trips
//! need all flows of the pair, so summaries of them are kept until its last batch: 32 bytes for a connection that
//! began, and 8 for one that was answered.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;

use crate::address_pairs::{AddressPair, PairFlow};
use crate::biflows::Answered;

/// Observations to be measured pair by pair, from the flows of a batch.
#[derive(Debug, Default)]
pub(crate) struct PairObservations {
    /// Flows that opened connections.
    pub opened: Vec<PairFlow>,
    pub sampled: Vec<FlowRecord>,
    pub answers: Vec<Answered>,
}

/// Summary of a flow, kept until its pair is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowSummary {
    /// When it began and ended, ns since 1970.
    pub start_ns: u64,
    pub end_ns: u64,
    /// The sampling interval, if it was sampled.
    pub interval: u32,
    /// Whether it opened a connection, as far as is known.
    pub opens: bool,
    /// Whether its exporter records TCP flags.
    pub is_flagged: bool,
    /// Whether it goes from the client to the server, as far as is known.
    pub asks: bool,
    /// Its pair of ports, in a word that both directions share.
    pub ports: u16,
    /// Its packets, saturating.
    pub packets: u32,
}

impl FlowSummary {
    /// The summary of a whole flow that opened a connection.
    fn opening(&PairFlow { start_ns, end_ns, .. }: &PairFlow) -> FlowSummary {
        let (opens, is_flagged, asks) = (true, true, true);
        FlowSummary { start_ns, end_ns, interval: 0, opens, is_flagged, asks, ports: 0, packets: 0 }
    }

    /// The summary of a sampled flow.
    pub fn of_sampled(flow: &FlowRecord) -> FlowSummary {
        FlowSummary {
            start_ns: flow.start_ns,
            end_ns: flow.end_ns,
            interval: flow.sampling_interval,
            opens: flow.has_start() && flow.opened != Some(false),
            is_flagged: flow.tcp_flags != 0,
            asks: flow.is_from_client(),
            ports: flow.key.source_port.wrapping_add(flow.key.destination_port),
            packets: u32::try_from(flow.packets).unwrap_or(u32::MAX),
        }
    }

    /// The expected time of its second packet, given how many there are, ns since 1970; `None` if there is no second
    /// packet.
    pub fn second_packet_ns(&self) -> Option<u64> {
        let waits = u64::from(self.packets.saturating_sub(1));
        (waits > 0).then(|| self.start_ns + self.end_ns.saturating_sub(self.start_ns) / waits)
    }
}

/// Pairs with flows in later batches.
#[derive(Debug, Default)]
pub(crate) struct PendingPairs {
    pub summaries: BTreeMap<AddressPair, Vec<FlowSummary>>,
    pub answers: BTreeMap<(IpAddr, IpAddr), Vec<u64>>,
    count: usize,
}

impl PendingPairs {
    /// Adds the flows of a batch.
    pub fn add(&mut self, observed: PairObservations) {
        self.count += observed.opened.len() + observed.sampled.len() + observed.answers.len();
        for flow in observed.opened {
            self.summaries.entry(flow.pair).or_default().push(FlowSummary::opening(&flow));
        }
        for record in &observed.sampled {
            let pair = PairFlow::of(record).pair;
            self.summaries.entry(pair).or_default().push(FlowSummary::of_sampled(record));
        }
        for (ends, nanos) in observed.answers {
            self.answers.entry(ends).or_default().push(nanos);
        }
    }

    /// The number of flows and answers kept.
    pub fn count(&self) -> usize {
        self.count
    }
}
