//! What was observed of a set of packets: its TCP connections, and how much passed when.
//!
//! Both sides of a comparison come through here, so that whatever this reads wrongly it reads wrongly in
//! both. Connections that an edge of the packets cuts are taken as far as they were seen: a copy that was
//! played for the same time has the same edges.

use alloc::vec::Vec;

use nilometer_conversation::{Connection, Follower, FollowerCounts, Limits, Opening, Side};
use nilometer_wire::packet::{IpPacket, Transport};

/// The bins of the series, ns: a tenth of a second, below which nothing is held against anything.
pub const BIN_NS: u64 = 100_000_000;
/// Bins at most: a day and four hours of tenths of seconds.
const BINS_MAX: usize = 1 << 20;

/// Of all answered connections, those that show one side only, from which on a capture is one of one direction.
const ONE_SIDED_SHARE: f64 = 0.9;

/// Connections that are kept at most, as many as a model may have sessions; some 700 bytes each and 40 a step.
pub const CONNECTIONS_MAX: usize = 1 << 20;

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
    /// TCP packets in bins of [`BIN_NS`], from the earliest packet's on (or from where it was told to begin).
    pub bins: Vec<Bin>,
    /// TCP packets of connections that were not kept, because there are more than [`CONNECTIONS_MAX`].
    pub beyond: Bin,
    /// What the follower saw.
    pub counts: FollowerCounts,
    /// All TCP packets and bytes, as the packets tell them.
    pub tcp: Bin,
    /// Other packets and their bytes.
    pub others: Bin,
    /// TCP packets whose header was not captured, or that are later fragments.
    pub headless: Bin,
}

impl Observed {
    /// Payload that the capture itself lost: sequence space for which there are not as many bytes in packets. A
    /// lower bound, since what was sent again is in packets, too. What an end sent of which no packet passed was
    /// not lost: it went another way.
    pub fn lost_bytes(&self) -> u64 {
        let sides = self.connections.iter().flat_map(|one| &one.carried);
        sides
            .filter(|side| side.packets > 0)
            .map(|side| side.payload_bytes.saturating_sub(side.data_bytes))
            .sum()
    }

    /// The side whose packets passed, where those of the other one did not: a capture of one direction. So it is
    /// where of all connections that were answered, as far as acknowledgements tell, hardly any shows both.
    pub fn one_side(&self) -> Option<Side> {
        let mut seen = [0usize; 2];
        let mut answered = 0;
        for one in &self.connections {
            let is_silent = matches!(one.opening, Opening::Unanswered);
            let alone = Side::BOTH.into_iter().find(|side| one.of(side.other()).packets == 0);
            if let Some(side) = alone.filter(|_| !is_silent) {
                seen[side.index()] += 1;
            }
            answered += usize::from(!is_silent);
        }
        let is_whole = |side: &Side| {
            answered > 0 && seen[side.index()] as f64 >= ONE_SIDED_SHARE * answered as f64
        };
        Side::BOTH.into_iter().find(is_whole)
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

    /// Payload of sequence space, each byte once: what was to be carried, however often paths had it sent again.
    /// What the capture lost is in it; what a direction sent of which there is no capture is not.
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
    /// From when on, and before when, ns; everything where it is none.
    part_ns: Option<(u64, u64)>,
    /// When the first bin begins, ns.
    begins_ns: Option<u64>,
}

impl Observer {
    /// Observes all packets that come.
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

    /// Passes over what this side's other end sends, so as captures of one direction see.
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
            let is_tcp = packet.protocol == 6;
            let beside = &mut self.observed;
            return if is_tcp { &mut beside.headless } else { &mut beside.others }.add(bytes);
        };
        let observed = &mut self.observed;
        if self.follower.observe(stamp_ns, packet, &mut |one| observed.keep(one)) {
            self.add_to_bin(stamp_ns, bytes);
            self.observed.tcp.add(bytes);
        }
    }

    /// Counts a packet where it passed. What lies too far from all others has no bin.
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
