//! Random walks: two ends of any configuration, on a path that changes, do what comes along.

use nilometer_tcp::{Algorithm, Config, Growth, IdleRestart, Recovery, Statistics};

use crate::pipe::{Chance, MS};
use crate::scenes::{Run, Turn};

const WALKS: u64 = 400;
const WALKS_A_ROW: usize = 10;
const TURNS: u64 = 16;

/// One of those.
fn one<T: Copy>(chance: &mut Chance, of: &[T]) -> T {
    of[chance.below(of.len() as u64) as usize]
}

/// A configuration with every field drawn at random.
fn configuration(chance: &mut Chance) -> Config {
    use {Algorithm as A, Recovery as R};
    Config {
        mss: one(chance, &[1_460, 1_460, 536, 1_000, 100]),
        recovery: one(chance, &[R::Tahoe, R::Reno, R::NewReno, R::Sack, R::Sack, R::Rack, R::Rack]),
        algorithm: one(chance, &[A::Reno, A::Reno, A::Cubic, A::LinuxCubic, A::Bbr]),
        growth: one(chance, &[Growth::Bytes, Growth::Acknowledgements]),
        hystart: chance.one_in(2),
        initial_window: one(chance, &[1, 2, 3, 10]),
        receive_buffer: one(chance, &[4 << 20, 60_000, 9_000, 2_500]),
        window_scale: one(chance, &[None, Some(0), Some(7), Some(14)]),
        timestamps: chance.one_in(2),
        delayed_ack: one(chance, &[None, Some(MS * 40), Some(MS * 200)]),
        ack_every: one(chance, &[1, 2, 2, 3, 4]),
        quick_acks: one(chance, &[0, 1, 16]),
        auto_read: !chance.one_in(4),
        ecn: chance.one_in(2),
        nagle: chance.one_in(2),
        is_impatient: chance.one_in(2),
        limited_transmit: chance.one_in(2),
        prr: chance.one_in(2),
        idle_restart: one(chance, &[IdleRestart::Never, IdleRestart::Initial, IdleRestart::Decay]),
        undo: chance.one_in(2),
        rtt_each_ack: chance.one_in(2),
        forget_backoff: chance.one_in(2),
        granularity: one(chance, &[MS, MS * 10, MS * 200]),
        rto_initial: one(chance, &[MS * 300, MS * 1_000]),
        rto_min: one(chance, &[MS, MS * 200, MS * 1_000]),
        rto_max: one(chance, &[MS * 1_500, MS * 60_000]),
        answers_unsent: chance.one_in(2),
        tail_probe: chance.one_in(2),
        retries: one(chance, &[2, 5, 15]),
        syn_retries: one(chance, &[1, 6]),
        time_wait: one(chance, &[MS * 500, MS * 8_000]),
    }
}

/// What happens next on a walk.
fn turn(chance: &mut Chance, run: &mut Run) -> Turn {
    const NUMBERS: &[&[u64]] =
        &[&[1], &[2], &[1, 2], &[3, 5], &[2, 3, 4], &[1, 3, 4, 9], &[4, 5, 6, 7, 8, 9, 10, 11]];
    let end = chance.below(2) as usize;
    match chance.below(24) {
        0..=4 => Turn::Write(1 + chance.below(80_000)),
        5 => Turn::Reply(1 + chance.below(20_000)),
        6..=8 => Turn::Pieces(1 + chance.below(6), 1 + chance.below(3_000), 2 + chance.below(300)),
        9 | 10 => Turn::Read(chance.below(20_000)),
        11..=13 => Turn::Drop(end, one(chance, NUMBERS)),
        14 => Turn::Silence(end, 1 + chance.below(900)),
        15 => Turn::Stall(1 + chance.below(900)),
        16 => Turn::Chances(0, 0, 0, 0),
        17 => Turn::Chances(10 + chance.below(60), 0, 0, 0),
        18 => Turn::Chances(0, chance.below(20), chance.below(12), chance.below(12)),
        19 => Turn::Chances(chance.below(90), chance.below(90), chance.below(40), chance.below(40)),
        20 => Turn::Path(chance.below(2_500), chance.below(90), 1 + chance.below(70)),
        21 if chance.one_in(5) => Turn::Close(end),
        22 if chance.one_in(30) => {
            run.pipe.ends[end].abort();
            Turn::Wait(50)
        }
        23 => {
            run.pipe.ends[0].set_nagle(chance.one_in(2));
            run.pipe.ends[0].set_cork(chance.one_in(3));
            Turn::Wait(20)
        }
        _ => Turn::Wait(1 + chance.below(6_000)),
    }
}

fn walk(seed: u64) -> Run {
    let chance = &mut Chance::new(seed);
    let (left, right) = (configuration(chance), configuration(chance));
    let mut run = Run::new(left, right, &format!("walk {seed}"));
    run.take(Turn::Path(chance.below(1_500), chance.below(120), 1 + chance.below(60)));
    run.take(Turn::Write(1 + chance.below(60_000)));
    for _ in 0..TURNS {
        let turn = turn(chance, &mut run);
        run.take(turn);
        run.take(Turn::Wait(chance.below(900)));
    }
    run.take(Turn::Close(0));
    run.take(Turn::Wait(3_000));
    run.take(Turn::Close(1));
    run.take(Turn::Wait(9_000));
    run
}

/// The results of the walks, ten a row.
pub fn rows() -> Vec<String> {
    let title = "# Recorded; tests/pipe/record.rs says what to do when it changes. Of the left ends \
                 of ten walks: segments sent, again, timeouts, recoveries, undone, marks answered, \
                 duplicate bytes, kilobytes acknowledged | checksum";
    let mut rows = vec![title.to_string()];
    let walks: Vec<Run> = (0..WALKS).map(walk).collect();
    for walks in walks.chunks(WALKS_A_ROW) {
        let mut checksum = crate::pipe::record::Checksum::default();
        walks.iter().for_each(|walk| checksum.add(walk.checksum.0));
        let total = |of: fn(&Statistics) -> u64| {
            walks.iter().map(|walk| of(walk.pipe.ends[0].statistics())).sum::<u64>()
        };
        let figures = [
            total(|counts| counts.segments_sent),
            total(|counts| counts.retransmitted_segments),
            total(|counts| counts.timeouts),
            total(|counts| counts.fast_recoveries),
            total(|counts| counts.undone),
            total(|counts| counts.marks_answered),
            total(|counts| counts.duplicate_bytes),
            walks.iter().map(|walk| walk.pipe.ends[0].acknowledged()).sum::<u64>() / 1_000,
        ];
        let figures = figures.map(|figure| figure.to_string()).join(" ");
        rows.push(format!("{figures} | {:016x}", checksum.0));
    }
    rows
}
