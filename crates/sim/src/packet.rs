//! A packet in virtual time: one cache line, carried inline from queue to link to host.

use nilometer_queue::Packet as Queued;
use nilometer_tcp::Segment;
use nilometer_wire::Ecn;

/// One direction of one flow: twice the flow's number, plus one on the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(pub u32);

impl Route {
    /// The way that flow number `flow` goes out.
    pub const fn out(flow: u32) -> Route {
        Route(2 * flow)
    }

    /// The way back.
    pub const fn reverse(self) -> Route {
        Route(self.0 ^ 1)
    }

    /// The number of its flow.
    pub const fn flow(self) -> u32 {
        self.0 / 2
    }
}

/// What the packet's IP header carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// TCP: the segment is a segment.
    #[default]
    Tcp,
    /// UDP: of the segment only `sequence`, `length` and the moment of sending in `timestamps`.
    Udp,
}

/// An IP packet: its length, its way and its TCP header. No payload is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The TCP header, or what stands for UDP's.
    pub segment: Segment,
    /// Where it goes.
    pub route: Route,
    /// Length of the IP packet.
    pub bytes: u16,
    /// ECN bits of the IP header.
    pub ecn: Ecn,
    /// What `segment` is.
    pub protocol: Protocol,
}

impl Queued for Packet {
    fn bytes(&self) -> u32 {
        u32::from(self.bytes)
    }

    fn flow(&self) -> u32 {
        self.route.flow()
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark(&mut self) {
        self.ecn = Ecn::Congestion;
    }
}

const _: () = assert!(core::mem::size_of::<Packet>() == 64);
