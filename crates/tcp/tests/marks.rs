//! What congestion marks cost: one reduction for a window of marks and losses, of which the peer is
//! told (RFC 3168, 6.1.2).

mod pipe;

use nilometer_tcp::segment::{CWR, ECE};
use nilometer_tcp::{Config, Connection, Recovery, Statistics};
use nilometer_wire::{Span, Time};
use pipe::{MS, Pipe};

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

/// Writes so many segments, which leave at once and with marks if they are `marked`.
fn send(pipe: &mut Pipe, segments: u64, marked: bool) {
    pipe.faults.marking = u64::from(marked);
    pipe.ends[0].write(segments * SEGMENT);
    pipe.flush();
    pipe.faults.marking = 0;
}

fn statistics(pipe: &Pipe) -> Statistics {
    *pipe.ends[0].statistics()
}

/// How often the sender told of a reduction, and whether the receiver still echoes marks.
fn told(pipe: &Pipe) -> (usize, bool) {
    let tells = pipe.log.iter().filter(|(_, end, segment)| *end == 0 && segment.has(CWR));
    let last = pipe.log.iter().rfind(|(_, end, _)| *end == 1).expect("an acknowledgement").2;
    (tells.count(), last.has(ECE))
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
        assert_eq!(told(&pipe), (1, false), "{recovery:?}");
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
            pipe.step(at(200));
        }
        let reduced = pipe.ends[0].window().ssthresh;
        pipe.run(at(400));
        let statistics = statistics(&pipe);
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0), "{recovery:?}");
        assert_eq!(statistics.marks_answered, 1, "{recovery:?}");
        assert_eq!(pipe.ends[0].window().ssthresh, reduced, "{recovery:?}");
        assert_eq!(told(&pipe), (1, false), "{recovery:?}");
    }
}

#[test]
fn a_timeout_is_told_and_nothing_is_told_without_ecn() {
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
            assert_eq!(told(&pipe), (usize::from(ecn), false), "{recovery:?}");
        }
    }
}

/// The window is what it was before an episode that proved needless, and so are its marks.
#[test]
fn what_is_taken_back_is_not_told() {
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
    assert_eq!(told(&pipe), (0, false));
}
