//! What one segment costs: a bulk transfer without loss between two connections, in CPU time.

use std::collections::VecDeque;
use std::time::Instant;

use nilometer_tcp::{Algorithm, Config, Connection, Outgoing};
use nilometer_wire::{Ecn, Span, Time};

const SEGMENTS: u64 = 20_000_000;

/// CPU time of this thread in nanoseconds, where the kernel tells.
fn cpu_nanos() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

fn establish(config: Config) -> [Connection; 2] {
    let mut ends = [Connection::connect(config, 1), Connection::listen(config, 2)];
    for turn in [0, 1, 0] {
        while let Some(packet) = ends[turn].poll_transmit(Time::ZERO) {
            ends[1 - turn].receive(Time::ZERO, &packet.segment, packet.ecn);
        }
    }
    ends
}

/// Nanoseconds per data segment: at the sender (an acknowledgement received, the segments sent) and
/// at the receiver (a segment received, its acknowledgement sent).
fn measure(config: Config) -> [f64; 2] {
    let [mut sender, mut receiver] = establish(config);
    sender.write(u64::MAX);
    let mut wire: VecDeque<Outgoing> = VecDeque::new();
    let mut back: VecDeque<Outgoing> = VecDeque::new();
    let mut now = Time::ZERO;
    let (began, cpu) = (Instant::now(), cpu_nanos());
    let (mut data, mut spent) = (0, [0u128; 2]);
    while data < SEGMENTS {
        now += Span::from_nanos(100_000);
        let start = Instant::now();
        for packet in back.drain(..) {
            sender.receive(now, &packet.segment, Ecn::NotCapable);
            while let Some(packet) = sender.poll_transmit(now) {
                wire.push_back(packet);
            }
        }
        if wire.is_empty() {
            sender.handle_timeout(now);
            while let Some(packet) = sender.poll_transmit(now) {
                wire.push_back(packet);
            }
        }
        let middle = Instant::now();
        data += wire.len() as u64;
        for packet in wire.drain(..) {
            receiver.receive(now, &packet.segment, packet.ecn);
            while let Some(packet) = receiver.poll_transmit(now) {
                back.push_back(packet);
            }
        }
        if back.is_empty() {
            now += Span::from_nanos(300_000_000);
            receiver.handle_timeout(now);
            back.extend(receiver.poll_transmit(now));
        }
        spent[0] += (middle - start).as_nanos();
        spent[1] += middle.elapsed().as_nanos();
    }
    assert_eq!(sender.statistics().retransmitted_segments, 0);
    // Others use this machine, too: of the wall's time only the share that this thread ran counts.
    let wall = began.elapsed().as_nanos() as f64;
    let share = cpu.zip(cpu_nanos()).map_or(1.0, |(before, after)| (after - before) / wall);
    spent.map(|nanos| nanos as f64 * share / data as f64)
}

fn main() {
    let every = Config { receive_buffer: 1 << 20, ..Config::ns2_reno() };
    let sack = Config { recovery: nilometer_tcp::Recovery::Sack, ..every };
    let second = Config { delayed_ack: Some(Span::from_nanos(200_000_000)), ..sack };
    let stamped = Config { timestamps: true, ..sack };
    let linux = Config { receive_buffer: 1 << 20, ..Config::linux() };
    let bbr = Config { algorithm: Algorithm::Bbr, ..linux };
    for (name, config) in [
        ("Reno, every segment acknowledged", every),
        ("SACK, every segment acknowledged", sack),
        ("SACK, every second segment acknowledged", second),
        ("SACK, timestamps", stamped),
        ("Linux", linux),
        ("Linux with BBR", bbr),
    ] {
        let [sender, receiver] = measure(config);
        println!("{name}: sender {sender:.1} ns, receiver {receiver:.1} ns per data segment");
    }
}
