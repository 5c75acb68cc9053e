//! Evidence that flows without flags were seen to begin and to end.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::repair::CONTINUATION_GAP_MAX_NS;
use nilometer_flow::{EndReason, FlowRecord};

use super::hosts::Hosts;
use super::relations::{self, Relations};
use crate::estimate_error::EstimateError;
use crate::files::FILE_MIN_BYTES;

/// Packets without payload that open a connection, and that open and close it, both directions together.
const OPENING_PACKETS: u64 = 3;
const WHOLE_PACKETS: u64 = 6;
/// Packets without payload of one direction: SYN and FIN.
const DIRECTION_PACKETS: u64 = 2;
/// The payload of a full segment without options, for IPv4 and for IPv6.
const SEGMENT_BYTES: [u64; 2] = [1_460, 1_440];
/// No start is certain this close to the input's first moment, ns; a hundredth of a short input.
const EDGE_NS: u64 = 1_000_000_000;
const EDGE_PART: u64 = 100;
/// The silence by which exporters know that a flow is over; a twentieth of a short input.
const SILENCE_NS: u64 = CONTINUATION_GAP_MAX_NS;
const SILENCE_PART: u64 = 20;

/// All flows of some address pairs, in the order of their starts, with their relations.
pub(crate) struct RelatedFlows<'a> {
    flows: &'a [FlowRecord],
    relations: Vec<Relations>,
}

/// A count among all.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    such: u64,
    all: u64,
}

/// The evidence of the flows of some address pairs. Whether both directions are seen is known only after
/// all flows: what depends on it is counted for both cases, first for the case that they are.
#[derive(Debug, Default)]
pub(crate) struct Weighed {
    threshold_ns: u64,
    /// Files that are answered, among those that may be whole by themselves.
    answered: Share,
    /// Files with all packets that they need, among those that are seen.
    complete: [Share; 2],
    hosts: Hosts,
}

/// The two cases of [`Weighed`].
const SEES_BOTH: [bool; 2] = [true, false];

/// The evidence of all flows of an input.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    hosts: Hosts,
    span_ns: (u64, u64),
    /// Whether some record states that its flow ended: then flows with another reason did not end.
    reports_ends: bool,
    /// Whether both directions of connections were seen: then a flow without an answer is not a
    /// connection.
    sees_both: bool,
    /// Whether packets without payload are counted.
    counts_bare: bool,
}

impl<'a> RelatedFlows<'a> {
    /// Relates flows; silence of up to `threshold_ns` is a pause.
    pub fn new(flows: &'a [FlowRecord], threshold_ns: u64) -> RelatedFlows<'a> {
        RelatedFlows { flows, relations: relations::of(flows, threshold_ns) }
    }

    fn answer(&self, at: usize) -> Option<&'a FlowRecord> {
        self.relations[at].answer.map(|answer| &self.flows[answer as usize])
    }

    /// The opening side of this flow's connection, judged by starts, and the flow that answers.
    fn client(&self, at: usize) -> Option<(IpAddr, &'a FlowRecord)> {
        let (flow, answer) = (&self.flows[at], self.answer(at)?);
        let first =
            if (flow.start_ns, flow.key) <= (answer.start_ns, answer.key) { flow } else { answer };
        Some((first.key.source, answer))
    }

    /// Are these too few packets to have opened a connection, carried the payload and closed it?
    fn lacks(&self, at: usize, sees_both: bool) -> bool {
        let own = bare_packets(&self.flows[at]);
        match self.answer(at).map(bare_packets) {
            Some(other) if sees_both => {
                own + other < WHOLE_PACKETS || own.min(other) < DIRECTION_PACKETS
            }
            None if sees_both => true,
            _ => own < DIRECTION_PACKETS,
        }
    }
}

impl Share {
    fn count(&mut self, is_such: bool) {
        self.such += u64::from(is_such);
        self.all += 1;
    }

    fn add(&mut self, more: Share) {
        self.such += more.such;
        self.all += more.all;
    }

    fn is_most(self) -> bool {
        2 * self.such > self.all
    }
}

impl Weighed {
    /// The evidence of these flows, whose reported ends are in their flags.
    pub fn of(flows: &[FlowRecord], threshold_ns: u64) -> Weighed {
        let related = RelatedFlows::new(flows, threshold_ns);
        let hosts = Hosts::of(flows, threshold_ns);
        let mut weighed = Weighed { threshold_ns, hosts, ..Weighed::default() };
        for at in 0..flows.len() {
            weighed.weigh(&related, at);
        }
        weighed.hosts.settle(threshold_ns);
        weighed
    }

    fn weigh(&mut self, related: &RelatedFlows<'_>, at: usize) {
        let flow = &related.flows[at];
        let is_answered = related.relations[at].answer.is_some();
        let lacks = SEES_BOTH.map(|sees_both| related.lacks(at, sees_both));
        if is_file(flow) {
            if bare_packets(flow) >= DIRECTION_PACKETS {
                self.answered.count(is_answered);
            }
            for (case, sees_both) in SEES_BOTH.into_iter().enumerate() {
                if is_answered || !sees_both {
                    self.complete[case].count(!lacks[case]);
                }
            }
        }
        if let Some((client, answer)) = related.client(at)
            && (is_file(flow) || is_file(answer))
        {
            self.hosts.count(client, lacks);
        }
    }

    /// Adds the evidence of other address pairs.
    ///
    /// # Errors
    /// As soon as hosts came and went more than `times_max` times.
    pub fn merge(&mut self, more: Weighed, times_max: usize) -> Result<(), EstimateError> {
        self.threshold_ns = more.threshold_ns;
        self.answered.add(more.answered);
        self.complete.iter_mut().zip(more.complete).for_each(|(sum, more)| sum.add(more));
        self.hosts.merge(more.hosts, self.threshold_ns);
        self.check(times_max)
    }

    /// Merges everything that was added.
    ///
    /// # Errors
    /// When hosts came and went more than `times_max` times.
    pub fn settled(mut self, times_max: usize) -> Result<Weighed, EstimateError> {
        self.hosts.settle(self.threshold_ns);
        self.check(times_max)?;
        Ok(self)
    }

    fn check(&self, times_max: usize) -> Result<(), EstimateError> {
        let is_too_much = self.hosts.is_more_than(times_max);
        if is_too_much { Err(EstimateError::TooManyTimes(times_max)) } else { Ok(()) }
    }
}

impl Evidence {
    /// The evidence of all flows from `span_ns.0` to `span_ns.1`; `weighed` must be settled.
    pub fn of(weighed: Weighed, reports_ends: bool, span_ns: (u64, u64)) -> Evidence {
        let sees_both = weighed.answered.is_most();
        let counts_bare = weighed.complete[usize::from(!sees_both)].is_most();
        Evidence { hosts: weighed.hosts, span_ns, reports_ends, sees_both, counts_bare }
    }

    /// Was this flow seen to begin?
    pub fn has_begun(&self, related: &RelatedFlows<'_>, at: usize) -> bool {
        let flow = &related.flows[at];
        let edge_ns = self.part_of_span(EDGE_NS, EDGE_PART);
        if related.relations[at].resumes || flow.start_ns.saturating_sub(self.span_ns.0) <= edge_ns
        {
            return false;
        }
        let needs_answer = self.sees_both && is_file(flow);
        match related.answer(at) {
            None if needs_answer => false,
            _ if !self.counts_bare => true,
            None => bare_packets(flow) > 0,
            Some(answer) => {
                let both = bare_packets(flow) + bare_packets(answer);
                let is_opened = !self.sees_both || both >= OPENING_PACKETS;
                bare_packets(flow) > 0 && is_opened && !self.is_seen_in_part(related, at)
            }
        }
    }

    /// Was it seen to end?
    pub fn has_ended(&self, related: &RelatedFlows<'_>, at: usize) -> bool {
        match related.flows[at].end_reason {
            _ if related.flows[at].has_end() => true,
            EndReason::Unknown => self.seems_ended(related, at),
            EndReason::IdleTimeout if !self.reports_ends => self.seems_ended(related, at),
            _ => false,
        }
    }

    fn seems_ended(&self, related: &RelatedFlows<'_>, at: usize) -> bool {
        let (flow, answer) = (&related.flows[at], related.answer(at));
        let end_ns = answer.map_or(flow.end_ns, |answer| answer.end_ns.max(flow.end_ns));
        let silence_ns = self.part_of_span(SILENCE_NS, SILENCE_PART);
        if related.relations[at].pauses || self.span_ns.1.saturating_sub(end_ns) < silence_ns {
            return false;
        }
        if self.sees_both && answer.is_none() {
            return false;
        }
        let lacks = || related.lacks(at, self.sees_both) || self.is_seen_in_part(related, at);
        if self.counts_bare && lacks() {
            return false;
        }
        let last_ns = |address| self.hosts.last_ns(address, end_ns);
        let seen_for_ns = last_ns(flow.key.source).max(last_ns(flow.key.destination)) - end_ns;
        seen_for_ns == 0 || seen_for_ns >= silence_ns
    }

    /// `long_ns`, but at most one `part`-th of the input.
    fn part_of_span(&self, long_ns: u64, part: u64) -> u64 {
        long_ns.min(self.span_ns.1.saturating_sub(self.span_ns.0) / part)
    }

    fn is_seen_in_part(&self, related: &RelatedFlows<'_>, at: usize) -> bool {
        let client = related.client(at);
        client.is_some_and(|(client, _)| self.hosts.is_seen_in_part(client, self.sees_both))
    }
}

/// Would this flow be a file if it was whole?
fn is_file(flow: &FlowRecord) -> bool {
    !flow.only_acknowledges() && flow.payload_bytes() >= FILE_MIN_BYTES
}

/// The packets without payload, if the payload went in full segments. If packets are larger than a
/// link's, because a host's offload had merged them, one may have carried all payload.
fn bare_packets(flow: &FlowRecord) -> u64 {
    let segment_bytes = SEGMENT_BYTES[usize::from(flow.key.source.is_ipv6())];
    let segments = flow.payload_bytes().div_ceil(segment_bytes);
    if segments > flow.packets { flow.packets.saturating_sub(1) } else { flow.packets - segments }
}

#[cfg(test)]
mod tests {
    use super::super::tests::infer;
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::FlowKey;
    use nilometer_flow::record::TCP;

    const SECOND_NS: u64 = 1_000_000_000;
    const SPAN_NS: (u64, u64) = (0, 600 * SECOND_NS);

    /// Both directions of a connection of client and server: a request of 400 bytes, and an answer of
    /// 4,000.
    fn between(
        (client, server): (u8, u8),
        port: u16,
        (from_s, to_s): (u64, u64),
        packets: u64,
    ) -> [FlowRecord; 2] {
        let address = |net, host| Ipv4Addr::new(198, net, 0, host).into();
        let key = FlowKey {
            source: address(18, client),
            destination: address(19, server),
            source_port: port,
            destination_port: 80,
            protocol: TCP,
        };
        let one = |key: FlowKey, payload: u64, later_ns: u64| FlowRecord {
            key,
            start_ns: from_s * SECOND_NS + later_ns,
            end_ns: to_s * SECOND_NS + later_ns,
            packets,
            octets: 40 * packets + payload,
            tcp_flags: 0,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        };
        [one(key, 400, 0), one(key.reversed(), 4_000, 10_000_000)]
    }

    /// A connection of the second client with the busy server.
    fn connection(port: u16, from_s: u64, to_s: u64, packets: u64) -> [FlowRecord; 2] {
        between((2, 1), port, (from_s, to_s), packets)
    }

    /// Connections of the first client, one after the other, almost to the end.
    fn busy_server(packets: u64) -> Vec<FlowRecord> {
        let connection = |n: u16| {
            let from_s = 2 + 20 * u64::from(n);
            between((1, 1), 2_000 + n, (from_s, from_s + 3), packets)
        };
        (0..29).flat_map(connection).collect()
    }

    const ALL_WHOLE: [(bool, bool); 29] = [(true, true); 29];

    /// Starts and ends of the records from `client`, in the order of their starts.
    fn marks(client: u8, records: Vec<FlowRecord>) -> Vec<(bool, bool)> {
        let found = infer(records, SPAN_NS);
        let of = |flow: &&FlowRecord| flow.key.source == Ipv4Addr::new(198, 18, 0, client);
        found.flows.iter().filter(of).map(|flow| (flow.has_start(), flow.has_end())).collect()
    }

    fn beside_a_busy_server(records: &[FlowRecord]) -> Vec<(bool, bool)> {
        marks(2, [busy_server(8).as_slice(), records].concat())
    }

    #[test]
    fn whole_connections_begin_and_end() {
        assert_eq!(marks(1, busy_server(8)), ALL_WHOLE);
        assert_eq!(beside_a_busy_server(&connection(9, 100, 101, 8)), [(true, true)]);
    }

    #[test]
    fn where_ends_are_reported_no_others_are_inferred() {
        let mut records = busy_server(8);
        for record in &mut records {
            let is_odd = record.key.source_port.max(record.key.destination_port) % 2 == 1;
            record.end_reason = if is_odd { EndReason::EndOfFlow } else { EndReason::IdleTimeout };
        }
        let expected: Vec<(bool, bool)> = (0..29).map(|n| (true, n % 2 == 1)).collect();
        assert_eq!(marks(1, records.clone()), expected);
        records.iter_mut().for_each(|record| record.end_reason = EndReason::IdleTimeout);
        assert_eq!(marks(1, records), ALL_WHOLE, "nothing is told");
    }

    #[test]
    fn a_silence_of_half_a_minute_is_neither_end_nor_start() {
        let two = [connection(9, 100, 101, 8), connection(9, 131, 132, 8)].concat();
        assert_eq!(beside_a_busy_server(&two), [(true, false), (false, true)]);
        let two = [connection(9, 100, 101, 8), connection(9, 190, 191, 8)].concat();
        assert_eq!(beside_a_busy_server(&two), [(true, true), (true, true)]);
    }

    #[test]
    fn connections_with_too_few_packets_are_incomplete() {
        // One segment from the client and three from the server leave four packets of eight.
        let few = [connection(9, 100, 101, 8), connection(10, 200, 201, 4)].concat();
        assert_eq!(beside_a_busy_server(&few), [(true, true), (true, false)]);
        let in_part =
            [few, connection(11, 300, 301, 4).to_vec(), connection(12, 400, 401, 4).to_vec()];
        assert_eq!(beside_a_busy_server(&in_part.concat()), [(false, false); 4]);
        // If most connections lack them, packets without payload are not counted.
        assert_eq!(marks(1, busy_server(4)), ALL_WHOLE);
    }

    #[test]
    fn unanswered_flows_are_no_connections_unless_one_direction_is_exported() {
        let [lone, _] = connection(9, 100, 101, 8);
        assert_eq!(beside_a_busy_server(core::slice::from_ref(&lone)), [(false, false)]);
        let mut one_way = busy_server(8);
        one_way.retain(|record| record.key.destination_port == 80);
        assert_eq!(marks(2, [one_way.as_slice(), &[lone]].concat()), [(true, true)]);
    }

    #[test]
    fn a_flow_that_ends_just_before_its_hosts_may_continue() {
        let elsewhere = |n: u64| between((2, 2), 9 + n as u16, (100 + n, 101 + n), 8);
        let three: Vec<FlowRecord> = [0, 14, 20].into_iter().flat_map(elsewhere).collect();
        // The last connection is that of hosts which left.
        assert_eq!(beside_a_busy_server(&three), [(true, true), (true, false), (true, true)]);
        let alone: Vec<FlowRecord> = elsewhere(0).to_vec();
        assert_eq!(beside_a_busy_server(&alone), [(true, true)]);
        let late = connection(9, 585, 586, 8);
        assert_eq!(beside_a_busy_server(&late), [(true, false)], "the input ends too soon");
    }

    #[test]
    fn the_order_of_records_does_not_matter() {
        let mut records = busy_server(8);
        for n in 0..20 {
            let port = 9 + n % 7;
            records.extend(connection(port as u16, 31 * n, 31 * n + n, 2 + n % 9));
        }
        let found = infer(records.clone(), SPAN_NS);
        for turn in [1, 17, 40] {
            records.rotate_left(turn);
            records.reverse();
            assert_eq!(infer(records.clone(), SPAN_NS).flows, found.flows);
        }
    }
}
