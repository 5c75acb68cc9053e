//! Stacks on paths: what each of many configurations makes of each of some scripts.

use nilometer_tcp::{Algorithm, Config, Connection, Growth, IdleRestart, Recovery};
use nilometer_wire::{Span, Time};

use crate::pipe::record::Checksum;
use crate::pipe::{Chance, Faults, MS, Pipe};

/// A turn of a script.
#[derive(Clone, Copy)]
pub enum Turn {
    /// Microseconds between packets, milliseconds of queue (0: endless) and of one-way delay.
    Path(u64, u64, u64),
    /// One in this many packets is lost, repeated, held up, marked; 0: none.
    Chances(u64, u64, u64, u64),
    /// The left end writes this many bytes.
    Write(u64),
    /// Times, bytes, milliseconds: this often, the left end writes about that much and then waits
    /// about that long.
    Pieces(u64, u64, u64),
    /// The right end writes this many bytes.
    Reply(u64),
    /// The right end reads this many bytes.
    Read(u64),
    /// Milliseconds.
    Wait(u64),
    /// From now on, packets of an end (0: left) by their number are dropped.
    Drop(usize, &'static [u64]),
    /// An end (0: left), and milliseconds during which nothing that it sends arrives.
    Silence(usize, u64),
    /// Milliseconds for which the path stands still, and then delivers all.
    Stall(u64),
    /// An end closes.
    Close(usize),
}
use Turn::*;

/// What happens, in words and in turns.
const SCRIPTS: &[(&str, &[Turn])] = &[
    ("short queue", &[Path(1_200, 20, 20), Write(3 << 20), Wait(12_000), Close(0), Wait(9_000)]),
    (
        "long queue, marks",
        &[
            Path(800, 120, 15),
            Write(4 << 20),
            Wait(1_500),
            Chances(0, 0, 0, 70),
            Wait(3_000),
            Chances(0, 0, 0, 0),
            Write(1 << 20),
            Wait(6_000),
        ],
    ),
    (
        "loss, repeats, disorder",
        &[
            Path(300, 0, 10),
            Chances(60, 90, 40, 50),
            Write(600_000),
            Reply(90_000),
            Wait(9_000),
            Chances(8, 0, 6, 0),
            Write(60_000),
            Wait(30_000),
            Close(0),
            Wait(5_000),
            Close(1),
            Wait(200_000),
        ],
    ),
    (
        "disorder only",
        &[
            Path(700, 0, 12),
            Chances(0, 0, 5, 0),
            Write(900_000),
            Wait(9_000),
            Write(7_000),
            Wait(900),
        ],
    ),
    (
        "pieces and pauses",
        &[
            Path(500, 40, 25),
            Pieces(30, 900, 12),
            Pieces(20, 9_000, 130),
            Pieces(6, 120_000, 2_500),
            Chances(25, 0, 0, 0),
            Pieces(20, 15_000, 400),
            Pieces(40, 700, 30),
            Close(0),
            Wait(9_000),
        ],
    ),
    (
        "a slow reader",
        &[
            Path(400, 0, 10),
            Write(400_000),
            Wait(1_000),
            Read(3_000),
            Wait(900),
            Read(500),
            Wait(400),
            Read(9_000),
            Wait(2_000),
            Drop(1, &[1, 2]),
            Read(20_000),
            Wait(9_000),
            Read(1_000),
            Silence(0, 1_500),
            Read(u64::MAX),
            Wait(4_000),
            Read(u64::MAX),
            Wait(1_000),
            Read(u64::MAX),
            Wait(20_000),
            Read(u64::MAX),
            Wait(20_000),
        ],
    ),
    (
        "silence, stalls",
        &[
            Path(600, 60, 30),
            Write(300_000),
            Wait(700),
            Write(300_000),
            Silence(0, 1_300),
            Wait(2_500),
            Write(500_000),
            Wait(150),
            Stall(700),
            Wait(3_000),
            Write(200_000),
            Wait(100),
            Silence(1, 400),
            Wait(3_000),
            Write(60_000),
            Wait(70),
            Stall(2_600),
            Wait(2_000),
            Write(90_000),
            Silence(1, 9_000),
            Wait(30_000),
        ],
    ),
    (
        "certain segments",
        &[
            Path(900, 0, 20),
            Write(40_000),
            Wait(300),
            Drop(0, &[3, 4, 9]),
            Write(60_000),
            Wait(2_000),
            Drop(0, &[1, 2, 4, 5, 7, 8, 12, 13, 20]),
            Write(90_000),
            Wait(3_000),
            Drop(0, &[10, 11, 12, 13]),
            Write(12 * 1_448),
            Wait(3_000),
            Drop(0, &[5, 11, 12, 13]),
            Write(8 * 1_448 - 300),
            Wait(3_000),
            Drop(0, &[1]),
            Write(500),
            Wait(900),
            Drop(0, &[2]),
            Write(2_500),
            Wait(5_000),
            Drop(1, &[1, 2, 3, 5, 7, 9, 10]),
            Write(50_000),
            Wait(2_000),
            Drop(0, &[4, 30, 31]),
            Write(48_000),
            Close(0),
            Reply(9_000),
            Wait(3_000),
            Close(1),
            Wait(100_000),
        ],
    ),
    (
        "a hard beginning and end",
        &[
            Path(100, 0, 45),
            Drop(0, &[1, 3, 5]),
            Drop(1, &[1, 2, 4]),
            Write(20_000),
            Reply(3_000),
            Wait(20_000),
            Close(1),
            Drop(0, &[1, 2]),
            Drop(1, &[1, 3]),
            Write(4_000),
            Close(0),
            Wait(30_000),
        ],
    ),
];

/// Two configurations, in words.
fn stacks() -> Vec<(&'static str, Config, Config)> {
    let (ns2, rfc, linux) = (Config::ns2_reno(), Config::rfc(), Config::linux());
    let both = |name, config: Config| (name, config, config);
    let delays = Config { delayed_ack: Some(MS * 100), window_scale: None, ..ns2 };
    let bbr = Config { algorithm: Algorithm::Bbr, ..rfc };
    vec![
        ("ns-2 Tahoe", Config { recovery: Recovery::Tahoe, ..ns2 }, ns2),
        ("ns-2 Reno", Config { limited_transmit: true, ..ns2 }, delays),
        both("FullTcp", Config { ecn: true, undo: true, ..Config::fulltcp() }),
        ("NewReno", Config { recovery: Recovery::NewReno, growth: Growth::Bytes, ..ns2 }, delays),
        both("impatient", Config { recovery: Recovery::NewReno, ecn: true, ..rfc }),
        both("ns-3", Config::ns3()),
        both("RFC", Config { ecn: true, ..rfc }),
        both("RFC, CUBIC", Config { algorithm: Algorithm::Cubic, hystart: true, prr: true, ..rfc }),
        both(
            "RFC, no timestamps",
            Config { timestamps: false, idle_restart: IdleRestart::Decay, ..rfc },
        ),
        ("RFC, BBR", bbr, Config { ecn: true, ..rfc }),
        both("BBR, NewReno", Config { recovery: Recovery::NewReno, ecn: true, ..bbr }),
        both("Linux", linux),
        both("Linux, ECN", Config { ecn: true, timestamps: false, ..linux }),
        ("Linux, peer without SACK", linux, Config { ecn: true, ..ns2 }),
        both("Linux, Reno", Config { algorithm: Algorithm::Reno, tail_probe: false, ..linux }),
        both("Linux, BBR", Config { algorithm: Algorithm::Bbr, ecn: true, ..linux }),
    ]
}

/// A script in progress.
pub struct Run {
    pub pipe: Pipe,
    chance: Chance,
    pub checksum: Checksum,
    until: Time,
    /// The window, in segments, from time to time.
    windows: Vec<u64>,
    next_look: Time,
}

impl Run {
    pub fn new(left: Config, right: Config, name: &str) -> Run {
        let seed = name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
        // The left end's numbers pass zero soon.
        let left = Connection::connect(left, 0_u32.wrapping_sub(30_000));
        let mut pipe = Pipe::new(left, Connection::listen(right, 1 << 31), seed);
        pipe.keeps_log = true;
        Run {
            pipe,
            chance: Chance::new(seed),
            checksum: Checksum::default(),
            until: Time::ZERO,
            windows: Vec::new(),
            next_look: Time::ZERO,
        }
    }

    fn wait(&mut self, span: Span) {
        self.until += span;
        while self.pipe.step(self.until) {
            self.look();
        }
        self.pipe.now = self.until;
        self.pipe.flush();
        self.look();
    }

    /// Adds what was sent and the state of the ends.
    fn look(&mut self) {
        for (at, end, segment) in self.pipe.log.drain(..) {
            self.checksum.add(end as u64);
            self.checksum.add_segment(at, &segment);
        }
        self.pipe.ends.iter().for_each(|end| self.checksum.add_connection(end));
        if self.pipe.now >= self.next_look {
            let window = self.pipe.ends[0].window();
            self.windows.push(window.cwnd / u64::from(window.mss));
            self.next_look = self.pipe.now + MS * 900;
        }
    }

    pub fn take(&mut self, turn: Turn) {
        match turn {
            Path(spacing, buffer, delay) => {
                self.pipe.delay = MS * delay;
                self.pipe.faults.buffer = MS * buffer;
                self.pipe.faults.spacing = Span::from_nanos(1_000) * spacing;
            }
            Chances(loss, duplication, reordering, marking) => {
                let faults = self.pipe.faults;
                self.pipe.faults = Faults { loss, duplication, reordering, marking, ..faults };
            }
            Write(bytes) => self.pipe.ends[0].write(bytes),
            Pieces(count, bytes, millis) => {
                for _ in 0..count {
                    let bytes = bytes / 2 + self.chance.below(bytes);
                    self.pipe.ends[0].write(bytes);
                    let millis = millis / 2 + self.chance.below(millis);
                    self.wait(MS * millis);
                }
            }
            Reply(bytes) => self.pipe.ends[1].write(bytes),
            Read(bytes) => {
                self.checksum.add(self.pipe.ends[1].read(bytes));
            }
            Wait(millis) => self.wait(MS * millis),
            Drop(from, numbers) => {
                let (mut count, mut before) =
                    (0, core::mem::replace(&mut self.pipe.drops, Box::new(|_, _, _| false)));
                self.pipe.drops = Box::new(move |end, number, segment| {
                    count += u64::from(end == from);
                    before(end, number, segment) || (end == from && numbers.contains(&count))
                });
            }
            Silence(from, millis) => {
                let before = core::mem::replace(
                    &mut self.pipe.drops,
                    Box::new(move |end, _, _| end == from),
                );
                self.wait(MS * millis);
                self.pipe.drops = before;
            }
            Stall(millis) => {
                self.pipe.flush();
                self.pipe.stall(MS * millis);
            }
            Close(end) => self.pipe.ends[end].close(),
        }
    }

    fn row(&self, name: &str) -> String {
        let [left, right] = &self.pipe.ends;
        let counts = left.statistics();
        let windows: Vec<String> = self.windows.iter().take(12).map(u64::to_string).collect();
        let figures = [
            counts.segments_sent,
            counts.retransmitted_segments,
            counts.timeouts,
            counts.fast_recoveries,
            counts.undone,
            counts.marks_answered,
        ]
        .map(|figure| figure.to_string());
        format!(
            "{name}: {} | {} | {:?} {:?} | {} | {:016x}",
            figures.join(" "),
            left.acknowledged() / 1_000,
            left.state(),
            right.state(),
            windows.join(" "),
            self.checksum.0
        )
    }
}

pub fn rows() -> Vec<String> {
    let mut rows = vec![
        "# Recorded; tests/pipe/record.rs says what to do when it changes. Of the left end: \
         segments sent, sent again, timeouts, recoveries, undone, marks answered | kilobytes \
         acknowledged | states of both | window in segments, each 0.9 s | checksum"
            .to_string(),
    ];
    for (script, turns) in SCRIPTS {
        rows.push(format!("[{script}]"));
        for (name, mut left, mut right) in stacks() {
            if script.contains("reader") {
                right.auto_read = false;
                right.receive_buffer = 40_000;
            }
            (left.time_wait, right.time_wait) = (MS * 8_000, MS * 8_000);
            let mut run = Run::new(left, right, script);
            turns.iter().for_each(|turn| run.take(*turn));
            rows.push(run.row(name));
        }
    }
    rows
}
