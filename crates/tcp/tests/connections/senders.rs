//! What a sender holds back and what it transmits: windows, small segments, pauses, marks, pacing.

use crate::pipe::{Faults, MS, Pipe};
use nilometer_tcp::segment::{ACK, CWR, ECE};
use nilometer_tcp::{Algorithm, Config, Connection, IdleRestart, Recovery, Segment, State};
use nilometer_wire::{Ecn, Span, Time};

fn at(milliseconds: u64) -> Time {
    Time::ZERO + MS * milliseconds
}

/// Established, at 100 ms.
fn pair(left: Config, right: Config) -> Pipe {
    let mut pipe = Pipe::new(Connection::connect(left, 7), Connection::listen(right, 70_000), 1);
    pipe.run(at(100));
    pipe.now = at(100);
    pipe.keeps_log = true;
    pipe
}

fn plain() -> Config {
    Config { delayed_ack: None, nagle: false, ..Config::rfc() }
}

/// Payload lengths that the left end sent, with the milliseconds at which it did.
fn sent(pipe: &Pipe) -> Vec<(u64, u16)> {
    let ours = pipe.log.iter().filter(|(_, end, segment)| *end == 0 && segment.length > 0);
    ours.map(|(time, _, segment)| ((time.0 - at(100).0) / MS.0, segment.length)).collect()
}

#[test]
fn the_initial_window_leaves_at_once_and_no_more() {
    let mut pipe = pair(plain(), plain());
    pipe.ends[0].write(1 << 30);
    pipe.flush();
    assert_eq!(sent(&pipe), [(0, 1448); 10]);
    assert_eq!(pipe.ends[0].in_flight(), 14_480);
}

#[test]
fn nagle_holds_small_segments_while_something_is_under_way() {
    for nagle in [true, false] {
        let mut pipe = pair(Config { nagle, ..plain() }, plain());
        for _ in 0..3 {
            pipe.ends[0].write(100);
            pipe.flush();
        }
        pipe.run(at(500));
        let expected: &[(u64, u16)] =
            if nagle { &[(0, 100), (20, 200)] } else { &[(0, 100), (0, 100), (0, 100)] };
        assert_eq!(sent(&pipe), expected);
    }
}

#[test]
fn acknowledgements_are_delayed_for_the_second_segment_or_the_timer() {
    let delayed = Config { delayed_ack: Some(MS * 200), ..plain() };
    let mut pipe = pair(plain(), delayed);
    pipe.ends[0].write(1448 * 3);
    pipe.run(at(1_000));
    let acks: Vec<_> = pipe.log.iter().filter(|(_, end, _)| *end == 1).collect();
    assert_eq!(acks.iter().map(|(time, ..)| *time).collect::<Vec<_>>(), [at(110), at(310)]);
    let first = acks[0].2.acknowledgement;
    assert_eq!(acks[1].2.acknowledgement.wrapping_sub(first), 1448);
}

/// Linux: the first 16 segments are acknowledged at once, unless this end answers sooner than a delayed
/// acknowledgement would be due; from then on its answers carry them.
#[test]
fn an_end_that_answers_soon_acknowledges_by_its_answers() {
    let server = Config { delayed_ack: Some(MS * 40), quick_acks: 16, ..plain() };
    for (answers_after_ms, bare) in [(2, 1), (60, 4)] {
        let mut pipe = pair(plain(), server);
        for exchange in 0..4 {
            // (Where nothing is to happen, the pipe's clock stands still.)
            let asks = at(500 + 500 * exchange);
            pipe.run(asks);
            pipe.now = asks;
            pipe.ends[0].write(100);
            let answers = asks + MS * (10 + answers_after_ms);
            pipe.run(answers);
            pipe.now = answers;
            pipe.ends[1].write(200);
        }
        pipe.run(at(5_000));
        let by_server = pipe.log.iter().filter(|(time, end, _)| *end == 1 && *time >= at(500));
        let lengths: Vec<u16> = by_server.map(|(.., segment)| segment.length).collect();
        let acks = lengths.iter().filter(|length| **length == 0).count();
        assert_eq!((acks, lengths.len()), (bare, bare + 4), "answers after {answers_after_ms} ms");
        assert_eq!(pipe.ends[0].delivered(), 800);
    }
}

#[test]
fn disorder_is_acknowledged_at_once_and_reported_newest_block_first() {
    let delayed = Config { delayed_ack: Some(MS * 200), ..plain() };
    let mut pipe = pair(Config { initial_window: 8, ..plain() }, delayed);
    pipe.drops = Box::new(|end, count, _| end == 0 && (count == 3 || count == 5 || count == 6));
    pipe.ends[0].write(1448 * 8);
    pipe.run(at(119));
    let first = 8;
    let edges = |block: [u32; 2]| block.map(|edge| (edge - first) / 1448);
    let acks = pipe.log.iter().filter(|(_, end, _)| *end == 1);
    let signalled: Vec<_> = acks
        .map(|(_, _, segment)| {
            let blocks: Vec<[u32; 2]> = segment.blocks().map(edges).collect();
            ((segment.acknowledgement - first) / 1448, blocks)
        })
        .collect();
    // Segments 0, 2, 5, 6 and 7 arrive; the third to leave is segment 1, after SYN's ACK.
    let expected = [
        (0, vec![[1, 2]]),
        (0, vec![[4, 5], [1, 2]]),
        (0, vec![[4, 6], [1, 2]]),
        (0, vec![[4, 7], [1, 2]]),
        (0, vec![[4, 8], [1, 2]]),
    ];
    assert_eq!(signalled, expected);
}

#[test]
fn a_closed_window_is_probed_and_opens_by_worthwhile_steps() {
    let small = Config { receive_buffer: 10_000, auto_read: false, window_scale: None, ..plain() };
    let mut pipe = pair(plain(), small);
    pipe.ends[0].write(30_000);
    pipe.run(at(10_000));
    assert_eq!(pipe.ends[1].readable(), 10_000, "the buffer is filled to the last byte");
    let probes = pipe.log.iter().filter(|(time, end, _)| *end == 0 && *time > at(500)).count();
    assert!((3..=6).contains(&probes), "{probes} probes");
    pipe.log.clear();
    // A byte at a time opens nothing until half of the buffer or a segment is free.
    for _ in 0..1447 {
        assert_eq!(pipe.ends[1].read(1), 1);
        pipe.flush();
    }
    assert!(pipe.log.iter().all(|(_, end, segment)| *end == 0 || segment.window == 0));
    assert_eq!(pipe.ends[1].read(1), 1);
    pipe.flush();
    assert_eq!(pipe.log.last().expect("an update").2.window, 1448);
    let mut read = 1448;
    while pipe.step(at(100_000)) {
        read += pipe.ends[1].read(u64::MAX);
    }
    assert_eq!((read, pipe.ends[1].delivered()), (30_000, 30_000));
    assert_eq!(pipe.ends[0].acknowledged(), 30_000);
    assert!(sent(&pipe).iter().all(|(_, length)| *length >= 1_000), "{:?}", sent(&pipe));
}

#[test]
fn a_lost_window_update_is_made_good_by_the_probe() {
    let small = Config { receive_buffer: 10_000, auto_read: false, window_scale: None, ..plain() };
    let mut pipe = pair(plain(), small);
    pipe.ends[0].write(15_000);
    pipe.run(at(500));
    let mut lost = false;
    pipe.drops = Box::new(move |end, _, _| end == 1 && !core::mem::replace(&mut lost, true));
    pipe.ends[1].read(u64::MAX);
    pipe.run(at(20_000));
    assert_eq!(pipe.ends[1].delivered(), 15_000);
}

#[test]
fn a_mark_halves_the_window_once_per_round_trip_and_cwr_is_sent() {
    let config = Config { ecn: true, algorithm: Algorithm::Reno, ..plain() };
    let mut pipe = pair(config, config);
    pipe.ends[0].write(1 << 24);
    pipe.run(at(138));
    pipe.faults = Faults { marking: 1, ..Faults::default() };
    pipe.run(at(141));
    pipe.faults = Faults::default();
    pipe.run(at(159));
    let before = pipe.ends[0].window().cwnd;
    pipe.run(at(179));
    let statistics = *pipe.ends[0].statistics();
    assert_eq!((statistics.marks_answered, statistics.retransmitted_segments), (1, 0));
    let after = pipe.ends[0].window().cwnd;
    assert!(after <= before && after >= before / 2, "{before} to {after}");
    let echoes = pipe.log.iter().filter(|(_, end, s)| *end == 1 && s.has(ACK | ECE)).count();
    assert!(echoes > 1);
    let signalled = pipe.log.iter().filter(|(_, end, s)| *end == 0 && s.has(CWR)).count();
    assert_eq!(signalled, 1);
    let last = pipe.log.iter().rfind(|(_, end, _)| *end == 1).expect("an acknowledgement").2;
    assert!(!last.has(ECE), "the echo ends with the peer's answer");
}

#[test]
fn the_window_after_a_pause_is_as_configured() {
    for (idle_restart, expected) in
        [(IdleRestart::Never, 4), (IdleRestart::Decay, 2), (IdleRestart::Initial, 1)]
    {
        let config = Config { idle_restart, algorithm: Algorithm::Reno, ..plain() };
        let mut pipe = pair(config, plain());
        pipe.ends[0].write(1448 * 200);
        pipe.run(at(2_000));
        let full = pipe.ends[0].window().cwnd;
        assert!(full > 1448 * 80);
        pipe.now = at(200) + pipe.ends[0].rto();
        pipe.log.clear();
        pipe.ends[0].write(1448 * 1_000);
        pipe.flush();
        let count = pipe.log.len() as u64 * 1448;
        let window = match expected {
            4 => full,
            2 => full / 2,
            _ => 14_480,
        };
        assert!(count <= window && count + 1448 > window, "{idle_restart:?}: {count} of {full}");
    }
}

#[test]
fn limited_transmit_answers_the_first_two_duplicates() {
    for (limited_transmit, expected) in [(true, 2), (false, 0)] {
        let recovery = Recovery::NewReno;
        // Without scaling no acknowledgement changes the window, so that each counts.
        let config = Config { limited_transmit, recovery, initial_window: 3, ..plain() };
        let peer = Config { window_scale: None, receive_buffer: 60_000, ..plain() };
        let mut pipe = pair(config, peer);
        pipe.drops = Box::new(|end, count, _| end == 0 && count == 3);
        pipe.ends[0].write(1448 * 100);
        pipe.run(at(139));
        assert_eq!(sent(&pipe).len(), 3 + expected);
        pipe.run(at(200));
        // With them there are four duplicates, without only two: too few to do without the timer.
        assert_eq!(pipe.ends[0].statistics().fast_recoveries, u64::from(limited_transmit));
    }
}

/// RFC 6298's averages are meant for a sample per window: the round-trip times that HyStart++ gets
/// from each acknowledgement do not go into them.
#[test]
fn round_trip_times_for_hystart_leave_the_timeout_alone() {
    let [without, with, each] = [(false, false), (true, false), (true, true)].map(|settings| {
        let (hystart, rtt_each_ack) = settings;
        let algorithm = Algorithm::Cubic;
        let config = Config { hystart, rtt_each_ack, algorithm, timestamps: false, ..plain() };
        let mut pipe = pair(config, plain());
        pipe.faults.spacing = Span::from_nanos(100_000);
        pipe.ends[0].write(1448 * 60);
        pipe.run(at(300));
        pipe.ends[0].smoothed_rtt()
    });
    assert_eq!(with, without);
    assert_ne!(each, without);
}

#[test]
fn a_paced_sender_spreads_its_segments() {
    let config = Config { algorithm: Algorithm::Bbr, ..plain() };
    let mut pipe = pair(config, plain());
    pipe.faults.spacing = Span::from_nanos(100_000);
    pipe.ends[0].write(1448 * 2_000);
    pipe.run(at(3_000));
    assert_eq!(pipe.ends[1].delivered(), 1448 * 2_000);
    let times: Vec<u64> = pipe.log.iter().filter(|(_, end, _)| *end == 0).map(|e| e.0.0).collect();
    let late = &times[times.len() / 2..];
    let together = late.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(together * 10 < late.len(), "{together} of {} left together", late.len());
}

#[test]
fn a_window_that_stays_closed_is_no_reason_to_give_up() {
    let small = Config { receive_buffer: 10_000, auto_read: false, window_scale: None, ..plain() };
    let left = Config { retries: 3, rto_max: Span::from_secs(2), ..plain() };
    let mut pipe = pair(left, small);
    pipe.ends[0].write(30_000);
    pipe.run(at(60_000));
    let probes = pipe.log.iter().filter(|(time, end, _)| *end == 0 && *time > at(500)).count();
    assert!((28..=34).contains(&probes), "{probes} probes, soon two seconds apart");
    assert_eq!(pipe.ends[0].state(), State::Established);
    // A peer that does not answer at all is gone.
    pipe.drops = Box::new(|end, _, _| end == 1);
    pipe.run(at(80_000));
    assert_eq!(pipe.ends[0].state(), State::Closed);
}

/// Nor is a window that closes over data under way; it was one reduction, however often that data is sent.
#[test]
fn a_withdrawn_window_is_no_reason_to_give_up_while_the_peer_answers() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        let rto_max = Span::from_secs(2);
        let config = Config { retries: 3, rto_max, timestamps: false, recovery, ..plain() };
        let mut pipe = pair(config, Config { timestamps: false, ..plain() });
        pipe.drops = Box::new(|end, _, _| end == 0);
        pipe.ends[0].write(1460 * 10);
        let mut closed = Segment::default();
        (closed.sequence, closed.acknowledgement, closed.flags) = (70_001, 8, ACK);
        for answers in 1..20 {
            while pipe.ends[0].statistics().timeouts < answers {
                assert!(pipe.step(at(60_000)), "{recovery:?}: given up after {answers} timeouts");
            }
            let now = pipe.now;
            pipe.ends[0].receive(now, &closed, Ecn::NotCapable);
            assert_eq!(pipe.ends[0].window().ssthresh, 1460 * 5, "{recovery:?}: {answers}");
        }
        assert_eq!(pipe.ends[0].state(), State::Established, "{recovery:?}");
        pipe.run(at(80_000));
        assert_eq!(pipe.ends[0].state(), State::Closed, "{recovery:?}: nobody answers");
    }
}

/// The peer's window has no room for what limited transmit would release: no data under way is due
/// to limited transmit, and half of all of it is left.
#[test]
fn limited_transmit_that_sent_nothing_does_not_reduce_the_flight() {
    let config = Config { recovery: Recovery::NewReno, algorithm: Algorithm::Reno, ..plain() };
    let peer = Config { window_scale: None, receive_buffer: 1448 * 8, ..plain() };
    let mut pipe = pair(config, peer);
    pipe.drops = Box::new(|end, count, _| end == 0 && count == 3);
    pipe.ends[0].write(1448 * 8);
    pipe.run(at(121));
    assert_eq!(pipe.ends[0].statistics().fast_recoveries, 1);
    assert_eq!(pipe.ends[0].window().ssthresh, 1448 * 4);
}

/// Reno's first recovery has sent as much as it could and ended with twice the window under way, so
/// that limited transmit has no room, either: the second recovery halves all of it.
#[test]
fn limited_transmit_does_not_count_segments_of_an_earlier_recovery() {
    let recovery = Recovery::Reno;
    let config = Config { recovery, initial_window: 20, timestamps: false, ..plain() };
    let peer = Config { window_scale: None, receive_buffer: 65_000, ..plain() };
    let mut pipe = pair(config, peer);
    let mut count = 0;
    pipe.drops = Box::new(move |end, _, segment| {
        count += u64::from(end == 0 && segment.length > 0);
        end == 0 && segment.length > 0 && (count == 1 || count == 10)
    });
    pipe.ends[0].write(1 << 24);
    let mut under_way = 0;
    while pipe.ends[0].statistics().fast_recoveries < 2 {
        under_way = pipe.ends[0].in_flight();
        assert!(pipe.step(at(400)));
    }
    assert!(under_way > 1460 * 20, "{under_way}");
    assert_eq!(pipe.ends[0].window().ssthresh, under_way / 2);
}
