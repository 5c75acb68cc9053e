//! What one segment costs: a bulk transfer without loss, recorded once and replayed to each end.

use std::time::Instant;

use nilometer_tcp::{Algorithm, Config, Connection, Recovery, Segment};
use nilometer_wire::{Ecn, Span, Time};

const SEGMENTS: usize = 8_000;
/// The fastest of this many replays counts, since other processes use the machine, too.
const REPLAYS: usize = 400;

/// What one end was given, in order: a segment, or an alarm.
type Log = Vec<(Time, Option<Segment>)>;

fn ends(config: Config) -> [Connection; 2] {
    [Connection::connect(config, 1), Connection::listen(config, 2)]
}

fn give(end: &mut Connection, log: &mut Log, now: Time, segment: Option<Segment>) -> Vec<Segment> {
    log.push((now, segment));
    step(end, now, segment.as_ref());
    std::iter::from_fn(|| end.poll_transmit(now)).map(|packet| packet.segment).collect()
}

fn step(end: &mut Connection, now: Time, segment: Option<&Segment>) {
    match segment {
        Some(segment) => end.receive(now, segment, Ecn::NotCapable),
        None => end.handle_timeout(now),
    }
}

/// A transfer over a path of ten milliseconds each way.
fn record(config: Config) -> [Log; 2] {
    let mut ends = ends(config);
    ends[0].write(u64::MAX);
    let mut logs = [Log::new(), Log::new()];
    let mut flying = std::collections::BTreeMap::new();
    let (mut now, mut number, mut data) = (Time::ZERO, 0u64, 0);
    let mut launch = |flying: &mut std::collections::BTreeMap<_, _>, at, end, segments| {
        for segment in segments {
            number += 1;
            flying.insert((at + Span::from_nanos(10_000_000), number), (1 - end, segment));
        }
    };
    let syn = give(&mut ends[0], &mut logs[0], now, None);
    launch(&mut flying, now, 0, syn);
    while data < SEGMENTS {
        let alarm = ends.iter().filter_map(Connection::poll_timeout).min();
        let arrival = flying.keys().next().map(|(at, _)| *at);
        if arrival.is_some_and(|at| alarm.is_none_or(|alarm| at <= alarm)) {
            let ((at, _), (end, segment)) = flying.pop_first().expect("a segment on its way");
            now = at;
            data += end;
            let answer = give(&mut ends[end], &mut logs[end], now, Some(segment));
            launch(&mut flying, now, end, answer);
        } else {
            now = alarm.expect("something to do");
            for end in 0..2 {
                if ends[end].poll_timeout().is_some_and(|at| at <= now) {
                    let answer = give(&mut ends[end], &mut logs[end], now, None);
                    launch(&mut flying, now, end, answer);
                }
            }
        }
    }
    assert_eq!(ends[0].statistics().retransmitted_segments, 0);
    logs
}

/// Nanoseconds that a fresh end takes for its log, and how many segments it sent.
fn replay(mut end: Connection, log: &Log, writes: bool) -> (f64, u64) {
    if writes {
        end.write(u64::MAX);
    }
    let began = Instant::now();
    for (now, segment) in log {
        step(&mut end, *now, segment.as_ref());
        // Looked at where it stands: copying it on is the driver's affair.
        while std::hint::black_box(&end.poll_transmit(*now)).is_some() {}
    }
    (began.elapsed().as_nanos() as f64, end.statistics().segments_sent)
}

fn main() {
    let every = Config { receive_buffer: 1 << 20, ..Config::ns2_reno() };
    let sack = Config { recovery: Recovery::Sack, ..every };
    let second = Config { delayed_ack: Some(Span::from_nanos(200_000_000)), ..sack };
    let stamped = Config { timestamps: true, ..sack };
    let linux = Config { receive_buffer: 1 << 20, ..Config::linux() };
    let bbr = Config { algorithm: Algorithm::Bbr, ..linux };
    let wanted = std::env::args().nth(1).unwrap_or_default();
    println!("bytes of a connection: {}", std::mem::size_of::<Connection>());
    for (name, config) in [
        ("Reno, every segment acknowledged", every),
        ("SACK, every segment acknowledged", sack),
        ("SACK, every second segment acknowledged", second),
        ("SACK, timestamps", stamped),
        ("Linux", linux),
        ("Linux with BBR", bbr),
    ] {
        if !name.contains(&wanted) {
            continue;
        }
        let logs = record(config);
        let mut least = [f64::INFINITY; 2];
        let data = logs[1].iter().filter(|(_, segment)| segment.is_some()).count() as f64;
        for _ in 0..REPLAYS {
            for (which, end) in ends(config).into_iter().enumerate() {
                let (nanos, sent) = replay(end, &logs[which], which == 0);
                assert!(sent as usize > SEGMENTS / 4, "the replay goes as the recording went");
                least[which] = least[which].min(nanos / data);
            }
        }
        let [sender, receiver] = least;
        println!("{name}: sender {sender:.1} ns, receiver {receiver:.1} ns per data segment");
    }
}
