//! Delay that looks like loss: what was reduced in error is given back.

use crate::pipe::{MS, Pipe};
use nilometer_tcp::{Config, Connection, Recovery};
use nilometer_wire::Time;

fn at(milliseconds: u64) -> Time {
    Time::ZERO + MS * milliseconds
}

/// A transfer whose path takes `delay` milliseconds from 400 ms on.
fn delayed(config: Config, delay: u64) -> Pipe {
    let left = Connection::connect(config, 7);
    let mut pipe = Pipe::new(left, Connection::listen(config, 70_000), 1);
    pipe.faults.spacing = MS;
    pipe.ends[0].write(1_000_000_000);
    pipe.run(at(400));
    pipe.delay = MS * delay;
    pipe.run(at(3_000));
    pipe
}

fn config(recovery: Recovery, timestamps: bool, undo: bool) -> Config {
    // Windows below what would make a queue, so that no loss and no delay is real.
    Config { recovery, timestamps, undo, delayed_ack: None, rto_min: MS * 50, ..Config::rfc() }
}

#[test]
fn a_spurious_timeout_is_undone() {
    for recovery in [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno, Recovery::Sack] {
        for timestamps in [true, false] {
            let plain = delayed(config(recovery, timestamps, false), 300);
            let undone = delayed(config(recovery, timestamps, true), 300);
            let about = format!("{recovery:?}, timestamps {timestamps}");
            assert!(plain.ends[0].statistics().timeouts > 0, "{about}");
            assert!(undone.ends[0].statistics().timeouts > 0, "{about}");
            assert!(undone.ends[0].statistics().undone > 0, "{about}");
            let repeats = |pipe: &Pipe| pipe.ends[0].statistics().retransmitted_segments;
            assert!(repeats(&undone) < repeats(&plain), "{about}");
        }
    }
}

#[test]
fn a_real_loss_is_not_undone() {
    for recovery in [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno, Recovery::Sack] {
        for timestamps in [true, false] {
            let config = config(recovery, timestamps, true);
            let left = Connection::connect(config, 7);
            let mut pipe = Pipe::new(left, Connection::listen(config, 70_000), 1);
            pipe.faults.spacing = MS;
            pipe.ends[0].write(1_000_000_000);
            // One segment alone, and then a whole window.
            pipe.drops =
                Box::new(|end, count, _| end == 0 && (count == 40 || (100..160).contains(&count)));
            pipe.run(at(2_000));
            let statistics = pipe.ends[0].statistics();
            assert!(statistics.fast_recoveries + statistics.timeouts >= 2, "{recovery:?}");
            assert_eq!(statistics.undone, 0, "{recovery:?}, timestamps {timestamps}");
        }
    }
}

/// A window of segments leaves at 100 ms and its first segment again at 1,100 ms and 3,100 ms; each
/// of the three takes the given milliseconds, or is lost.
fn two_timeouts(delays: [Option<u64>; 3]) -> Pipe {
    let config = Config { initial_window: 20, delayed_ack: None, ..Config::rfc() };
    let left = Connection::connect(config, 7);
    let mut pipe = Pipe::new(left, Connection::listen(config, 70_000), 1);
    pipe.run(at(100));
    pipe.now = at(100);
    pipe.ends[0].write(1448 * 20);
    for (delay, until) in delays.into_iter().zip([1_050, 3_050, 3_105]) {
        pipe.drops = Box::new(move |end, _, _| end == 0 && delay.is_none());
        pipe.delay = MS * delay.unwrap_or(10);
        pipe.run(at(until));
    }
    assert_eq!(pipe.ends[0].statistics().timeouts, 2);
    pipe.drops = Box::new(|_, _, _| false);
    pipe.delay = MS * 10;
    pipe.run(at(3_500));
    pipe
}

#[test]
fn the_answer_to_the_first_of_two_retransmissions_undoes_nothing() {
    let pipe = two_timeouts([None, Some(2_200), None]);
    assert_eq!(pipe.ends[0].statistics().undone, 0);
    let repeats = pipe.ends[0].statistics().retransmitted_segments;
    assert!(repeats > 20, "the whole window is sent again: {repeats}");
}

#[test]
fn the_answer_to_the_original_undoes_both_timeouts() {
    let pipe = two_timeouts([Some(3_200), None, None]);
    assert_eq!(pipe.ends[0].statistics().undone, 1);
    assert!(pipe.ends[0].window().cwnd >= 1448 * 20);
    assert_eq!(pipe.ends[0].statistics().retransmitted_segments, 2);
}

/// Undoing a timeout restores what the timeout took, and not what an earlier loss had taken; here
/// the timeout is that of a segment that the persist timer had sent.
#[test]
fn undoing_a_timeout_after_a_closed_window_restores_its_own_reduction() {
    // After twenty segments the peer has room for 100 bytes, too few to be worth a segment.
    let config = Config { initial_window: 20, delayed_ack: None, ..Config::rfc() };
    let room = 1448 * 20 + 100;
    let peer = Config { receive_buffer: room, window_scale: None, auto_read: false, ..config };
    let mut pipe = Pipe::new(Connection::connect(config, 7), Connection::listen(peer, 70_000), 1);
    pipe.run(at(100));
    pipe.now = at(100);
    pipe.drops = Box::new(|end, count, _| end == 0 && count == 5);
    pipe.ends[0].write(1448 * 40);
    pipe.run(at(1_000));
    let before = pipe.ends[0].window();
    assert_eq!(pipe.ends[0].statistics().fast_recoveries, 1);
    assert!(before.ssthresh < u64::MAX);
    // They leave about a second after the last acknowledgement, and the timer runs out two later.
    pipe.delay = MS * 2_500;
    pipe.run(at(3_500));
    assert_eq!(pipe.ends[0].statistics().timeouts, 1);
    pipe.delay = MS * 10;
    pipe.run(at(4_000));
    assert_eq!(pipe.ends[0].acknowledged(), u64::from(room));
    assert_eq!((pipe.ends[0].statistics().timeouts, pipe.ends[0].statistics().undone), (1, 1));
    assert_eq!(pipe.ends[0].window(), before);
}
