//! A connection vector: one TCP connection as a list of steps, each of which waits for the data that it
//! answers.
//!
//! Tmix's vector is a list of epochs (a, b, t): the client sends a request of a bytes, the server answers with
//! b, the client thinks for t; and where both ends speak at once, two independent lists. One kind of step here
//! covers both cases: *when its end has received `awaits` bytes of the other's stream and `pause_ns` have
//! passed, it sends*. In a sequential connection each step awaits everything that the other end sent before;
//! where both speak at once it awaits what its end had acknowledged by then, so that a connection that is
//! concurrent in one place (TLS 1.3's tickets, a window update of HTTP/2) stays closed-loop everywhere else.
//!
//! ```text
//! client  ├─ 400 B ─┤                            ├─ 300 B ─┤
//! server            ⇠ pause ⇢ ├─ 20,000 B ─┤⇠ pause ⇢
//! step    0: Client, awaits 0, sends 400    1: Server, awaits 400, sends 20,000    2: Client, awaits 20,000 …
//! ```
//!
//! Offsets count sequence space without the SYN. A FIN takes one, so awaiting the byte behind an end's last
//! byte means awaiting its FIN.

use core::net::SocketAddr;

use alloc::vec::Vec;

use crate::side::Side;
use crate::sizes::PacketSizes;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Sends a unit: bytes with neither data from the other end nor 500 ms of quiet between them, in segments that
    /// one write of an application can have made. (A connection joined from flow records has no segments, and so
    /// longer units.)
    Send {
        /// Bytes of sequence space.
        bytes: u64,
        /// Segments that carried them, not counting retransmissions.
        segments: u32,
        /// From its first segment to its last, ns.
        took_ns: u64,
    },
    /// Closes its direction.
    Fin,
    /// Resets the connection.
    Reset,
}

/// One step of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The end whose step it is.
    pub by: Side,
    /// How far the other end's stream had been acknowledged: bytes, and one more for its FIN.
    pub awaits: u64,
    /// From this end's last step, or from when the last awaited byte passed, whichever was later; ns. The
    /// first step waits from the connection's first packet.
    pub pause_ns: u64,
    /// What it does.
    pub act: Act,
}

/// How a connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opening {
    /// Its SYN was seen, and the server answered, or data followed.
    Seen,
    /// Its SYN was not seen: it was open before the first packet.
    Unseen,
    /// A SYN without an answer.
    Unanswered,
    /// A SYN that was answered by a reset.
    Refused,
}

/// What one end of a connection sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Their bytes from the IP header on, at original length.
    pub octets: u64,
    /// Payload of all of them, retransmissions included.
    pub data_bytes: u64,
    /// The file: payload bytes of sequence space, each counted once.
    pub payload_bytes: u64,
    /// Those of them that no packet carried past the meter, and that the other end acknowledged.
    pub unseen_bytes: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Packets whose whole payload had been sent before.
    pub resent_packets: u64,
    /// Resets.
    pub resets: u64,
    /// The largest payload of a packet.
    pub segment_max_bytes: u32,
    /// How large its packets were.
    pub sizes: PacketSizes,
}

/// One TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Address and port of the client.
    pub client: SocketAddr,
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Stamp of its first packet, ns since 1970.
    pub start_ns: u64,
    /// Stamp of its last packet: if a packet ended it, that one, and not a straggler behind it.
    pub end_ns: u64,
    /// How it was opened.
    pub opening: Opening,
    /// SYNs of the client, repetitions included.
    pub syns: u32,
    /// The handshake as the meter saw it: from the SYN to the SYN+ACK (the round trip to the server), and
    /// from the SYN+ACK to the ACK (the round trip to the client); ns.
    pub handshake_ns: [Option<u64>; 2],
    /// Both ends spoke at once somewhere: data passed whose sender had not received what passed before it.
    pub is_concurrent: bool,
    /// Most of its segments, resets aside, carry TCP's time stamps, as far as options, or their length, tell.
    pub has_time_stamps: bool,
    /// What both ends did, in the order in which the steps began.
    pub steps: Vec<Step>,
    /// What each end sent, the client first.
    pub carried: [Carried; 2],
}

impl Connection {
    /// What this end sent.
    pub fn of(&self, side: Side) -> &Carried {
        &self.carried[side.index()]
    }
}
