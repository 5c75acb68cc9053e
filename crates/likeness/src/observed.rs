//! What was observed in a set of packets: its TCP connections, and how much passed when.
//!
//! Both sides of a comparison are observed by this code, so that an error here affects both alike.
//! Connections that the first or last packet cuts are taken as far as they were seen: a copy that was played
//! for the same time has the same edges.

use alloc::vec::Vec;

use nilometer_conversation::{Connection, Follower, FollowerCounts, Limits, Side};
use nilometer_wire::packet::{IpPacket, Transport};

use crate::source::Source;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The bins of the series, ns: a tenth of a second; nothing is compared on a shorter scale.
pub const BIN_NS: u64 = 100_000_000;
/// Bins at most: a day and four hours of tenths of seconds.
const BINS_MAX: usize = 1 << 20;

/// A capture is one of a single direction if at least this share of connections, and of packets, is of one
/// side only. With fewer packets than the minimum that is unknown.
const ONE_SIDED_SHARE: f64 = 0.9;
const ONE_SIDED_PACKETS_MIN: u64 = 10;

/// Connections that are kept at most, as many as a model may have sessions; some 700 bytes each and 40 a step.
pub const CONNECTIONS_MAX: usize = 1 << 20;

/// Packets, and bytes, of one direction of a connection at most, where they were not counted from packets: records
/// may claim anything.
const COUNT_MAX: u64 = 1 << 42;

/// TCP packets and bytes that passed in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Packets.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub octets: u64,
}

/// What was observed.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its connections, in the order of their starts.
    pub connections: Vec<Connection>,
    /// TCP packets in bins of [`BIN_NS`], from the earliest packet's on (or from the given beginning).
    pub bins: Vec<Bin>,
    /// TCP packets of connections that were not kept, because there are more than [`CONNECTIONS_MAX`].
    pub beyond: Bin,
    /// What the follower saw.
    pub counts: FollowerCounts,
    /// All TCP packets and bytes.
    pub tcp: Bin,
    /// UDP packets and their bytes.
    pub udp: Bin,
    /// Packets of other protocols and their bytes.
    pub others: Bin,
    /// TCP packets whose header was not captured, or that are later fragments.
    pub headless: Bin,
    /// What it was read from.
    pub source: Source,
}

impl Observed {
    /// Observations of connections that were not observed packet by packet; they are in the order of their
    /// starts.
    pub fn of(connections: Vec<Connection>, source: Source) -> Observed {
        let mut observed = Observed { source, ..Observed::default() };
        observed.counts.connections = connections.len() as u64;
        observed.counts.given = connections.len() as u64;
        for mut one in connections {
            for side in &mut one.carried {
                for count in [&mut side.packets, &mut side.octets, &mut side.payload_bytes] {
                    *count = (*count).min(COUNT_MAX);
                }
                observed.tcp.packets += side.packets;
                observed.tcp.octets += side.octets;
            }
            observed.keep(one);
        }
        observed
    }

    /// Payload that the capture itself lost: sequence space beyond the bytes in packets. A lower bound, since
    /// packets hold retransmissions, too. Data of an end without any packet was not lost: it took another path.
    pub fn lost_bytes(&self) -> u64 {
        let sides = self.connections.iter().flat_map(|one| &one.carried);
        sides
            .filter(|side| side.packets > 0)
            .map(|side| side.payload_bytes.saturating_sub(side.data_bytes))
            .sum()
    }

    /// The side whose packets were captured, in a capture of one direction. A capture is one where hardly any
    /// connection in which data passed, or was acknowledged, shows both sides, and hardly any packet is from the
    /// other side. Unanswered probes do not count: there was no other direction.
    pub fn one_side(&self) -> Option<Side> {
        let (mut alone, mut telling, mut packets) = ([0u64; 2], 0u64, [0u64; 2]);
        for one in &self.connections {
            let [client, server] = &one.carried;
            packets = [packets[0] + client.packets, packets[1] + server.packets];
            let is_two_sided = client.packets > 0 && server.packets > 0;
            if is_two_sided || client.payload_bytes + server.payload_bytes > 0 {
                telling += 1;
                alone[usize::from(client.packets == 0)] += u64::from(!is_two_sided);
            }
        }
        let is_most = |part: u64, all: u64| all > 0 && part as f64 >= ONE_SIDED_SHARE * all as f64;
        let all = packets[0] + packets[1];
        let is_whole = |side: &Side| {
            let at = side.index();
            all >= ONE_SIDED_PACKETS_MIN && is_most(alone[at], telling) && is_most(packets[at], all)
        };
        Side::BOTH.into_iter().find(is_whole)
    }

    /// Bytes of packets that are not TCP, or whose header was not captured.
    pub fn beside_tcp_octets(&self) -> u64 {
        self.udp.octets + self.others.octets + self.headless.octets
    }

    /// The share of these packets in the bytes of all packets, 0 to 1.
    pub fn share(&self, of: Bin) -> f64 {
        let all = [self.tcp, self.udp, self.others, self.headless];
        of.octets as f64 / all.iter().map(|bin| bin.octets).sum::<u64>().max(1) as f64
    }

    /// Keeps a connection that is over, if there is room.
    fn keep(&mut self, one: Connection) {
        if self.connections.len() < CONNECTIONS_MAX {
            return self.connections.push(one);
        }
        for side in &one.carried {
            self.beyond.packets += side.packets;
            self.beyond.octets += side.octets;
        }
    }

    /// Payload of sequence space, each byte once: the amount to be carried, however often it was retransmitted.
    /// Bytes that the capture lost are included; those of a direction without any capture are not.
    pub fn payload_bytes(&self) -> u64 {
        let one_side = self.one_side();
        let seen = Side::BOTH.into_iter().filter(|side| one_side.is_none_or(|one| one == *side));
        let of = |side| self.connections.iter().map(move |one| one.of(side).payload_bytes);
        seen.flat_map(of).sum()
    }
}

/// Observes packets.
#[derive(Debug)]
pub struct Observer {
    follower: Follower,
    observed: Observed,
    /// From when on, and before when, ns; `None` for all packets.
    part_ns: Option<(u64, u64)>,
    /// When the first bin begins, ns.
    begins_ns: Option<u64>,
}

impl Observer {
    /// Observes all packets.
    pub fn new(limits: Limits) -> Observer {
        Observer {
            follower: Follower::new(limits),
            observed: Observed::default(),
            part_ns: None,
            begins_ns: None,
        }
    }

    /// Observes packets from one moment on and before another, ns since 1970.
    pub fn between(limits: Limits, begins_ns: u64, ends_ns: u64) -> Observer {
        let part_ns = Some((begins_ns, ends_ns));
        Observer { part_ns, begins_ns: Some(begins_ns), ..Observer::new(limits) }
    }

    /// Ignores packets from the other side, as captures of one direction do.
    #[must_use]
    pub fn of_one_side(self, limits: Limits, only: Side) -> Observer {
        Observer { follower: Follower::of_one_side(limits, only), ..self }
    }

    /// Takes a packet stamped `stamp_ns`.
    pub fn observe(&mut self, stamp_ns: u64, packet: &IpPacket) {
        let is_outside =
            self.part_ns.is_some_and(|(begins, ends)| stamp_ns < begins || stamp_ns >= ends);
        if is_outside {
            return;
        }
        let bytes = u64::from(packet.ip_bytes);
        let Transport::Tcp(_) = packet.transport else {
            let beside = &mut self.observed;
            let kind = match packet.protocol {
                TCP => &mut beside.headless,
                UDP => &mut beside.udp,
                _ => &mut beside.others,
            };
            return kind.add(bytes);
        };
        let observed = &mut self.observed;
        if self.follower.observe(stamp_ns, packet, &mut |one| observed.keep(one)) {
            self.add_to_bin(stamp_ns, bytes);
            self.observed.tcp.add(bytes);
        }
    }

    /// Counts a packet in the bin of its time. One that lies too far from all others has no bin.
    fn add_to_bin(&mut self, stamp_ns: u64, bytes: u64) {
        let begins_ns = self.begins_ns.get_or_insert(stamp_ns);
        let bins = &mut self.observed.bins;
        if stamp_ns < *begins_ns {
            let more = (*begins_ns - stamp_ns).div_ceil(BIN_NS);
            if more + bins.len() as u64 > BINS_MAX as u64 {
                return;
            }
            bins.splice(0..0, core::iter::repeat_n(Bin::default(), more as usize));
            *begins_ns -= more * BIN_NS;
        }
        let at = ((stamp_ns - *begins_ns) / BIN_NS) as usize;
        if at < BINS_MAX {
            bins.resize(bins.len().max(at + 1), Bin::default());
            bins[at].add(bytes);
        }
    }

    /// What was observed.
    pub fn finish(mut self) -> Observed {
        let observed = &mut self.observed;
        self.follower.flush(&mut |one| observed.keep(one));
        observed.connections.sort_by_key(|one| (one.start_ns, one.client, one.server));
        self.observed.counts = self.follower.counts();
        if let Some((begins_ns, ends_ns)) = self.part_ns {
            let bins = (ends_ns.saturating_sub(begins_ns) / BIN_NS) as usize;
            self.observed.bins.resize(bins.min(BINS_MAX), Bin::default());
        }
        let carried = self.observed.connections.iter().flat_map(|one| &one.carried);
        let packets: u64 = carried.map(|side| side.packets).sum();
        let packets = packets + self.observed.beyond.packets;
        assert_eq!(packets, self.observed.tcp.packets, "every packet is one connection's");
        self.observed
    }
}

impl Bin {
    fn add(&mut self, octets: u64) {
        self.packets += 1;
        self.octets += octets;
    }
}
