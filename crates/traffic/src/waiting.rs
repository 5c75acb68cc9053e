//! What is told of an address pair by all of its flows, where these come some at a time.
//!
//! A pair whose flows are too many to be looked at together has them measured by its pairs of sockets. What is
//! left to be told of the pair itself takes its moments: 32 bytes for a connection that began, and 8 for one that was
//! answered. They wait until the last of its flows was measured.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;

use crate::pairs::Answered;
use crate::spans::{Pair, Span};

/// Of flows of address pairs, what is told pair by pair.
#[derive(Debug, Default)]
pub(crate) struct OfPairs {
    /// Flows that opened connections.
    pub opened: Vec<Span>,
    pub sampled: Vec<FlowRecord>,
    pub answers: Vec<Answered>,
}

/// When a flow began and ended, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub start_ns: u64,
    pub end_ns: u64,
    /// The sampling interval, if it was sampled.
    pub interval: u32,
    /// It opened a connection, as far as is known.
    pub opens: bool,
    /// Its exporter records flags of TCP.
    pub is_flagged: bool,
    /// It goes from the client to the server, as far as is known.
    pub asks: bool,
    /// Its pair of ports, in a word that both directions share.
    pub ports: u16,
    /// Its packets, or so many if there are more.
    pub packets: u32,
}

impl Moment {
    /// That of a whole flow that opened a connection.
    fn opening(&Span { start_ns, end_ns, .. }: &Span) -> Moment {
        let (opens, is_flagged, asks) = (true, true, true);
        Moment { start_ns, end_ns, interval: 0, opens, is_flagged, asks, ports: 0, packets: 0 }
    }

    /// That of a sampled flow.
    pub fn of_sampled(flow: &FlowRecord) -> Moment {
        Moment {
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

    /// When the second of its packets came, in the mean of flows with as many, ns since 1970; none has no second.
    pub fn again_ns(&self) -> Option<u64> {
        let waits = u64::from(self.packets.saturating_sub(1));
        (waits > 0).then(|| self.start_ns + self.end_ns.saturating_sub(self.start_ns) / waits)
    }
}

/// Pairs that wait for more of their flows.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub moments: BTreeMap<Pair, Vec<Moment>>,
    pub answers: BTreeMap<(IpAddr, IpAddr), Vec<u64>>,
    count: usize,
}

impl Waiting {
    /// Takes flows of pairs of which more may come.
    pub fn take(&mut self, some: OfPairs) {
        self.count += some.opened.len() + some.sampled.len() + some.answers.len();
        for span in some.opened {
            self.moments.entry(span.pair).or_default().push(Moment::opening(&span));
        }
        for record in &some.sampled {
            let pair = Span::of(record).pair;
            self.moments.entry(pair).or_default().push(Moment::of_sampled(record));
        }
        for (ends, nanos) in some.answers {
            self.answers.entry(ends).or_default().push(nanos);
        }
    }

    /// How many moments wait.
    pub fn count(&self) -> usize {
        self.count
    }
}
