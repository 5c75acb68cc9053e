//! Flows of both directions joined into connections: biflows (RFC 5103, section 2).
//!
//! A connection's two flows have each other's five-tuple and overlap in time. Records of one five-tuple are visited in
//! the order of their starts, and each is paired with the first of the other direction that starts no later than a
//! second after its end. A direction without a record, from exporters that see only one direction, leaves a connection
//! of one flow.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::Tally;

use crate::connections::{ConnectionVolume, Shape, Shapes};
use crate::files::{ends, is_file};
use crate::grid::Grid;
use crate::round_trips::{self, PAIRS_APART_MAX};

/// How long after a flow's end its other direction may begin, ns: stamps of exporters are coarse.
const APART_MAX_NS: u64 = 1_000_000_000;

/// Client and server, and the time to an answer, ns.
pub(crate) type Answered = ((IpAddr, IpAddr), u64);

/// A whole connection.
pub(crate) struct Connection {
    /// When its first flow started, ns since 1970.
    start_ns: u64,
    /// A hash of its first flow.
    mark: u64,
    shape: Shape,
    /// IP bytes of its flows.
    octets: u64,
    /// Its flows, one or two.
    flows: u64,
    /// Client and server.
    ends: (IpAddr, IpAddr),
    /// From the start of the client's flow to that of the server's, ns, where both are there in this order.
    answered_ns: Option<u64>,
}

/// Sums over the whole connections of some address pairs.
#[derive(Debug)]
pub(crate) struct WholeConnections {
    /// The shapes of connections.
    pub shapes: Shapes,
    /// The volume of connections that start in each interval.
    pub volumes: Vec<ConnectionVolume>,
    /// Number of their flows, and IP bytes of these flows.
    pub flows: u64,
    pub octets: u64,
    /// Connections whose answer was seen to begin, and for each address pair the median time to it, ns.
    pub answered: u64,
    pub pair_medians_ns: Tally,
}

impl WholeConnections {
    /// Sums without connections.
    pub fn new(grid: Grid) -> WholeConnections {
        WholeConnections {
            shapes: Shapes::default(),
            volumes: vec![ConnectionVolume::default(); grid.intervals],
            flows: 0,
            octets: 0,
            answered: 0,
            pair_medians_ns: Tally::new(PAIRS_APART_MAX),
        }
    }

    /// Sums over whole connections on a grid, with the answer times of each address pair.
    pub fn of(connections: Vec<Connection>, grid: Grid) -> (WholeConnections, Vec<Answered>) {
        let mut whole = WholeConnections::new(grid);
        let mut answers = Vec::new();
        for made in connections {
            let at = grid.at(made.start_ns);
            let Shape { bytes, packets, .. } = made.shape;
            let octets = made.octets;
            whole.volumes[at].add(&ConnectionVolume { connections: 1, bytes, packets, octets });
            whole.flows += made.flows;
            whole.octets += made.octets;
            answers.extend(made.answered_ns.map(|nanos| (made.ends, nanos)));
            whole.shapes.offer(made.mark, Shape { interval: at as u32, ..made.shape });
        }
        (whole, answers)
    }

    /// Adds all answer times of some address pairs.
    pub fn answered(&mut self, answers: Vec<Answered>) {
        self.answered += answers.len() as u64;
        let medians = round_trips::medians_ns(answers);
        self.pair_medians_ns.merge(Tally::of(medians, PAIRS_APART_MAX));
    }

    /// Adds all answer times of one address pair, ns.
    pub fn answered_pair(&mut self, mut nanos: Vec<u64>) {
        nanos.sort_unstable();
        self.answered += nanos.len() as u64;
        self.pair_medians_ns.add(round_trips::median_ns(&nanos), 1);
    }

    /// Adds the sums of other address pairs, on the same grid.
    pub fn add(&mut self, other: WholeConnections) {
        self.shapes.merge(other.shapes);
        for (volume, more) in self.volumes.iter_mut().zip(&other.volumes) {
            volume.add(more);
        }
        self.flows += other.flows;
        self.octets += other.octets;
        self.answered += other.answered;
        self.pair_medians_ns.merge(other.pair_medians_ns);
    }
}

/// Flows by connection.
pub(crate) struct Biflows {
    /// Those whose opening and end were seen, from either side, and that carried something.
    pub connections: Vec<Connection>,
    /// For each flow: is it a file whose connection has a larger file in the other direction?
    pub is_smaller: Vec<bool>,
}

impl Biflows {
    /// Finds the other direction of each flow.
    pub fn of(flows: &[FlowRecord]) -> Biflows {
        let mut order: Vec<(u64, u64, u32)> = (flows.iter().enumerate())
            .map(|(at, flow)| (fingerprint(&flow.key), flow.start_ns, at as u32))
            .collect();
        order.sort_unstable();
        let mut paired = Biflows { connections: Vec::new(), is_smaller: vec![false; flows.len()] };
        for group in order.chunk_by(|one, other| one.0 == other.0) {
            let places: Vec<usize> = group.iter().map(|&(.., at)| at as usize).collect();
            paired.pair(flows, &places);
        }
        paired
    }

    /// Pairs flows with one fingerprint; `places` must be in the order of their starts.
    fn pair(&mut self, flows: &[FlowRecord], places: &[usize]) {
        let mut is_taken = vec![false; places.len()];
        for (at, &place) in places.iter().enumerate() {
            if is_taken[at] {
                continue;
            }
            let flow = &flows[place];
            let until_ns = flow.end_ns.saturating_add(APART_MAX_NS);
            let starts_in_time = |&other: &usize| flows[places[other]].start_ns <= until_ns;
            let other = (at + 1..places.len())
                .take_while(starts_in_time)
                .find(|&other| !is_taken[other] && flows[places[other]].key == flow.key.reversed());
            if let Some(other) = other {
                is_taken[other] = true;
                self.compare(flows, [place, places[other]]);
            }
            self.connections.extend(connection(flow, other.map(|other| &flows[places[other]])));
        }
    }

    /// Marks the smaller of two directions that are both files; if they are equal, the request.
    fn compare(&mut self, flows: &[FlowRecord], places: [usize; 2]) {
        if places.iter().all(|&place| is_file(&flows[place])) {
            let size =
                |place: &usize| (flows[*place].payload_bytes(), !flows[*place].is_from_client());
            let smaller = places.into_iter().min_by_key(size);
            smaller.into_iter().for_each(|place| self.is_smaller[place] = true);
        }
    }
}

fn connection(flow: &FlowRecord, other: Option<&FlowRecord>) -> Option<Connection> {
    let both = || core::iter::once(flow).chain(other);
    if !both().any(FlowRecord::has_start) || !both().any(FlowRecord::has_end) {
        return None;
    }
    // If the opener is known from either flow, that decides for both.
    let telling = both().find(|flow| flow.opened.is_some()).unwrap_or(flow);
    let (client, server) = ends(telling);
    // By ports as well as addresses: on a loopback interface both ends have the same address.
    let asks = |flow: &FlowRecord| (flow.key == telling.key) == telling.is_from_client();
    let started = |asking| both().find(|flow| asks(flow) == asking).map(|flow| flow.start_ns);
    let answered_ns = match (started(true), started(false)) {
        (Some(request), Some(answered)) if answered > request => Some(answered - request),
        _ => None,
    };
    let mut shape = Shape::default();
    for flow in both() {
        let payload = if flow.only_acknowledges() { 0 } else { flow.payload_bytes() };
        shape.bytes += payload;
        shape.packets += flow.packets;
        if asks(flow) {
            shape.request_bytes += payload;
        }
    }
    (shape.bytes > 0).then(|| Connection {
        start_ns: both().map(|flow| flow.start_ns).min().unwrap_or(flow.start_ns),
        mark: mark(flow),
        shape,
        octets: both().map(|flow| flow.octets).sum(),
        flows: both().count() as u64,
        ends: (client, server),
        answered_ns,
    })
}

/// A hash that two connections share by chance alone.
fn mark(flow: &FlowRecord) -> u64 {
    let mixed =
        flow.key.hash_word().wrapping_add(flow.start_ns).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A hash that both directions share; keys distinguish five-tuples with the same one.
pub(crate) fn fingerprint(key: &FlowKey) -> u64 {
    let host = |address: IpAddr, port: u16| {
        let (high, low) = match address {
            IpAddr::V4(v4) => (0, u64::from(v4.to_bits())),
            IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, v6.to_bits() as u64),
        };
        let mixed = (low ^ high.rotate_left(29)).wrapping_add(u64::from(port) << 40);
        (mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    host(key.source, key.source_port).wrapping_add(host(key.destination, key.destination_port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::EndReason;
    use nilometer_flow::record::{TCP, tcp_flags};

    const SECOND_NS: u64 = 1_000_000_000;

    fn flow(port: u16, is_up: bool, start_s: u64, payload: u64) -> FlowRecord {
        let key = FlowKey {
            source: Ipv4Addr::new(198, 18, 0, 1).into(),
            destination: Ipv4Addr::new(198, 19, 0, 1).into(),
            source_port: port,
            destination_port: 80,
            protocol: TCP,
        };
        FlowRecord {
            key: if is_up { key } else { key.reversed() },
            start_ns: start_s * SECOND_NS,
            end_ns: (start_s + 2) * SECOND_NS,
            packets: 5,
            octets: payload + 5 * 40,
            tcp_flags: tcp_flags::SYN | tcp_flags::FIN | tcp_flags::ACK,
            payload_octets: Some(payload),
            opened: Some(is_up),
            end_reason: EndReason::EndOfFlow,
            sampling_interval: 0,
        }
    }

    fn shapes(flows: &[FlowRecord]) -> Vec<(u64, u64, u64)> {
        let mut made: Vec<_> = Biflows::of(flows)
            .connections
            .iter()
            .map(|made| (made.start_ns / SECOND_NS, made.shape.request_bytes, made.shape.bytes))
            .collect();
        made.sort_unstable();
        made
    }

    #[test]
    fn both_directions_are_one_connection_whichever_comes_first() {
        let (up, down) = (flow(1_000, true, 5, 70), flow(1_000, false, 5, 900));
        assert_eq!(shapes(&[up.clone(), down.clone()]), [(5, 70, 970)]);
        assert_eq!(shapes(&[down, up]), [(5, 70, 970)]);
    }

    /// The larger direction is the connection's file, whichever side sent it; a single flow is a file, and so is
    /// one whose other direction is not a file.
    #[test]
    fn a_connection_has_one_file() {
        let smaller = |flows: &[FlowRecord]| Biflows::of(flows).is_smaller;
        let both = |up, down| [flow(1_000, true, 5, up), flow(1_000, false, 5, down)];
        assert_eq!(smaller(&both(200, 9_000)), [true, false]);
        assert_eq!(smaller(&both(9_000, 200)), [false, true]);
        assert_eq!(smaller(&both(500, 500)), [true, false]);
        assert_eq!(smaller(&both(99, 9_000)), [false, false]);
        assert_eq!(smaller(&both(9_000, 99)), [false, false]);
        assert_eq!(smaller(&both(200, 9_000)[..1]), [false]);
        let mut cut = both(200, 9_000);
        cut[1].tcp_flags &= !(tcp_flags::FIN | tcp_flags::RST);
        assert_eq!(smaller(&cut), [false, false]);
    }

    #[test]
    fn a_reused_port_is_another_connection() {
        let flows = [
            flow(1_000, true, 5, 70),
            flow(1_000, false, 5, 900),
            flow(1_000, true, 60, 50),
            flow(1_000, false, 60, 80),
            flow(1_001, true, 5, 10),
        ];
        assert_eq!(shapes(&flows), [(5, 10, 10), (5, 70, 970), (60, 50, 130)]);
    }

    #[test]
    fn the_opener_is_known_from_either_flow_or_by_the_lower_port() {
        let mut unflagged = flow(1_000, true, 5, 70);
        unflagged.opened = None;
        let mut other = flow(1_000, false, 5, 900);
        assert_eq!(shapes(&[unflagged.clone(), other.clone()]), [(5, 70, 970)]);
        other.opened = Some(true);
        assert_eq!(shapes(&[unflagged.clone(), other.clone()]), [(5, 900, 970)]);
        other.opened = None;
        assert_eq!(shapes(&[unflagged, other]), [(5, 70, 970)]);
    }

    /// As in a capture of a loopback interface.
    #[test]
    fn ends_with_one_address_are_distinguished_by_port() {
        let mut both = [flow(1_000, true, 5, 70), flow(1_000, false, 5, 900)];
        let here = both[0].key.source;
        both.iter_mut().for_each(|flow| (flow.key.source, flow.key.destination) = (here, here));
        assert_eq!(shapes(&both), [(5, 70, 970)]);
        both.iter_mut().for_each(|flow| flow.opened = None);
        assert_eq!(shapes(&both), [(5, 70, 970)]);
    }

    #[test]
    fn incomplete_and_empty_connections_are_left_out() {
        let without = |flags: u8| {
            let mut both = vec![flow(1_000, true, 5, 70), flow(1_000, false, 5, 900)];
            both.iter_mut().for_each(|flow| flow.tcp_flags &= !flags);
            both
        };
        assert!(shapes(&without(tcp_flags::SYN)).is_empty());
        assert!(shapes(&without(tcp_flags::FIN)).is_empty());
        assert!(shapes(&[flow(1_000, true, 5, 0), flow(1_000, false, 5, 0)]).is_empty());
        // Either side alone is sufficient.
        let mut both = without(0);
        both[0].tcp_flags = tcp_flags::SYN;
        both[1].tcp_flags = tcp_flags::RST;
        assert_eq!(shapes(&both), [(5, 70, 970)]);
    }
}
