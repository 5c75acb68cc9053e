//! Hosts over frames: both families, losses and damage, refusals.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use nilometer_conversation::{Act, Opening, Side, Step};
use nilometer_tcp::Config;
use nilometer_tcp::bytes::Ends;
use nilometer_traffic::script::Script;
use nilometer_wire::link::LinkType;
use nilometer_wire::memory::{HeapMemory, Memory, Place};
use nilometer_wire::packet::parse;
use nilometer_wire::{Node, Port, Rate, Span, Time, Turns};

use super::{EndReport, Host, HostCounts, LinkAddresses, PlannedEnd};
use crate::fault::Faults;
use crate::fault_box::FaultBox;
use crate::virtual_clock::{Cable, Plug, VirtualClock, Watch};

const MS: u64 = 1_000_000;

fn step(by: Side, awaits: u64, pause_ms: u64, act: Act) -> Step {
    Step { by, awaits, pause_ns: pause_ms * MS, act }
}

fn send(bytes: u64) -> Act {
    Act::Send { bytes, segments: 1, took_ns: 0 }
}

/// The client sends a request of 400 bytes and gets 100,000; both close.
fn script(opening: Opening) -> Script {
    Script {
        opening,
        steps: vec![
            step(Side::Client, 0, 1, send(400)),
            step(Side::Server, 400, 30, send(100_000)),
            step(Side::Client, 100_000, 5, Act::Fin),
            step(Side::Server, 401, 1, Act::Fin),
        ],
        tried_ns: 2_500 * MS,
        has_time_stamps: true,
        segment_bytes: 0,
        acks_each: [false; 2],
    }
}

/// Both ends of connections with these scripts, one a second, every other of IPv6.
fn ends(scripts: &[Script]) -> [Vec<PlannedEnd>; 2] {
    let mut both = [Vec::new(), Vec::new()];
    for (number, script) in scripts.iter().enumerate() {
        let (client, server) = match number % 2 {
            0 => ("198.18.0.1", "198.19.0.1"),
            _ => ("fd00:18::1", "fd00:19::1"),
        };
        let client = SocketAddr::new(client.parse().expect("an address"), 40_000 + number as u16);
        let server = SocketAddr::new(server.parse().expect("an address"), 8_808);
        let script = Arc::new(script.clone());
        for (side, source, destination) in
            [(Side::Client, client, server), (Side::Server, server, client)]
        {
            both[side.index()].push(PlannedEnd {
                ends: Ends { source, destination },
                part: super::Part {
                    script: Arc::clone(&script),
                    side,
                    start: Time::from_nanos(1_000 * MS * number as u64),
                    end: Time::from_nanos(1_000_000 * MS),
                },
                stack: Config { mss: 1_440, ..Config::linux() },
                initial_sequence: 1_000 * number as u32,
            });
        }
    }
    both
}

/// Holds every frame to what another reader makes of it.
#[derive(Default)]
struct Reader {
    frames: u64,
    flags: u8,
}

impl Watch<Place, HeapMemory> for Reader {
    fn sent(&mut self, _: Time, (node, _): Plug, frame: &Place, memory: &HeapMemory) {
        if node == 1 {
            return;
        }
        let bytes = memory.frame(*frame);
        let nilometer_wire::packet::Parsed::Ip(packet) =
            parse(LinkType::Ethernet, bytes, bytes.len() as u32)
        else {
            panic!("no IP packet: {bytes:?}");
        };
        let nilometer_wire::packet::Transport::Tcp(segment) = &packet.transport else {
            panic!("no TCP segment");
        };
        assert_eq!(nilometer_wire::checksum::transport_checksum_ok(&bytes[14..]), Some(true));
        assert_eq!(packet.ip_bytes as usize + 14, bytes.len());
        self.frames += 1;
        self.flags |= segment.flags;
    }

    fn arrived(&mut self, _: Time, _: Plug, _: &Place, _: &HeapMemory) {}
}

struct Played {
    reports: [Vec<EndReport>; 2],
    counts: [HostCounts; 2],
    frames: u64,
    flags: u8,
    left: usize,
}

/// Plays the scripts between two hosts with a fault box in the middle.
fn play(scripts: &[Script], faults: Faults) -> Played {
    played_by(ends(scripts), faults)
}

/// Plays both ends likewise.
fn played_by([client, server]: [Vec<PlannedEnd>; 2], faults: Faults) -> Played {
    let link = |own, peer| LinkAddresses { own: [2, 0, 0, 0, 0, own], peer: [2, 0, 0, 0, 0, peer] };
    let mut hosts = [Host::new(link(1, 2), client), Host::new(link(2, 1), server)];
    let (mut memory, mut reader) = (HeapMemory::new(10_000), Reader::default());
    {
        let [client, server] = &mut hosts;
        let nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> =
            vec![Box::new(client), Box::new(FaultBox::new(faults, 1, 0)), Box::new(server)];
        let cable = |one, other| Cable {
            ends: [one, other],
            rate: Some(Rate::from_megabits(1_000)),
            delay: Span::from_nanos(1_000),
        };
        let cables = [cable((0, Port(0)), (1, Port(0))), cable((1, Port(1)), (2, Port(0)))];
        let mut clock = VirtualClock::new(nodes, &cables, Turns::default());
        clock.run_until(Time::from_nanos(600_000 * MS), &mut memory, &mut reader);
        assert_eq!(clock.under_way(), 0);
    }
    let reports = hosts.each_ref().map(|host| host.reports().collect());
    let counts = hosts.each_ref().map(Host::counts);
    let (frames, flags) = (reader.frames, reader.flags);
    Played { reports, counts, frames, flags, left: memory.taken() }
}

#[test]
fn connections_of_both_families_are_played_over_frames() {
    let played = play(&vec![script(Opening::Seen); 4], Faults::default());
    for (side, expected) in [(0, 100_000), (1, 400)] {
        for report in &played.reports[side] {
            assert_eq!((report.received_bytes, report.retransmitted), (expected, 0), "{report:?}");
            assert!(report.was_established && report.finished.is_some() && report.closed.is_some());
        }
    }
    let times: Vec<_> = played.reports[0].iter().map(|report| report.finished).collect();
    let due = Time::from_nanos(36 * MS);
    assert!(times[0].is_some_and(|time| time > due && time < due + Span::from_nanos(20 * MS)));
    assert_eq!(played.counts[0].sent + played.counts[1].sent, played.frames);
    assert_eq!(played.counts[0].received, played.counts[1].sent);
    assert_eq!((played.counts[0].strays, played.left), (0, 0));
}

#[test]
fn lost_and_damaged_segments_are_retransmitted() {
    let faults = Faults {
        loss: 0.03,
        corrupt: 0.02,
        duplicate: 0.01,
        delay: Span::from_nanos(10 * MS),
        ..Faults::default()
    };
    let played = play(&vec![script(Opening::Seen); 10], faults);
    let again: u64 = played.reports.iter().flatten().map(|report| report.retransmitted).sum();
    assert!(again > 10, "{again}");
    assert!(played.counts[0].corrupted > 0);
    assert!(played.reports[0].iter().all(|report| report.received_bytes == 100_000));
    assert_eq!(played.left, 0, "every buffer is given back");
}

#[test]
fn a_refusing_host_resets_and_an_absent_one_is_silent() {
    let played = play(&[script(Opening::Refused), script(Opening::Unanswered)], Faults::default());
    let [refused, unanswered] = [&played.reports[0][0], &played.reports[0][1]];
    assert!(!refused.was_established && refused.finished < Some(Time::from_nanos(2 * MS)));
    let gave_up = Time::from_nanos((1_000 + 2_500) * MS);
    assert_eq!((unanswered.was_established, unanswered.finished), (false, Some(gave_up)));
    assert_eq!(played.flags & nilometer_tcp::segment::RST, nilometer_tcp::segment::RST);
    assert_eq!(played.counts[1].sent, 1, "one reset, and nothing for who is not answered");
}

/// Ports are used again: the server's end of the second connection begins when the first has closed.
#[test]
fn addresses_and_ports_may_be_used_again() {
    let scripts = vec![script(Opening::Seen); 3];
    let [mut client, mut server] = ends(&scripts);
    for all in [&mut client, &mut server] {
        let (first, third) = (all[0].ends, &mut all[2]);
        third.ends = first;
    }
    let played = played_by([client, server], Faults::default());
    for report in &played.reports[0] {
        assert_eq!(report.received_bytes, 100_000, "{report:?}");
        assert!(report.finished.is_some());
    }
}
