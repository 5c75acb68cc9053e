//! Arbitrary segments in arbitrary states: nothing panics, nothing runs away, and acknowledgements
//! of unsent data are refused. The answers are recorded, too (see `pipe/record.rs`): each condition
//! by which a segment is refused or believed is met by some of them.

use crate::pipe::Chance;
use crate::pipe::record::{Checksum, compare};
use nilometer_tcp::segment::{ACK, SYN};
use nilometer_tcp::{
    Algorithm, Config, Connection, Outgoing, Recovery, Segment, State, Statistics,
};
use nilometer_wire::{Ecn, Span, Time};

const ROUNDS: u64 = 2_000;
const SEGMENTS: u64 = 600;
/// What one call may make an end send: no window is larger.
const BURST_LIMIT: u64 = 100_000;

fn configuration(chance: &mut Chance) -> Config {
    let bases = [Config::ns2_reno(), Config::rfc(), Config::linux(), Config::fulltcp()];
    let recoveries =
        [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno, Recovery::Sack, Recovery::Rack];
    let algorithms = [Algorithm::Reno, Algorithm::Cubic, Algorithm::LinuxCubic, Algorithm::Bbr];
    Config {
        recovery: recoveries[chance.below(5) as usize],
        algorithm: algorithms[chance.below(4) as usize],
        timestamps: chance.one_in(2),
        ecn: chance.one_in(2),
        undo: chance.one_in(2),
        auto_read: chance.one_in(2),
        receive_buffer: [1, 500, 60_000, 1 << 20][chance.below(4) as usize],
        mss: [1, 100, 1460][chance.below(3) as usize],
        ..bases[chance.below(4) as usize]
    }
}

/// A number near one of those that matter, or anywhere.
fn near(chance: &mut Chance, number: u32) -> u32 {
    match chance.below(8) {
        0 => chance.next() as u32,
        1 => number,
        2..=4 => number.wrapping_add(chance.below(20_000) as u32),
        _ => number.wrapping_add(chance.below(3_000) as u32).wrapping_sub(1_500),
    }
}

/// A segment that might come from the peer of the sender of `last`.
fn segment(chance: &mut Chance, last: &Segment, peer: u32) -> Segment {
    let mut segment = Segment::default();
    let origin = if chance.one_in(2) { last.acknowledgement } else { peer };
    segment.sequence = near(chance, origin);
    segment.acknowledgement = near(chance, last.sequence.wrapping_add(u32::from(last.length)));
    segment.flags = match chance.below(20) {
        0 => chance.next() as u8,
        1 => SYN,
        2 => SYN | ACK,
        3 => ACK | 0x40,
        4 => ACK | 1,
        _ => ACK,
    };
    let any = chance.next();
    segment.window = [0, 1, 600, 65_535, any as u16][chance.below(5) as usize];
    segment.length = [0, 0, 1, 1460, (any >> 16) as u16][chance.below(5) as usize];
    if chance.one_in(2) {
        let [value, echo] = last.timestamps;
        segment.set_timestamps(near(chance, echo), near(chance, value));
    }
    if segment.has(SYN) {
        segment.set_mss(chance.next() as u16);
        segment.set_scale(chance.next() as u8);
        segment.set_sack_permitted();
    } else {
        for _ in 0..chance.below(5) {
            let left = near(chance, last.sequence);
            let right = near(chance, left);
            segment.push_block(left, right);
        }
    }
    segment
}

struct Trial {
    chance: Chance,
    end: Connection,
    now: Time,
    last: Segment,
    written: u64,
    sent: u64,
    checksum: Checksum,
}

impl Trial {
    fn drain(&mut self) {
        let mut count = 0;
        while let Some(Outgoing { segment, .. }) = self.end.poll_transmit(self.now) {
            self.last = segment;
            self.checksum.add_segment(self.now, &segment);
            count += 1;
            assert!(count < BURST_LIMIT, "{:?}", self.end);
        }
        self.sent += count;
        self.checksum.add_connection(&self.end);
    }

    fn act(&mut self) {
        match self.chance.below(12) {
            0 => {
                let bytes = self.chance.below(50_000);
                match self.chance.below(8) {
                    0 => self.end.write_more(bytes),
                    1 => self.end.set_cork(bytes.is_multiple_of(3)),
                    2 => self.end.set_nagle(bytes.is_multiple_of(2)),
                    _ => self.end.write(bytes),
                }
                self.written += bytes;
            }
            1 => self.checksum.add(self.end.read(1_000)),
            2 if self.chance.one_in(20) => self.end.close(),
            3 if self.chance.one_in(100) => self.end.abort(),
            4 => {
                self.now = self.end.poll_timeout().unwrap_or(self.now).max(self.now);
                self.end.handle_timeout(self.now);
            }
            _ => {
                self.now += Span(self.chance.below(30_000_000_000));
                let segment = segment(&mut self.chance, &self.last, 1_000);
                let ecn = if self.chance.one_in(4) { Ecn::Congestion } else { Ecn::NotCapable };
                self.end.receive(self.now, &segment, ecn);
            }
        }
    }
}

#[test]
fn arbitrary_segments_are_tolerated() {
    let (mut alive, mut trials) = (0, Vec::new());
    for seed in 0..ROUNDS {
        let mut chance = Chance::new(seed);
        let (config, initial) = (configuration(&mut chance), chance.next() as u32);
        let end = if chance.one_in(2) {
            Connection::connect(config, initial)
        } else {
            Connection::listen(config, initial)
        };
        let last = Segment::default();
        let (now, checksum) = (Time::ZERO, Checksum::default());
        let mut trial = Trial { chance, end, now, last, written: 0, sent: 0, checksum };
        if seed % 4 != 0 {
            open(&mut trial);
        }
        for _ in 0..SEGMENTS {
            let (delivered, acknowledged) = (trial.end.delivered(), trial.end.acknowledged());
            let was = trial.end.state();
            trial.act();
            trial.drain();
            let end = &trial.end;
            if !matches!(end.state(), State::Listen) {
                assert!(end.delivered() >= delivered && end.acknowledged() >= acknowledged);
            }
            assert!(end.acknowledged() <= trial.written, "{was:?} {end:?}");
            assert!(end.in_flight() <= 3 * trial.written + 2, "{end:?}");
            assert!(end.window().cwnd > 0, "{end:?}");
            alive += u64::from(end.state() == State::Established);
        }
        trials.push((trial.sent, *trial.end.statistics(), trial.checksum));
    }
    assert!(alive > ROUNDS * SEGMENTS / 20, "hardly any trial got anywhere: {alive}");
    compare("noise.txt", &rows(&trials));
}

/// The results of the trials, fifty a row.
fn rows(trials: &[(u64, Statistics, Checksum)]) -> Vec<String> {
    let title = "# Recorded; tests/pipe/record.rs says what to do when it changes. Of fifty trials \
                 each: segments sent, again, refused, timeouts, duplicate bytes | checksum";
    let mut rows = vec![title.to_string()];
    for trials in trials.chunks(50) {
        let mut checksum = Checksum::default();
        trials.iter().for_each(|trial| checksum.add(trial.2.0));
        let total = |of: fn(&Statistics) -> u64| trials.iter().map(|trial| of(&trial.1)).sum();
        let figures: [u64; 5] = [
            trials.iter().map(|trial| trial.0).sum(),
            total(|counts| counts.retransmitted_segments),
            total(|counts| counts.refused_segments),
            total(|counts| counts.timeouts),
            total(|counts| counts.duplicate_bytes),
        ];
        let figures = figures.map(|figure| figure.to_string()).join(" ");
        rows.push(format!("{figures} | {:016x}", checksum.0));
    }
    rows
}

/// Lets the handshake succeed, so that what follows meets an open connection.
fn open(trial: &mut Trial) {
    let mut syn = Segment::default();
    syn.flags = SYN;
    syn.sequence = 1_000;
    syn.window = 60_000;
    syn.set_mss(1460);
    syn.set_scale(3);
    syn.set_sack_permitted();
    syn.set_timestamps(5, 0);
    trial.drain();
    if trial.end.state() == State::SynSent {
        syn.flags |= ACK;
        syn.acknowledgement = trial.last.sequence.wrapping_add(1);
    }
    trial.end.receive(trial.now, &syn, Ecn::NotCapable);
    trial.drain();
    let mut ack = Segment::default();
    ack.flags = ACK;
    ack.sequence = 1_001;
    ack.acknowledgement = trial.last.sequence.wrapping_add(u32::from(trial.last.has(SYN)));
    ack.window = 60_000;
    trial.end.receive(trial.now, &ack, Ecn::NotCapable);
    trial.drain();
    assert_eq!(trial.end.state(), State::Established);
}
