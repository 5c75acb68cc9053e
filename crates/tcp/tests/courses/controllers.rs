//! Controllers alone, on paths of a few parameters: their inputs are synthetic, but consistent.
//!
//! A path holds `rate` times the round-trip time without a queue, and then a queue. Each turn some
//! segments are acknowledged that were sent a round trip ago, at the rate of the path or of the
//! sender; what goes beyond the queue is lost. Marks, timeouts, needless recoveries and pauses of
//! the application occur at random.

use nilometer_tcp::{Acked, Algorithm, Any, Config, Congestion, Controller, Delivery, Growth};
use nilometer_tcp::{Lost, Window};
use nilometer_wire::{Span, Time};

use crate::pipe::record::Checksum;
use crate::pipe::{Chance, MS};

const MSS: u64 = 1_000;

/// What a path is like; a chance of `n` is one in n turns, 0 is never.
#[derive(Clone, Copy, Default)]
struct Path {
    name: &'static str,
    /// Bytes per millisecond.
    rate: u64,
    rtt_ms: u64,
    /// Segments of queue.
    queue: u64,
    /// Most segments acknowledged at once.
    lump: u64,
    loss: u64,
    mark: u64,
    timeout: u64,
    undo: u64,
    pause: u64,
    /// Least of the round trip is more, from this second on, by as many ms as it was.
    longer_from: u64,
}

const PATHS: [Path; 8] = [
    Path { name: "clean", rate: 1_250, rtt_ms: 40, queue: 60, lump: 1, ..NONE },
    Path { name: "deep queue", rate: 1_250, rtt_ms: 30, queue: 400, lump: 2, ..NONE },
    Path { name: "lossy", rate: 2_000, rtt_ms: 25, queue: 50, lump: 3, loss: 90, undo: 3, ..NONE },
    Path { name: "marked", rate: 900, rtt_ms: 60, queue: 90, lump: 2, mark: 400, undo: 9, ..NONE },
    Path { name: "timeouts", rate: 700, rtt_ms: 80, queue: 30, timeout: 700, undo: 2, ..NONE },
    Path { name: "pauses", rate: 1_500, rtt_ms: 20, queue: 40, lump: 4, pause: 300, ..NONE },
    Path { name: "longer", rate: 1_000, rtt_ms: 35, queue: 80, longer_from: 8, loss: 999, ..NONE },
    Path {
        name: "everything",
        rate: 1_800,
        rtt_ms: 50,
        queue: 70,
        lump: 6,
        loss: 300,
        mark: 700,
        timeout: 3_000,
        undo: 3,
        pause: 500,
        longer_from: 15,
    },
];

const NONE: Path = Path {
    name: "",
    rate: 0,
    rtt_ms: 0,
    queue: 0,
    lump: 2,
    loss: 0,
    mark: 0,
    timeout: 0,
    undo: 0,
    pause: 0,
    longer_from: u64::MAX,
};

struct Drive {
    path: Path,
    any: Any,
    window: Window,
    now: Time,
    chance: Chance,
    checksum: Checksum,
    delivered: u64,
    lost: u64,
    in_flight: u64,
    /// Until this many bytes were delivered, a recovery continues, a round lasts, samples are limited.
    recover: u64,
    round: u64,
    limited: u64,
    smoothed: Option<Span>,
    cuts: u64,
    windows: Vec<u64>,
}

impl Drive {
    fn new(config: &Config, path: Path, seed: u64) -> Drive {
        let window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
        Drive {
            path,
            any: Any::new(config, &window, seed),
            window,
            now: Time::ZERO + MS * 1_000,
            chance: Chance::new(seed),
            checksum: Checksum::default(),
            delivered: 0,
            lost: 0,
            in_flight: 0,
            recover: 0,
            round: 0,
            limited: 0,
            smoothed: None,
            cuts: 0,
            windows: Vec::new(),
        }
    }

    fn note(&mut self) {
        let rate = self.any.pacing_rate().map_or(0, |rate| rate.bits_per_second());
        self.checksum.add_all(&[self.window.cwnd, self.window.ssthresh, rate]);
    }

    fn congestion(&mut self, cause: Congestion) {
        self.cuts += 1;
        self.any.on_congestion(self.now, &mut self.window, cause, self.in_flight);
        if cause == Congestion::Loss && !self.any.owns_recovery() {
            self.window.cwnd = self.window.ssthresh;
        }
        self.note();
    }

    /// Some segments are lost, of a flight of `in_flight` bytes.
    fn lose(&mut self, segments: u64, in_flight: u64, is_app_limited: bool) {
        for number in 1..=segments {
            self.lost += MSS;
            let lost = Lost {
                now: self.now,
                bytes: MSS,
                lost: number * MSS,
                delivered: self.delivered,
                sent_in_flight: in_flight,
                is_app_limited,
            };
            if self.any.needs_delivery() {
                self.any.on_lost(&mut self.window, &lost);
            }
        }
        if self.delivered >= self.recover {
            self.recover = self.delivered + self.in_flight;
            self.congestion(Congestion::Loss);
        }
    }

    fn turn(&mut self) {
        let path = self.path;
        let is_longer = self.now > Time::ZERO + Span::from_secs(1) * path.longer_from;
        let least = path.rtt_ms * if is_longer { 2 } else { 1 };
        let is_app_limited = self.delivered < self.limited;
        let most = if is_app_limited { self.window.cwnd / 3 } else { self.window.cwnd };
        let pace = self.any.pacing_rate().map_or(u64::MAX, |rate| rate.bits_per_second() / 8_000);
        let holds = path.rate * least;
        // A paced sender fills the queue no faster than it sends beyond the rate.
        let beyond = pace.saturating_sub(path.rate).saturating_mul(least);
        self.in_flight = most.min(holds.saturating_add(beyond)).max(MSS);
        let queue = self.in_flight.saturating_sub(holds).min(path.queue * MSS);
        let overflow = self.in_flight.saturating_sub(holds + path.queue * MSS) / MSS;
        let rtt = MS * least + Span(MS.0 / path.rate * queue) + Span(self.chance.below(MS.0));
        let rate = path.rate.min(self.in_flight / least).max(1);
        let segments = 1 + self.chance.below(path.lump);
        self.now += Span(MS.0 / rate * segments * MSS);
        let mut lost = if overflow > 0 { overflow.min(9) } else { 0 };
        lost += u64::from(self.chance.one_in(path.loss)) * (1 + self.chance.below(3));
        if lost > 0 {
            self.lose(lost, self.in_flight, is_app_limited);
        }
        if self.chance.one_in(path.mark) {
            self.congestion(Congestion::Marked);
        }
        if self.chance.one_in(path.timeout) {
            self.congestion(Congestion::Timeout);
        }
        if self.delivered < self.recover && self.chance.one_in(path.undo * 40) {
            self.any.undo(self.now, &mut self.window);
            self.recover = self.delivered;
            self.note();
        }
        if self.chance.one_in(path.pause) {
            let idle = MS * (200 + self.chance.below(2_000));
            self.now += idle;
            self.any.on_restart(self.now, &mut self.window, idle);
            self.limited = self.delivered + self.chance.below(90) * MSS;
            self.note();
        }
        self.acknowledge(segments * MSS, rtt, rate * 1_000, lost * MSS, is_app_limited);
        if self.now >= Time::ZERO + Span::from_secs(1) * (1 + 2 * self.windows.len() as u64) {
            self.windows.push(self.window.cwnd / MSS);
        }
    }

    fn acknowledge(&mut self, bytes: u64, rtt: Span, rate: u64, lost: u64, is_app_limited: bool) {
        self.delivered += bytes;
        let round_ended = self.delivered >= self.round;
        if round_ended {
            self.round = self.delivered + self.in_flight;
        }
        self.smoothed = Some(self.smoothed.map_or(rtt, |old| (old * 7 + rtt) / 8));
        let delivery = Delivery {
            bytes_per_second: if self.chance.one_in(50) { 0 } else { rate },
            is_app_limited,
            lost,
            delivered: self.delivered,
            prior_delivered: self.delivered.saturating_sub(self.in_flight.max(bytes)),
            sent_in_flight: self.in_flight,
        };
        let acked = Acked {
            now: self.now,
            bytes,
            rtt: (!self.chance.one_in(20)).then_some(rtt),
            smoothed_rtt: self.smoothed,
            in_flight: self.in_flight,
            is_window_limited: !is_app_limited,
            in_recovery: self.delivered < self.recover,
            round_ended,
            delivery: self.any.needs_delivery().then_some(delivery),
        };
        self.any.on_ack(&mut self.window, &acked);
        self.note();
    }
}

pub fn rows() -> Vec<String> {
    let base = Config::ns2_reno();
    let named = |algorithm, hystart| Config { algorithm, hystart, ..base };
    let configs = [
        ("Reno", base),
        ("Reno, bytes", Config { growth: Growth::Bytes, ..base }),
        ("CUBIC", named(Algorithm::Cubic, false)),
        ("CUBIC, HyStart++", named(Algorithm::Cubic, true)),
        ("Linux's CUBIC", named(Algorithm::LinuxCubic, false)),
        ("Linux's CUBIC, HyStart", named(Algorithm::LinuxCubic, true)),
        ("BBR", named(Algorithm::Bbr, false)),
    ];
    let mut rows = vec![
        "# Recorded; tests/pipe/record.rs says what to do when it changes. Reductions | \
         megabytes delivered | window in segments, each 2 s | checksum"
            .to_string(),
    ];
    for path in PATHS {
        rows.push(format!("[{}]", path.name));
        for (name, config) in &configs {
            for seed in if *name == "BBR" { 1..=3 } else { 1..=1 } {
                let mut drive = Drive::new(config, path, seed);
                while drive.now < Time::ZERO + Span::from_secs(36) {
                    drive.turn();
                }
                let windows: Vec<String> = drive.windows.iter().map(u64::to_string).collect();
                let (cuts, megabytes) = (drive.cuts, drive.delivered / 1_000_000);
                let (windows, sum) = (windows.join(" "), drive.checksum.0);
                rows.push(format!("{name}: {cuts} | {megabytes} | {windows} | {sum:016x}"));
            }
        }
    }
    rows
}
