//! A connection's packets, written step by step.

use std::net::SocketAddr;

use nilometer_conversation::{Connection, Follower, Limits};
use nilometer_wire::build::Tcp;
use nilometer_wire::packet::{Fragment, IpPacket, TcpSegment, Transport};

/// The client.
pub const C: usize = 0;
/// The server.
pub const S: usize = 1;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;

/// When a packet passed, ns, and its bytes from the IP header on.
pub type Packet = (u64, Vec<u8>);

/// Both ends, and what passed.
pub struct Script {
    pub packets: Vec<Packet>,
    pub now_ns: u64,
    pub client_port: u16,
    first: [u32; 2],
    /// The offset of what each end sends next, relative to its first number.
    next: [u32; 2],
}

impl Script {
    /// A script without packets; the client's first number is `first`.
    pub fn new(first: u32) -> Script {
        Script {
            packets: Vec::new(),
            now_ns: 1_000_000_000,
            client_port: 40_000,
            first: [first, first ^ 0x7000_0000],
            next: [0; 2],
        }
    }

    pub fn after(&mut self, ms: u64) -> &mut Script {
        self.now_ns += ms * 1_000_000;
        self
    }

    /// SYN, SYN+ACK after 20 ms, ACK after 5.
    pub fn opens(&mut self) {
        self.syn().after(20).syn_ack().after(5).ack(C);
    }

    pub fn syn(&mut self) -> &mut Script {
        let packet = self.packet(C, 0, 0, 0, SYN);
        self.next[C] = 1;
        self.pass(packet)
    }

    pub fn syn_ack(&mut self) -> &mut Script {
        let packet = self.packet(S, 0, 0, self.next[C], SYN | ACK);
        self.next[S] = 1;
        self.pass(packet)
    }

    pub fn ack(&mut self, by: usize) -> &mut Script {
        let packet = self.packet(by, self.next[by], 0, self.next[1 - by], ACK);
        self.pass(packet)
    }

    pub fn says(&mut self, by: usize, bytes: u32) -> &mut Script {
        let received = self.next[1 - by];
        self.sends(by, bytes, received, ACK)
    }

    /// Data of an end that has received `received` bytes of the other's.
    pub fn data_acknowledging(&mut self, by: usize, bytes: u32, received: u32) -> &mut Script {
        self.sends(by, bytes, received + 1, ACK)
    }

    pub fn data_fin(&mut self, by: usize, bytes: u32) -> &mut Script {
        let received = self.next[1 - by];
        self.sends(by, bytes, received, ACK | FIN);
        self.next[by] = self.next[by].wrapping_add(1);
        self
    }

    pub fn fin(&mut self, by: usize) -> &mut Script {
        self.data_fin(by, 0)
    }

    /// The FIN of an end that has received `received` bytes of the other's.
    pub fn fin_acknowledging(&mut self, by: usize, received: u32) -> &mut Script {
        self.sends(by, 0, received + 1, ACK | FIN);
        self.next[by] = self.next[by].wrapping_add(1);
        self
    }

    pub fn rst(&mut self, by: usize) -> &mut Script {
        let packet = self.packet(by, self.next[by], 0, self.next[1 - by], RST | ACK);
        self.pass(packet)
    }

    /// The reset that answers a segment without a matching socket, which had acknowledged this offset (RFC 9293,
    /// 3.10.7.1).
    pub fn rst_in_answer(&mut self, by: usize, offset: u32) -> &mut Script {
        let packet = self.packet(by, offset + 1, 0, 0, RST);
        self.pass(packet)
    }

    /// Sent, and lost before the meter.
    pub fn skip(&mut self, by: usize, bytes: u32) -> &mut Script {
        self.next[by] = self.next[by].wrapping_add(bytes);
        self
    }

    /// Data from this offset on, again.
    pub fn again(&mut self, by: usize, offset: u32, bytes: u32) -> &mut Script {
        let packet = self.packet(by, offset + 1, bytes, self.next[1 - by], ACK);
        self.pass(packet)
    }

    /// A segment at an offset that acknowledges `received` bytes.
    pub fn segment(&self, by: usize, offset: u32, bytes: u32, received: u32) -> Vec<u8> {
        self.packet(by, offset.wrapping_add(1), bytes, received.wrapping_add(1), ACK)
    }

    /// Places of the packets of an end that carry data.
    pub fn data_positions(&self, by: usize) -> Vec<usize> {
        let is_it = |bytes: &[u8]| bytes.len() > 40 && self.is_of(by, bytes);
        (0..self.packets.len()).filter(|&at| is_it(&self.packets[at].1)).collect()
    }

    pub fn data_packets(&self) -> Vec<Packet> {
        self.packets.iter().filter(|packet| packet.1.len() > 40).cloned().collect()
    }

    /// All packets of an end.
    pub fn of(&self, by: usize) -> Vec<Packet> {
        self.packets.iter().filter(|packet| self.is_of(by, &packet.1)).cloned().collect()
    }

    pub fn sort(&mut self) {
        self.packets.sort_by_key(|packet| packet.0);
    }

    fn is_of(&self, by: usize, bytes: &[u8]) -> bool {
        (u16::from_be_bytes([bytes[20], bytes[21]]) == self.client_port) == (by == C)
    }

    fn sends(&mut self, by: usize, bytes: u32, received: u32, flags: u8) -> &mut Script {
        let packet = self.packet(by, self.next[by], bytes, received, flags);
        self.next[by] = self.next[by].wrapping_add(bytes);
        self.pass(packet)
    }

    fn pass(&mut self, packet: Vec<u8>) -> &mut Script {
        self.packets.push((self.now_ns, packet));
        self
    }

    fn packet(&self, by: usize, number: u32, bytes: u32, received: u32, flags: u8) -> Vec<u8> {
        let ends: [SocketAddr; 2] =
            [([198, 18, 0, 1], self.client_port).into(), ([198, 19, 0, 1], 80).into()];
        Tcp {
            sequence: self.first[by].wrapping_add(number),
            acknowledgement: if flags & ACK == 0 {
                0
            } else {
                self.first[1 - by].wrapping_add(received)
            },
            flags,
            payload: &vec![0; bytes as usize],
            ..Tcp::new(ends[by], ends[1 - by])
        }
        .ip_packet()
    }
}

/// A connection whose server sends `segments` segments of `bytes` bytes, each acknowledged.
pub fn numbers(segments: u32, bytes: u32) -> Connection {
    let mut follower = Follower::new(Limits::default());
    let mut found = Vec::new();
    let packet = |by: usize, sequence: u32, acknowledgement: u32, flags: u8, payload_bytes: u32| {
        let ports = [40_000, 80];
        let transport = Transport::Tcp(TcpSegment {
            source_port: ports[by],
            destination_port: ports[1 - by],
            sequence,
            acknowledgement,
            flags,
            window: 9,
            payload_bytes,
            time_stamps: None,
            cut_options_bytes: None,
        });
        let ends = [[198, 18, 0, 1].into(), [198, 19, 0, 1].into()];
        IpPacket {
            source: ends[by],
            destination: ends[1 - by],
            protocol: 6,
            traffic_class: 0,
            hop_limit: 64,
            ip_bytes: 40 + payload_bytes,
            fragment: Fragment::Whole,
            transport,
            encapsulated: false,
        }
    };
    let mut see = |at: u64, packet: &IpPacket| follower.observe(at, packet, &mut |_| {});
    see(0, &packet(C, 0, 0, SYN, 0));
    see(1, &packet(S, 0, 1, SYN | ACK, 0));
    let mut next = 1u32;
    for turn in 0..u64::from(segments) {
        see(2 + turn, &packet(S, next, 1, ACK, bytes));
        next = next.wrapping_add(bytes);
        see(2 + turn, &packet(C, 1, next, ACK, 0));
    }
    follower.flush(&mut |one| found.push(one));
    found.remove(0)
}
