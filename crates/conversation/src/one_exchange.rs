//! How a connection that is known only from flow records is played: as one exchange, over its duration.
//!
//! Records say how much either end sent, when the connection began and ended, and which end closed or reset it;
//! not which end spoke when. The simplest exchange that agrees with all of that: the client sends its request at
//! once, and the server answers it. The larger direction takes the whole time of the connection, its segments
//! evenly spaced (a bulk is paced by TCP). It has as many segments as its bytes fill or, if that is more, half of
//! its packets: the other half are taken to be acknowledgements. A single segment takes no time, so the
//! connection idles until it is closed, as keep-alive connections do. If it is not closed within the part, half
//! of a segment's spacing is left before the first segment and after the last. So bytes, hosts, starts, durations
//! and rates are those of the records; records do not show exchanges and pauses within a connection.
//!
//! A part of the traffic that begins or ends within a connection has its share of the connection's bytes,
//! spread evenly over time.

use alloc::vec::Vec;

use crate::connection::{Act, Connection, Opening, Step};
use crate::side::Side;

/// Payload of a full segment.
const SEGMENT_BYTES: u64 = 1_448;

/// Full segments that `bytes` fill.
fn full(bytes: u64) -> u64 {
    bytes.div_ceil(SEGMENT_BYTES)
}

/// Gives a connection of records its one exchange.
pub fn one_exchange(connection: &mut Connection) {
    let ends = core::mem::take(&mut connection.steps);
    if matches!(connection.opening, Opening::Unanswered | Opening::Refused) {
        return;
    }
    let bytes = Side::BOTH.map(|side| connection.of(side).payload_bytes);
    let mut left_ns = connection.end_ns - connection.start_ns;
    let larger = if bytes[0] > bytes[1] { Side::Client } else { Side::Server };
    let mut steps = Vec::with_capacity(4);
    for by in Side::BOTH {
        let bytes_of = bytes[by.index()];
        if bytes_of == 0 {
            continue;
        }
        let (mut segments, mut pause_ns, mut took_ns) = (full(bytes_of), 0, 0);
        if by == larger {
            segments = segments.max((connection.of(by).packets / 2).min(bytes_of));
            if ends.is_empty() {
                let between_ns = core::mem::take(&mut left_ns) / segments;
                (pause_ns, took_ns) = (between_ns / 2, between_ns * (segments - 1));
            } else if segments > 1 {
                took_ns = core::mem::take(&mut left_ns);
            }
        }
        // The server waits for the whole request; if there is none, it speaks first.
        let awaits = if by == Side::Server { bytes[0] } else { 0 };
        let segments = segments.min(u32::MAX.into()) as u32;
        let act = Act::Send { bytes: bytes_of, segments, took_ns };
        steps.push(Step { by, awaits, pause_ns, act });
    }
    let mut pause_ns = left_ns;
    let mut closed = [false; 2];
    for end in ends {
        let by = end.by;
        // It has received all data of the other end, and its FIN if the other end closed first.
        let other = by.other().index();
        let awaits = bytes[other] + u64::from(closed[other]);
        closed[by.index()] = true;
        steps.push(Step { awaits, pause_ns: core::mem::take(&mut pause_ns), ..end });
        if end.act == Act::Reset {
            break;
        }
    }
    connection.steps = steps;
}

/// The piece of a connection within a part of the traffic, from `begins_ns` to `ends_ns`, ns since 1970; `None` if
/// it is over before, or begins after.
pub fn within(one: &Connection, [begins_ns, ends_ns]: [u64; 2]) -> Option<Connection> {
    if one.start_ns >= ends_ns || one.end_ns < begins_ns {
        return None;
    }
    let mut part = one.clone();
    if one.start_ns < begins_ns {
        part.start_ns = begins_ns;
        // A SYN that is not accepted is sent again, and does not make an open connection.
        if !matches!(one.opening, Opening::Unanswered | Opening::Refused) {
            (part.opening, part.syns) = (Opening::Unseen, 0);
        }
    }
    if one.end_ns > ends_ns {
        part.end_ns = ends_ns;
        part.steps.clear();
    }
    let [whole_ns, part_ns] = [one, &part].map(|one| u128::from(one.end_ns - one.start_ns));
    if part_ns < whole_ns {
        let share =
            |count: &mut u64| *count = (u128::from(*count) * part_ns).div_ceil(whole_ns) as u64;
        for side in &mut part.carried {
            let counts = [&mut side.packets, &mut side.octets, &mut side.data_bytes];
            counts.into_iter().chain([&mut side.payload_bytes]).for_each(share);
        }
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Carried;
    use alloc::vec;

    const S: u64 = 1_000_000_000;

    fn connection(bytes: [u64; 2], steps: Vec<Step>) -> Connection {
        let carried = |bytes: u64| Carried {
            packets: 10,
            octets: bytes + 400,
            data_bytes: bytes,
            payload_bytes: bytes,
            ..Carried::default()
        };
        Connection {
            client: ([192, 0, 2, 1], 40_000).into(),
            server: ([192, 0, 2, 2], 80).into(),
            start_ns: 10 * S,
            end_ns: 14 * S,
            opening: Opening::Seen,
            syns: 1,
            handshake_ns: [None; 2],
            is_concurrent: false,
            has_time_stamps: false,
            steps,
            carried: bytes.map(carried),
        }
    }

    fn fin(by: Side) -> Step {
        Step { by, awaits: 0, pause_ns: 0, act: Act::Fin }
    }

    fn send(bytes: u64, segments: u32, took_ns: u64) -> Act {
        Act::Send { bytes, segments, took_ns }
    }

    fn step(by: Side, awaits: u64, pause_ns: u64, act: Act) -> Step {
        Step { by, awaits, pause_ns, act }
    }

    fn steps(bytes: [u64; 2], ends: Vec<Step>) -> Vec<Step> {
        let mut one = connection(bytes, ends);
        one_exchange(&mut one);
        one.steps
    }

    #[test]
    fn the_larger_direction_takes_the_time_and_each_end_closes_after_the_last_data() {
        let (client, server) = (Side::Client, Side::Server);
        let both = || vec![fin(client), fin(server)];
        let down = [
            step(client, 0, 0, send(300, 1, 0)),
            step(server, 300, 0, send(50_000, 35, 4 * S)),
            step(client, 50_000, 0, Act::Fin),
            step(server, 301, 0, Act::Fin),
        ];
        assert_eq!(steps([300, 50_000], both()), down);
        let up = [
            step(client, 0, 0, send(50_000, 35, 4 * S)),
            step(server, 50_000, 0, send(2_000, 2, 0)),
            step(client, 2_000, 0, Act::Fin),
            step(server, 50_001, 0, Act::Fin),
        ];
        assert_eq!(steps([50_000, 2_000], both()), up);
        // Half of ten packets, since nine hundred bytes fill fewer.
        let kept = [
            step(client, 0, 0, send(300, 1, 0)),
            step(server, 300, 0, send(900, 5, 4 * S)),
            step(server, 300, 0, Act::Fin),
        ];
        assert_eq!(steps([300, 900], vec![fin(server)]), kept);
        // One byte has no pace: the end that closes first waits.
        let byte = [step(server, 0, 0, send(1, 1, 0)), step(client, 1, 4 * S, Act::Fin)];
        assert_eq!(steps([0, 1], vec![fin(client)]), byte);
        let reset = vec![step(server, 0, 0, Act::Reset), fin(client)];
        let ends = [step(client, 0, 0, send(1, 1, 0)), step(server, 1, 4 * S, Act::Reset)];
        assert_eq!(steps([1, 0], reset), ends);
    }

    /// Without a close, half of a pause is left before the first segment and behind the last.
    #[test]
    fn an_unclosed_connection_has_pauses_at_both_ends() {
        let (client, server) = (Side::Client, Side::Server);
        let byte = [step(server, 0, 2 * S, send(1, 1, 0))];
        assert_eq!(steps([0, 1], Vec::new()), byte);
        let open = [
            step(client, 0, 0, send(300, 1, 0)),
            step(server, 300, S / 4, send(11_584, 8, 7 * S / 2)),
        ];
        assert_eq!(steps([300, 11_584], Vec::new()), open);
    }

    #[test]
    fn refused_and_unanswered_connections_have_no_steps() {
        for opening in [Opening::Refused, Opening::Unanswered] {
            let mut one = Connection { opening, ..connection([0, 0], vec![fin(Side::Server)]) };
            one_exchange(&mut one);
            assert_eq!(one.steps, []);
        }
    }

    /// Four seconds of 4,000 bytes: each second has a thousand, whichever part of them it is.
    #[test]
    fn a_part_has_its_share_of_a_connection() {
        let one = connection([0, 4_000], vec![fin(Side::Client)]);
        let part = |begins: u64, ends: u64| within(&one, [begins * S, ends * S]);
        assert_eq!(part(10, 20), Some(one.clone()));
        let first = part(5, 11).expect("its first second");
        assert_eq!((first.carried[1].payload_bytes, first.opening), (1_000, Opening::Seen));
        assert_eq!((first.end_ns, first.steps.len()), (11 * S, 0));
        let last = part(12, 20).expect("its last two");
        assert_eq!((last.carried[1].payload_bytes, last.opening), (2_000, Opening::Unseen));
        assert_eq!((last.start_ns, last.steps.len(), last.syns), (12 * S, 1, 0));
        for opening in [Opening::Unanswered, Opening::Refused] {
            let syn = Connection { opening, ..connection([0, 0], Vec::new()) };
            let rest = within(&syn, [12 * S, 20 * S]).expect("its last two");
            assert_eq!((rest.opening, rest.syns, rest.start_ns), (opening, 1, 12 * S));
        }
        assert_eq!((part(14, 20).is_some(), part(15, 20), part(5, 10)), (true, None, None));
    }
}
