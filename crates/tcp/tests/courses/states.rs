//! Every state of a connection meets every set of flags with numbers on both sides of each edge.

use nilometer_tcp::segment::{ACK, FIN, RST, SYN};
use nilometer_tcp::{Config, Connection, Segment, State};
use nilometer_wire::{Ecn, Time};

use crate::pipe::record::Checksum;
use crate::pipe::{Chance, MS, Pipe};

/// Our first number, and the peer's: both pass zero soon.
const OURS: u32 = u32::MAX - 2;
const THEIRS: u32 = u32::MAX - 1;
const STATES: [&str; 13] = [
    "Closed",
    "Listen",
    "SynSent, SYN waiting",
    "SynSent",
    "SynReceived",
    "SynReceived, both opened",
    "Established",
    "FinWait1",
    "FinWait2",
    "CloseWait",
    "Closing",
    "LastAck",
    "TimeWait",
];

/// An end in one of the states; `Established` and later have something under way.
fn end_in(name: &str, config: Config) -> Pipe {
    let (open, wait) = (Connection::connect(config, OURS), Connection::listen(config, OURS));
    let peer = Connection::listen(config, THEIRS);
    let mut pipe = match name {
        "Listen" => Pipe::new(wait, Connection::listen(config, THEIRS), 1),
        "SynReceived" => Pipe::new(wait, Connection::connect(config, THEIRS), 1),
        "SynReceived, both opened" => Pipe::new(open, Connection::connect(config, THEIRS), 1),
        _ => Pipe::new(open, peer, 1),
    };
    pipe.keeps_log = true;
    let now = |millis| Time::ZERO + MS * millis;
    match name {
        "Closed" => pipe.ends[0].close(),
        "Listen" | "SynSent, SYN waiting" => {}
        "SynSent" => pipe.flush(),
        "SynReceived" | "SynReceived, both opened" => {
            pipe.drops = Box::new(|end, number, _| end == 1 && number > 1);
            pipe.run(now(15));
        }
        _ => pipe.run(now(300)),
    }
    match name {
        "Established" => pipe.ends[0].write(700),
        "FinWait1" | "FinWait2" | "Closing" | "TimeWait" => pipe.ends[0].close(),
        "CloseWait" | "LastAck" => pipe.ends[1].close(),
        _ => {}
    }
    match name {
        "Closing" => pipe.ends[1].close(),
        "FinWait2" | "TimeWait" | "CloseWait" | "LastAck" => pipe.run(now(600)),
        _ => {}
    }
    match name {
        "Closing" => pipe.run(pipe.now + MS * 11),
        "TimeWait" => {
            pipe.ends[1].close();
            pipe.run(now(900));
        }
        "LastAck" => pipe.ends[0].close(),
        "CloseWait" => pipe.ends[0].write(700),
        _ => {}
    }
    pipe.flush();
    let expected = name.split(',').next().unwrap_or(name);
    assert_eq!(format!("{:?}", pipe.ends[0].state()), expected, "{name}");
    pipe
}

/// What the end sends when `segment` comes, and after its next two alarms.
fn answer(
    end: &mut Connection,
    mut now: Time,
    segments: &[Segment],
    sum: &mut Checksum,
) -> Vec<u8> {
    let mut flags = Vec::new();
    for segment in segments {
        end.receive(now, segment, Ecn::NotCapable);
    }
    for _ in 0..3 {
        for _ in 0..20 {
            let Some(outgoing) = end.poll_transmit(now) else { break };
            sum.add_segment(now, &outgoing.segment);
            flags.push(outgoing.segment.flags);
        }
        sum.add_connection(end);
        let Some(at) = end.poll_timeout() else { break };
        now = now.max(at);
        end.handle_timeout(now);
    }
    flags
}

/// All segments that are tried: any flags, and numbers about what is expected and about what is sent.
fn segments(chance: &mut Chance, end: &Connection, last: &Segment) -> Vec<Segment> {
    let is_fresh = matches!(end.state(), State::Listen | State::SynSent | State::Closed);
    let expected = if is_fresh { THEIRS } else { last.acknowledgement };
    let sent = last.sequence.wrapping_add(last.sequence_length());
    let mut segments = Vec::new();
    for (flags, ece_and_cwr) in (0..32).flat_map(|flags| [0, 0x40, 0x80, 0xc0].map(|e| (flags, e)))
    {
        for (by, ack) in (-1..=1).flat_map(|by| (-2..=1).map(move |ack| (by, ack))) {
            let mut segment = Segment::default();
            segment.flags = flags | ece_and_cwr;
            segment.sequence = expected.wrapping_add_signed(by);
            segment.acknowledgement = sent.wrapping_add_signed(ack);
            segment.window = [0, 1_000, 60_000][chance.below(3) as usize];
            segment.length = [0, 0, 1, 1_000][chance.below(4) as usize];
            if !chance.one_in(3) {
                let value = last.timestamps[1].wrapping_add(chance.below(3) as u32).wrapping_sub(1);
                segment.set_timestamps(value, last.timestamps[0]);
            }
            if segment.has(SYN) {
                segment.set_mss([1, 536, 1_460][chance.below(3) as usize]);
                if chance.one_in(2) {
                    segment.set_scale(chance.below(16) as u8);
                    segment.set_sack_permitted();
                }
            }
            segments.push(segment);
        }
    }
    segments
}

/// For each state, how many segments led to which state, and how many answers had which flags.
pub fn rows() -> Vec<String> {
    let mut rows = vec![
        "# Recorded; tests/pipe/record.rs says what to do when it changes. Of each state and \
         configuration: tried | closed by it, in the same state | first answers RST, SYN, ACK, FIN, \
         none | checksum"
            .to_string(),
    ];
    let linux = Config { ecn: true, ..Config::linux() };
    for (stack, config) in [("ns-2", Config::ns2_reno()), ("RFC", Config::rfc()), ("Linux", linux)]
    {
        for name in STATES {
            let pipe = end_in(name, config);
            let (end, now) = (&pipe.ends[0], pipe.now);
            let last = pipe.log.iter().rfind(|(_, from, _)| *from == 0);
            let last = last.map_or(Segment::default(), |(_, _, segment)| *segment);
            let mut chance = Chance::new(name.len() as u64);
            let all = segments(&mut chance, end, &last);
            let mut sum = Checksum::default();
            let (mut closed, mut same, mut answers) = (0, 0, [0; 5]);
            for (at, segment) in all.iter().enumerate() {
                let mut one = end.clone();
                one.receive(now, segment, Ecn::NotCapable);
                closed += u32::from(one.state() == State::Closed);
                same += u32::from(one.state() == end.state());
                let flags = answer(&mut end.clone(), now, &[*segment], &mut sum);
                for (bit, count) in [RST, SYN, ACK, FIN].into_iter().zip(&mut answers) {
                    *count += u32::from(flags.first().is_some_and(|flags| flags & bit != 0));
                }
                answers[4] += u32::from(flags.is_empty());
                // Another segment arrives before the answer is polled.
                let next = all[(at * 7 + 13) % all.len()];
                answer(&mut end.clone(), now, &[*segment, next], &mut sum);
            }
            let answers = answers.map(|count| count.to_string()).join(" ");
            let tried = all.len();
            rows.push(format!(
                "{stack}, {name}: {tried} | {closed} {same} | {answers} | {:016x}",
                sum.0
            ));
        }
    }
    rows
}
