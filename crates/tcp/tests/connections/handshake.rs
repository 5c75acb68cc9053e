//! Connections begin and end in every order of events that RFC 9293 draws, and in some others.

use crate::pipe::{MS, Pipe};
use nilometer_tcp::segment::{ACK, ECE, FIN, RST, SYN};
use nilometer_tcp::{Config, Connection, Recovery, Segment, State};
use nilometer_wire::{Ecn, Span, Time};

fn at(milliseconds: u64) -> Time {
    Time::ZERO + MS * milliseconds
}

fn states(pipe: &Pipe) -> [State; 2] {
    [pipe.ends[0].state(), pipe.ends[1].state()]
}

fn pair(left: Config, right: Config) -> Pipe {
    let right = Connection::listen(right, 0xffff_fff0);
    let mut pipe = Pipe::new(Connection::connect(left, 77), right, 1);
    pipe.keeps_log = true;
    pipe
}

fn established(config: Config) -> Pipe {
    let mut pipe = pair(config, config);
    pipe.run(at(100));
    pipe.now = at(100);
    assert_eq!(states(&pipe), [State::Established; 2]);
    pipe
}

#[test]
fn three_segments_open_a_connection() {
    let pipe = established(Config::rfc());
    let flags: Vec<u8> = pipe.log.iter().map(|(_, _, segment)| segment.flags).collect();
    assert_eq!(flags, [SYN, SYN | ACK, ACK]);
    assert_eq!(pipe.log[2].0, at(20));
    assert_eq!(pipe.ends[0].smoothed_rtt(), Some(MS * 20));
}

#[test]
fn both_may_open_at_once() {
    let left = Connection::connect(Config::rfc(), 1);
    let mut pipe = Pipe::new(left, Connection::connect(Config::rfc(), 2), 1);
    pipe.ends[0].write(5_000);
    pipe.run(at(1_000));
    assert_eq!(states(&pipe), [State::Established; 2]);
    assert_eq!(pipe.ends[1].delivered(), 5_000);
    assert_eq!(pipe.ends[0].statistics().timeouts, 0);
}

/// The peer's SYN and its answer to ours arrive before our answer is polled: it is no longer owed.
#[test]
fn a_superseded_syn_ack_is_not_sent() {
    let mut opener = Connection::connect(Config::rfc(), 50);
    opener.poll_transmit(Time::ZERO).expect("a SYN");
    let mut segment = Segment::default();
    (segment.flags, segment.sequence) = (SYN, 70);
    opener.receive(at(10), &segment, Ecn::NotCapable);
    assert_eq!(opener.state(), State::SynReceived);
    (segment.flags, segment.acknowledgement) = (SYN | ACK, 51);
    opener.receive(at(10), &segment, Ecn::NotCapable);
    assert_eq!(opener.state(), State::Established);
    let answer = opener.poll_transmit(at(10)).expect("an acknowledgement").segment;
    assert_eq!((answer.flags, answer.sequence, answer.acknowledgement), (ACK, 51, 71));
    assert!(opener.poll_transmit(at(10)).is_none());
}

#[test]
fn the_handshake_completes_after_the_loss_of_any_segment() {
    for (end, number) in [(0, 1), (1, 1), (0, 2)] {
        let mut pipe = pair(Config::rfc(), Config::rfc());
        pipe.drops = Box::new(move |from, count, _| from == end && count == number);
        pipe.ends[0].write(1);
        pipe.run(at(5_000));
        assert_eq!(states(&pipe), [State::Established; 2], "lost {number} of {end}");
        assert_eq!(pipe.ends[1].delivered(), 1);
    }
}

#[test]
fn a_lost_syn_costs_the_initial_window() {
    let mut pipe = pair(Config::rfc(), Config::rfc());
    pipe.drops = Box::new(move |from, count, _| from == 0 && count == 1);
    pipe.run(at(1_010));
    assert_eq!(pipe.ends[0].state(), State::SynSent);
    pipe.run(at(1_025));
    let window = pipe.ends[0].window();
    assert_eq!(window.cwnd, u64::from(window.mss));
}

#[test]
fn an_unanswered_opener_gives_up() {
    let mut pipe = pair(Config::rfc(), Config::rfc());
    pipe.drops = Box::new(|_, _, _| true);
    pipe.run(Time::ZERO + Span::from_secs(1_000));
    assert_eq!(states(&pipe), [State::Closed, State::Listen]);
    // 1 + 2 + 4 + 8 + 16 + 32 + 60 seconds
    assert_eq!(pipe.now, Time::ZERO + Span::from_secs(123));
    let syns = 1 + u64::from(Config::rfc().syn_retries);
    assert_eq!(pipe.ends[0].statistics().segments_sent, syns);
}

#[test]
fn a_closed_port_refuses() {
    let mut pipe = pair(Config::rfc(), Config::rfc());
    pipe.ends[1].close();
    pipe.run(at(1_000));
    assert_eq!(states(&pipe), [State::Closed; 2]);
    assert_eq!(pipe.log[1].2.flags, RST | ACK);
    assert_eq!(pipe.now, at(20));
}

#[test]
fn options_hold_only_if_both_want_them() {
    let plain = Config::ns2_reno();
    let full = Config { ecn: true, ..Config::rfc() };
    for (left, right) in [(plain, full), (full, plain), (full, full)] {
        let mut pipe = pair(left, right);
        pipe.ends[0].write(1);
        pipe.run(at(1_000));
        let both = left == right;
        let answer = pipe.log[1].2;
        assert_eq!(answer.sack_permitted(), both);
        assert_eq!(answer.has_timestamps(), both);
        assert_eq!(answer.has(ECE), both);
        let bytes = if both { 1448 } else { 1460 };
        assert_eq!(pipe.ends[0].window().mss, bytes);
    }
    let narrow = Config { mss: 500, window_scale: None, ..plain };
    let mut pipe = pair(plain, narrow);
    pipe.run(at(100));
    assert_eq!(pipe.ends[0].window().mss, 500);
    assert_eq!(pipe.log[1].2.scale(), None, "a window is scaled by both or by none");
    assert_eq!(pipe.log[2].2.window, 65_535);
}

#[test]
fn closing_goes_through_the_states_in_either_order() {
    let mut pipe = established(Config::rfc());
    pipe.ends[0].close();
    pipe.run(at(115));
    assert_eq!(states(&pipe), [State::FinWait1, State::CloseWait]);
    pipe.run(at(150));
    assert_eq!(states(&pipe), [State::FinWait2, State::CloseWait]);
    pipe.ends[1].write(10_000); // a half-closed connection still carries data
    pipe.run(at(200));
    assert_eq!(pipe.ends[0].delivered(), 10_000);
    pipe.ends[1].close();
    let closed = pipe.now + MS * 10;
    pipe.run(closed);
    assert_eq!(states(&pipe), [State::TimeWait, State::LastAck]);
    pipe.run(at(300));
    assert_eq!(states(&pipe), [State::TimeWait, State::Closed]);
    pipe.run(Time::ZERO + Span::from_secs(100));
    assert_eq!(states(&pipe), [State::Closed; 2]);
    assert_eq!(pipe.now, closed + Config::rfc().time_wait);
}

#[test]
fn both_may_close_at_once() {
    let mut pipe = established(Config::rfc());
    pipe.ends.iter_mut().for_each(Connection::close);
    pipe.run(at(112));
    assert_eq!(states(&pipe), [State::Closing; 2]);
    pipe.run(at(200));
    assert_eq!(states(&pipe), [State::TimeWait; 2]);
}

#[test]
fn a_lost_last_acknowledgement_is_given_again_in_time_wait() {
    let mut pipe = established(Config::rfc());
    pipe.ends[0].close();
    pipe.run(at(200));
    pipe.ends[1].close();
    let mut lost = false;
    pipe.drops = Box::new(move |from, _, _| from == 0 && !core::mem::replace(&mut lost, true));
    pipe.run(at(5_000));
    assert_eq!(states(&pipe), [State::TimeWait, State::Closed]);
    assert_eq!(pipe.ends[1].statistics().timeouts, 1);
}

#[test]
fn an_abort_resets_the_other_end() {
    let mut pipe = established(Config::rfc());
    pipe.ends[0].write(100_000);
    pipe.run(at(115));
    pipe.ends[0].abort();
    pipe.run(at(1_000));
    assert_eq!(states(&pipe), [State::Closed; 2]);
    assert!(pipe.ends[0].poll_timeout().is_none() && pipe.ends[1].poll_timeout().is_none());
}

#[test]
fn a_reset_must_have_the_very_number_that_is_expected() {
    let mut pipe = established(Config::rfc());
    let now = pipe.now;
    let mut reset = Segment::default();
    reset.flags = RST;
    reset.sequence = 78 + 1_000; // in the window, not at its edge
    pipe.ends[1].receive(now, &reset, Ecn::NotCapable);
    assert_eq!(pipe.ends[1].state(), State::Established);
    let answer = pipe.ends[1].poll_transmit(now).expect("a challenge").segment;
    assert_eq!((answer.flags, answer.acknowledgement), (ACK, 78));
    reset.sequence = 78;
    pipe.ends[1].receive(now, &reset, Ecn::NotCapable);
    assert_eq!(pipe.ends[1].state(), State::Closed);
}

#[test]
fn a_syn_on_an_open_connection_is_challenged() {
    let mut pipe = established(Config::rfc());
    let mut syn = Segment::default();
    syn.flags = SYN;
    syn.sequence = 78 + 10;
    pipe.ends[1].receive(pipe.now, &syn, Ecn::NotCapable);
    assert_eq!(pipe.ends[1].state(), State::Established);
    assert_eq!(pipe.ends[1].poll_transmit(pipe.now).expect("a challenge").segment.flags, ACK);
}

#[test]
fn a_reset_returns_a_listener_to_listening() {
    let mut listener = Connection::listen(Config::rfc(), 9);
    let mut syn = Segment::default();
    syn.flags = SYN;
    syn.sequence = 100;
    listener.receive(Time::ZERO, &syn, Ecn::NotCapable);
    assert_eq!(listener.poll_transmit(Time::ZERO).expect("an answer").segment.flags, SYN | ACK);
    let mut reset = Segment::default();
    reset.flags = RST;
    reset.sequence = 101;
    listener.receive(Time::ZERO, &reset, Ecn::NotCapable);
    assert_eq!(listener.state(), State::Listen);
}

#[test]
fn an_acknowledgement_of_nothing_is_reset() {
    let mut opener = Connection::connect(Config::rfc(), 50);
    opener.poll_transmit(Time::ZERO).expect("a SYN");
    let mut stray = Segment::default();
    stray.flags = SYN | ACK;
    stray.acknowledgement = 40;
    opener.receive(Time::ZERO, &stray, Ecn::NotCapable);
    let answer = opener.poll_transmit(Time::ZERO).expect("a reset").segment;
    assert_eq!((answer.flags, answer.sequence), (RST, 40));
    assert_eq!(opener.state(), State::SynSent);
}

#[test]
fn close_before_anything_was_sent_and_with_data_waiting() {
    let mut pipe = pair(Config::rfc(), Config::rfc());
    pipe.ends[0].close();
    assert_eq!(pipe.ends[0].state(), State::Closed);
    let mut pipe = established(Config { recovery: Recovery::NewReno, ..Config::rfc() });
    pipe.ends[0].write(200_000);
    pipe.ends[0].close();
    pipe.run(at(3_000));
    assert_eq!(pipe.ends[1].delivered(), 200_000);
    assert_eq!(states(&pipe), [State::FinWait2, State::CloseWait]);
    let fins = pipe.log.iter().filter(|(_, _, segment)| segment.has(FIN)).count();
    assert_eq!(fins, 1);
}

/// The answer may be to either of two SYN-ACKs: it measures nothing (RFC 6298, section 3), and a
/// SYN-ACK that was lost leaves one segment (RFC 5681, 3.1).
#[test]
fn a_repeated_syn_spoils_the_measurement_and_costs_the_initial_window() {
    for timestamps in [true, false] {
        let eager = Config { rto_initial: MS * 500, timestamps, ..Config::rfc() };
        let mut pipe = pair(eager, Config { timestamps, ..Config::rfc() });
        pipe.drops = Box::new(|from, count, _| from == 1 && count == 1);
        pipe.run(at(600));
        assert_eq!(states(&pipe), [State::Established; 2]);
        // At 500 ms the SYN leaves again, at 530 ms its answer's answer arrives.
        let measured = timestamps.then_some(MS * 20);
        assert_eq!(pipe.ends[1].smoothed_rtt(), measured, "timestamps {timestamps}");
        let window = pipe.ends[1].window();
        assert_eq!(window.cwnd, u64::from(window.mss), "timestamps {timestamps}");
    }
}

#[test]
fn a_fin_that_overtakes_the_last_data_counts_when_that_comes() {
    let mut pipe = established(Config { nagle: false, ..Config::rfc() });
    pipe.delay = MS * 30;
    pipe.ends[0].write(100);
    pipe.flush();
    pipe.delay = MS * 10;
    pipe.ends[0].close();
    pipe.flush();
    pipe.run(at(131));
    assert_eq!(pipe.ends[1].delivered(), 100);
    assert_eq!(pipe.ends[1].state(), State::CloseWait);
    pipe.run(at(2_000));
    assert_eq!(states(&pipe), [State::FinWait2, State::CloseWait]);
    assert_eq!(pipe.ends[0].statistics().retransmitted_segments, 0);
}

/// Timestamps tick once in a millisecond: after 30 days of silence half of all numbers are gone,
/// and the next one looks older than the last.
#[test]
fn a_timestamp_after_a_month_of_silence_is_not_taken_for_an_old_one() {
    let mut pipe = established(Config::rfc());
    let later = at(100) + Span::from_secs(30 * 86_400);
    pipe.now = later;
    pipe.ends[0].write(5_000);
    pipe.run(later + MS * 1_000);
    assert_eq!(pipe.ends[1].delivered(), 5_000);
    let statistics = pipe.ends[1].statistics();
    assert_eq!((statistics.refused_segments, statistics.duplicate_bytes), (0, 0));
    // What is really old is still refused.
    let mut old = pipe.log.iter().rfind(|(_, end, s)| *end == 0 && s.length > 0).unwrap().2;
    old.set_timestamps(old.timestamps[0].wrapping_sub(1), old.timestamps[1]);
    let now = pipe.now;
    pipe.ends[1].receive(now, &old, Ecn::NotCapable);
    assert_eq!(pipe.ends[1].statistics().refused_segments, 1);
}
