//! What is told of an address pair by all of its flows, where these come some at a time.
//!
//! A pair whose flows are too many to be looked at together has them measured by its pairs of sockets. What is
//! left to be told of the pair itself takes its moments: 24 bytes for a connection that began, and 8 for one that was
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
        for Span { pair, start_ns, end_ns } in some.opened {
            let moment = Moment { start_ns, end_ns, interval: 0, opens: true };
            self.moments.entry(pair).or_default().push(moment);
        }
        for record in &some.sampled {
            let Span { pair, start_ns, end_ns } = Span::of(record);
            let (interval, opens) = (record.sampling_interval, opens(record));
            let moment = Moment { start_ns, end_ns, interval, opens };
            self.moments.entry(pair).or_default().push(moment);
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

/// Did this sampled flow open a connection, as far as is known?
pub(crate) fn opens(record: &FlowRecord) -> bool {
    record.has_start() && record.opened != Some(false)
}
