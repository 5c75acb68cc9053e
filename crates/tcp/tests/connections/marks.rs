//! The cost of congestion marks: one reduction for a window of marks and losses, signalled to the
//! peer (RFC 3168, 6.1.2).

use crate::pipe::{MS, Pipe};
use nilometer_tcp::segment::{CWR, ECE};
use nilometer_tcp::{Algorithm, Config, Connection, Recovery, Statistics};
use nilometer_wire::{Span, Time};

const SEGMENT: u64 = 1448;

fn at(milliseconds: u64) -> Time {
    Time::ZERO + MS * milliseconds
}

fn stack(recovery: Recovery) -> Config {
    let base = if recovery == Recovery::Rack { Config::linux() } else { Config::rfc() };
    Config {
        recovery,
        ecn: true,
        delayed_ack: None,
        nagle: false,
        // So that no acknowledgement changes the window, and each duplicate counts.
        window_scale: None,
        receive_buffer: 65_000,
        initial_window: 20,
        ..base
    }
}

const STACKS: [Recovery; 5] =
    [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno, Recovery::Sack, Recovery::Rack];

/// Established, at 100 ms.
fn pair(config: Config) -> Pipe {
    let left = Connection::connect(config, 7);
    let mut pipe = Pipe::new(left, Connection::listen(config, 70_000), 1);
    pipe.run(at(100));
    pipe.now = at(100);
    pipe.keeps_log = true;
    pipe
}

/// Writes this many segments, which leave at once and with marks if they are `marked`.
fn send(pipe: &mut Pipe, segments: u64, marked: bool) {
    pipe.faults.marking = u64::from(marked);
    pipe.ends[0].write(segments * SEGMENT);
    pipe.flush();
    pipe.faults.marking = 0;
}

fn statistics(pipe: &Pipe) -> Statistics {
    *pipe.ends[0].statistics()
}

/// How often the sender signalled a reduction, and whether the receiver still echoes marks.
fn signalled(pipe: &Pipe) -> (usize, bool) {
    let with_cwr = pipe.log.iter().filter(|(_, end, segment)| *end == 0 && segment.has(CWR));
    let last = pipe.log.iter().rfind(|(_, end, _)| *end == 1).expect("an acknowledgement").2;
    (with_cwr.count(), last.has(ECE))
}

#[test]
fn a_mark_shrinks_the_window_however_many_acknowledgements_come() {
    for segments in [10, 20, 40] {
        let config = Config { initial_window: segments as u32, ..stack(Recovery::Rack) };
        let mut pipe = pair(config);
        pipe.faults.spacing = Span::from_nanos(50_000);
        send(&mut pipe, segments, true);
        pipe.ends[0].write(1 << 30);
        assert_eq!(pipe.ends[0].in_flight(), segments * SEGMENT);
        let mut most = 0;
        while pipe.step(at(138)) {
            most = most.max(pipe.ends[0].in_flight());
        }
        assert_eq!(statistics(&pipe).marks_answered, 1);
        assert_eq!(most, segments * SEGMENT, "{segments} segments before the mark");
        let left = pipe.ends[0].in_flight();
        assert_eq!(left, segments * 7 / 10 * SEGMENT, "{segments} segments before the mark");
    }
}

#[test]
fn marks_in_the_window_of_a_loss_do_not_reduce_again() {
    for recovery in STACKS {
        let mut pipe = pair(stack(recovery));
        let mut count = 0;
        pipe.drops = Box::new(move |end, _, segment| {
            count += u64::from(end == 0 && segment.length > 0);
            end == 0 && segment.length > 0 && count == 1
        });
        send(&mut pipe, 10, false);
        send(&mut pipe, 10, true);
        pipe.ends[0].write(1 << 24);
        pipe.run(at(400));
        let statistics = statistics(&pipe);
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0), "{recovery:?}");
        assert_eq!(statistics.marks_answered, 0, "{recovery:?}");
        assert_eq!(signalled(&pipe), (1, false), "{recovery:?}");
    }
}

#[test]
fn a_loss_in_the_window_of_a_mark_does_not_reduce_again() {
    for recovery in STACKS {
        let mut pipe = pair(stack(recovery));
        let mut count = 0;
        pipe.drops = Box::new(move |end, _, segment| {
            count += u64::from(end == 0 && segment.length > 0);
            end == 0 && segment.length > 0 && count == 12
        });
        send(&mut pipe, 10, true);
        send(&mut pipe, 10, false);
        pipe.ends[0].write(1 << 24);
        while statistics(&pipe).marks_answered == 0 {
            assert!(pipe.step(at(200)), "{recovery:?}: no mark is answered");
        }
        let reduced = pipe.ends[0].window().ssthresh;
        pipe.run(at(400));
        let statistics = statistics(&pipe);
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0), "{recovery:?}");
        assert_eq!(statistics.marks_answered, 1, "{recovery:?}");
        assert_eq!(pipe.ends[0].window().ssthresh, reduced, "{recovery:?}");
        assert_eq!(signalled(&pipe), (1, false), "{recovery:?}");
    }
}

/// Until the reduction is signalled to the peer, it echoes the mark for which the window was reduced;
/// the signal goes out only with new data, which may have to wait for all repeats.
#[test]
fn an_echo_is_ignored_until_new_data_has_carried_cwr() {
    let mut pipe = pair(stack(Recovery::Tahoe));
    let mut count = 0;
    pipe.drops = Box::new(move |end, _, segment| {
        count += u64::from(end == 0 && segment.length > 0);
        end == 0 && segment.length > 0 && (count == 1 || count == 5)
    });
    send(&mut pipe, 9, false);
    send(&mut pipe, 1, true);
    send(&mut pipe, 10, false);
    pipe.ends[0].write(1 << 24);
    pipe.run(at(250));
    let statistics = statistics(&pipe);
    assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0));
    assert_eq!(statistics.marks_answered, 0);
    assert_eq!(pipe.ends[0].window().ssthresh, 10 * SEGMENT);
    assert_eq!(signalled(&pipe), (1, false));
}

#[test]
fn an_echo_is_ignored_by_a_sender_without_data_to_carry_cwr() {
    for recovery in STACKS {
        let mut pipe = pair(stack(recovery));
        send(&mut pipe, 10, true);
        pipe.run(at(200));
        let window = pipe.ends[0].window();
        pipe.ends[1].write(100 * SEGMENT);
        pipe.run(at(1_000));
        assert_eq!(pipe.ends[0].delivered(), 100 * SEGMENT);
        assert_eq!(statistics(&pipe).marks_answered, 1, "{recovery:?}");
        assert_eq!(pipe.ends[0].window(), window, "{recovery:?}");
        send(&mut pipe, 1, false);
        pipe.run(at(1_100));
        assert_eq!(signalled(&pipe), (1, false), "{recovery:?}");
    }
}

/// A window of the least size, all of whose segments are marked: each mark after the one whose
/// reduction was signalled is news.
#[test]
fn marks_of_every_window_are_answered_every_round_trip() {
    for recovery in STACKS {
        let config = Config { algorithm: Algorithm::Reno, ..stack(recovery) };
        let mut pipe = pair(config);
        pipe.faults.marking = 1;
        pipe.ends[0].write(1 << 24);
        pipe.run(at(500));
        let before = statistics(&pipe).marks_answered;
        pipe.run(at(900));
        let answered = statistics(&pipe).marks_answered - before;
        // Proportional reductions end a round trip later.
        let round_trips = if recovery == Recovery::Rack { 12..=14 } else { 20..=20 };
        assert!(round_trips.contains(&answered), "{recovery:?}: {answered} in 20 round trips");
    }
}

/// The mark has cut the window already; what is sent for each segment delivered is in proportion to
/// what was under way before.
#[test]
fn a_loss_does_not_suspend_the_reduction_for_a_mark() {
    for (recovery, prr) in [(Recovery::Sack, false), (Recovery::Sack, true), (Recovery::Rack, true)]
    {
        let config = Config { prr, algorithm: Algorithm::Reno, ..stack(recovery) };
        let mut pipe = pair(config);
        let mut count = 0;
        pipe.drops = Box::new(move |end, _, segment| {
            count += u64::from(end == 0 && segment.length > 0);
            end == 0 && segment.length > 0 && count == 3
        });
        pipe.faults.spacing = Span::from_nanos(50_000);
        send(&mut pipe, 20, true);
        pipe.ends[0].write(1 << 24);
        // Before the acknowledgement of the repeat.
        pipe.run(at(140));
        let statistics = statistics(&pipe);
        assert_eq!((statistics.fast_recoveries, statistics.marks_answered), (1, 1), "{recovery:?}");
        let left = pipe.ends[0].in_flight() / SEGMENT;
        assert_eq!(left, 10, "{recovery:?}, proportional reduction {prr}");
    }
}

/// BBR handles marks and losses itself, and gets a report of each.
#[test]
fn a_controller_that_owns_recovery_gets_a_loss_after_a_mark() {
    for recovery in [Recovery::Sack, Recovery::Rack] {
        let mut pipe = pair(Config { algorithm: Algorithm::Bbr, ..stack(recovery) });
        let mut count = 0;
        pipe.drops = Box::new(move |end, _, segment| {
            count += u64::from(end == 0 && segment.length > 0);
            end == 0 && segment.length > 0 && count == 12
        });
        send(&mut pipe, 20, true);
        pipe.ends[0].write(1 << 24);
        pipe.run(at(400));
        let statistics = statistics(&pipe);
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0), "{recovery:?}");
        assert_eq!(statistics.marks_answered, 1, "{recovery:?}");
        assert_eq!(signalled(&pipe), (2, false), "{recovery:?}");
    }
}

#[test]
fn a_timeout_is_signalled_with_ecn_only() {
    for recovery in STACKS {
        for ecn in [true, false] {
            let mut pipe = pair(Config { ecn, ..stack(recovery) });
            let mut count = 0;
            pipe.drops = Box::new(move |end, _, segment| {
                count += u64::from(end == 0 && segment.length > 0);
                // With the probe of the tail.
                end == 0 && segment.length > 0 && count <= 21
            });
            send(&mut pipe, 20, false);
            pipe.ends[0].write(1 << 24);
            pipe.run(at(6_000));
            assert!(statistics(&pipe).timeouts > 0, "{recovery:?}");
            assert_eq!(signalled(&pipe), (usize::from(ecn), false), "{recovery:?}");
        }
    }
}

/// The window is what it was before an episode that proved needless, and so are its marks.
#[test]
fn an_undone_reduction_is_not_signalled() {
    let mut pipe = pair(stack(Recovery::Sack));
    send(&mut pipe, 5, false);
    pipe.ends[0].write(20_000);
    pipe.run(at(500));
    pipe.delay = MS * 1_500;
    send(&mut pipe, 1, false);
    pipe.run(at(1_990));
    pipe.delay = MS * 10;
    pipe.run(at(5_000));
    send(&mut pipe, 10, false);
    pipe.run(at(6_000));
    let statistics = statistics(&pipe);
    assert_eq!((statistics.timeouts, statistics.undone), (1, 1));
    assert_eq!(signalled(&pipe), (0, false));
}

/// A loss has reduced the window, and its repeat was merely late: the timeout is undone, but the
/// reduction for the loss has yet to be signalled to the peer, whose mark belongs to the same
/// window.
#[test]
fn undoing_a_timeout_leaves_an_earlier_reduction_to_be_signalled() {
    let mut pipe = pair(stack(Recovery::Sack));
    let mut count = 0;
    pipe.drops = Box::new(move |end, _, segment| {
        count += u64::from(end == 0 && segment.length > 0);
        end == 0 && segment.length > 0 && count == 1
    });
    send(&mut pipe, 9, false);
    send(&mut pipe, 1, true);
    send(&mut pipe, 10, false);
    // The fast retransmission takes longer than the timeout, whose own repeat comes after it.
    pipe.run(at(119));
    pipe.delay = MS * 1_300;
    pipe.run(at(1_400));
    pipe.delay = MS * 10;
    assert_eq!((statistics(&pipe).fast_recoveries, statistics(&pipe).timeouts), (1, 1));
    pipe.run(at(1_500));
    assert_eq!(statistics(&pipe).undone, 1);
    let window = pipe.ends[0].window();
    send(&mut pipe, 5, false);
    pipe.run(at(1_600));
    assert_eq!(statistics(&pipe).marks_answered, 0);
    assert_eq!(pipe.ends[0].window(), window);
    assert_eq!(signalled(&pipe), (1, false));
}

/// The report that an earlier repeat was needless arrives when a mark has been answered: there was congestion.
#[test]
fn a_reduction_is_not_undone_after_a_later_mark() {
    let mut pipe = pair(Config { timestamps: false, ..stack(Recovery::Sack) });
    // The others overtake the first, and the answer to its repeat comes after that to a mark.
    pipe.delay = MS * 40;
    send(&mut pipe, 1, false);
    pipe.delay = MS * 10;
    send(&mut pipe, 9, false);
    pipe.run(at(119));
    pipe.delay = MS * 46;
    pipe.run(at(125));
    pipe.delay = MS * 10;
    pipe.run(at(155));
    assert_eq!((statistics(&pipe).fast_recoveries, pipe.ends[0].is_recovering()), (1, false));
    pipe.faults.spacing = MS * 2;
    send(&mut pipe, 10, true);
    let reduced = pipe.ends[0].window().ssthresh;
    assert!(reduced < u64::MAX);
    pipe.run(at(400));
    assert_eq!((statistics(&pipe).marks_answered, statistics(&pipe).undone), (1, 0));
    assert!(pipe.ends[0].window().ssthresh <= reduced);
}
