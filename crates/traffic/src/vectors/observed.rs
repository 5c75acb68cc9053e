//! The connections of a table as observations, for comparison with others.
//!
//! A table has ranks for hosts and no packets. So each rank of a role gets an address, a client's ports are made
//! up, and times begin with the part; what both ends did, when, and how much passed is the original's. Packets and
//! bytes of a connection are known only for both directions together, and are assigned to the client, except for
//! one packet if the server sent any.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use nilometer_conversation::{Act, Carried, Connection, Opening, Side, Step};

use super::{Begins, ConnectionVector, SessionVector, StepVector, Vectors};

/// The base addresses of clients, and of servers; a table has at most 2^20 hosts in each role.
const CLIENTS: u32 = 0x0a00_0000;
const SERVERS: u32 = 0x0b00_0000;

impl Vectors {
    /// Its connections, in the order of their starts, ns since the part begins.
    pub fn observed(&self) -> Vec<Connection> {
        let mut all: Vec<Connection> = (0..)
            .zip(self.connections())
            .map(|(number, (session, one))| connection(number, session, one))
            .collect();
        all.sort_by_key(|one| one.start_ns);
        all
    }
}

fn connection(number: usize, session: &SessionVector, one: &ConnectionVector) -> Connection {
    let host = |base: u32, rank: u32| Ipv4Addr::from_bits(base.wrapping_add(rank));
    let start_ns = nanos(session.start_s, 1e9) + nanos(one.after_s, 1e9);
    let steps: Vec<Step> = one.steps.iter().map(step).collect();
    let opening = match one.opening {
        Begins::Seen => Opening::Seen,
        Begins::UnderWay => Opening::Unseen,
        Begins::Unanswered => Opening::Unanswered,
        Begins::Refused => Opening::Refused,
    };
    let is_alone = opening == Opening::Unanswered || one.packets < 2;
    let of_server = u64::from(!is_alone);
    let carried = Side::BOTH.map(|side| {
        let payload_bytes = one.bytes(side);
        let (packets, octets) = match side {
            Side::Client => (one.packets - of_server, one.octets),
            Side::Server => (of_server, 0),
        };
        let data_bytes = payload_bytes;
        Carried { packets, octets, data_bytes, payload_bytes, ..Carried::default() }
    });
    Connection {
        client: SocketAddr::new(host(CLIENTS, session.source).into(), (number % 65_536) as u16),
        server: SocketAddr::new(host(SERVERS, session.destination).into(), session.service),
        start_ns,
        end_ns: start_ns + nanos(one.lasts_s, 1e9),
        opening,
        syns: u32::from(opening != Opening::Unseen),
        handshake_ns: [None; 2],
        is_concurrent: false,
        has_time_stamps: one.time_stamps,
        steps,
        carried,
    }
}

/// Rounded to the nearest ns, as it was written.
fn nanos(value: f64, unit_ns: f64) -> u64 {
    libm::round(value * unit_ns) as u64
}

fn step(one: &StepVector) -> Step {
    let act = match one.act() {
        Act::Send { bytes, segments, .. } => {
            Act::Send { bytes, segments, took_ns: nanos(one.5, 1e3) }
        }
        other => other,
    };
    Step { by: one.by(), awaits: one.1, pause_ns: nanos(one.2, 1e3), act }
}
