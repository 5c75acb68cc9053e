//! Stamps on a veth between two namespaces: each frame once, in order, its bytes unharmed.

mod live;

use super::sender::Sender;
use super::*;
use crate::testbed::{CLIENT_INTERFACE, DeviceKind, SERVER_INTERFACE, Testbed, TestbedConfig};

const RUN: u32 = 0xf1e2_d3c4;
const WATCHED: Watched = Watched { run: RUN, source: (Ipv4Addr::new(198, 18, 0, 0), 16) };

/// Prints in a line why this machine cannot run the test.
fn skipped(what: &str) -> bool {
    let privileged = rustix::process::geteuid().is_root();
    if !privileged {
        println!("skipped: {what} takes root");
    }
    !privileged
}

/// A test frame by its number, of `bytes` bytes.
fn frame(number: u64, bytes: usize, run: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..bytes).map(|at| (at as u64 + number) as u8).collect();
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame[26..30].copy_from_slice(&[198, 18, 3, 4]);
    frame[30..34].copy_from_slice(&[198, 19, 3, 4]);
    frame[RUN_AT..RUN_AT + 4].copy_from_slice(&run.to_be_bytes());
    frame[PLACE_AT..PLACE_AT + 8].copy_from_slice(&(7 << 56 | number).to_be_bytes());
    frame
}

/// What was read of both rings.
type Seen = (Vec<(u64, u64)>, Vec<(u64, Vec<u8>)>);

struct Bench {
    testbed: Testbed,
    departures: Departures,
    arrivals: Arrivals,
}

fn bench(stamping: Stamping, slots: usize) -> Bench {
    let config = TestbedConfig { device: DeviceKind::Wire, ..TestbedConfig::default() };
    let testbed = Testbed::build(&config).expect("a wire");
    let departures = testbed
        .client()
        .enter(|| Departures::open(CLIENT_INTERFACE, RUN, slots, stamping))
        .expect("stamps of departures");
    let arrivals = testbed
        .server()
        .enter(|| Arrivals::open(SERVER_INTERFACE, WATCHED, (slots, 1_514), stamping))
        .expect("stamps of arrivals");
    testbed.raise().expect("links that are up");
    Bench { testbed, departures, arrivals }
}

/// Sends all frames, `batch` in a call, and reads the rings after every call, until all have arrived and `departing`
/// departures are known.
fn pass(bench: &mut Bench, all: &[Vec<u8>], departing: usize, batch: usize) -> Seen {
    let mut seen = Seen::default();
    let Bench { testbed, departures, arrivals } = bench;
    let mut read = |seen: &mut Seen| {
        departures.drain(|number, ns| seen.0.push((number, ns))).expect("departures");
        let each = |one: Arrival<'_>| seen.1.push((one.stamp_ns, one.frame.to_vec()));
        arrivals.drain(each).expect("arrivals");
    };
    testbed
        .client()
        .enter(|| {
            let mut sender = Sender::open(CLIENT_INTERFACE)?;
            for some in all.chunks(batch) {
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                for one in some {
                    bytes.extend_from_slice(one);
                    ends.push(bytes.len());
                }
                assert_eq!(sender.send(&bytes, &ends)?, some.len());
                read(&mut seen);
            }
            let until = monotonic_ns() + 2_000_000_000;
            while (seen.0.len() < departing || seen.1.len() < all.len()) && monotonic_ns() < until {
                std::thread::sleep(std::time::Duration::from_millis(1));
                read(&mut seen);
            }
            assert_eq!(sender.refused(), 0);
            Ok(())
        })
        .expect("all is sent");
    seen
}

fn check(stamping: Stamping) {
    for batch in [1, 3, 64] {
        let mut bench = bench(stamping, 4_096);
        let all: Vec<Vec<u8>> =
            (0..640).map(|number| frame(number, 60 + number as usize * 2, RUN)).collect();
        let (departed, arrived) = pass(&mut bench, &all, all.len(), batch);
        assert_eq!(departed.len(), all.len(), "batches of {batch}");
        assert_eq!(arrived.len(), all.len(), "batches of {batch}");
        for (number, ((left, arrived), sent)) in departed.iter().zip(&arrived).zip(&all).enumerate()
        {
            assert_eq!(left.0, number as u64);
            assert_eq!(arrived.1, *sent);
            assert!(left.1 <= arrived.0 + 1_000_000, "both are of one clock");
        }
        assert_eq!(
            (bench.departures.lost().expect("a count"), bench.arrivals.lost().expect("one")),
            (0, 0)
        );
    }
}

#[test]
fn programs_stamp_each_frame_once_and_in_order() {
    if !skipped("stamps in the driver") {
        check(Stamping::Driver);
    }
}

#[test]
fn packet_sockets_stamp_the_same_frames() {
    if !skipped("stamps of packet sockets") {
        check(Stamping::Socket);
    }
}

#[test]
fn a_full_ring_counts_its_losses() {
    if skipped("stamps in the driver") {
        return;
    }
    let mut bench = bench(Stamping::Driver, 64);
    let all: Vec<Vec<u8>> = (0..150).map(|number| frame(number, 60, RUN)).collect();
    bench
        .testbed
        .client()
        .enter(|| {
            let mut sender = Sender::open(CLIENT_INTERFACE)?;
            for one in &all {
                assert_eq!(sender.send(one, &[one.len()])?, 1);
            }
            Ok(())
        })
        .expect("all is sent");
    let mut numbers = Vec::new();
    bench.departures.drain(|number, _| numbers.push(number)).expect("departures");
    bench.departures.drain(|number, _| numbers.push(number)).expect("departures");
    bench.departures.drain(|number, _| numbers.push(number)).expect("departures");
    let arrived = bench.arrivals.drain(|_| {}).expect("arrivals");
    assert_eq!((arrived, bench.arrivals.lost().expect("a count")), (64, 150 - 64));
    // Of departures the last that fit into the ring are left.
    assert_eq!(numbers, (150 - 64..150).collect::<Vec<u64>>());
    assert_eq!(bench.departures.lost().expect("a count"), 150 - 64);
}

#[test]
fn damaged_test_frames_are_seen_and_others_are_not() {
    if skipped("stamps in the driver") {
        return;
    }
    let mut bench = bench(Stamping::Driver, 64);
    let elsewhere = |mut one: Vec<u8>| {
        one[26..30].copy_from_slice(&[198, 19, 1, 1]);
        one
    };
    // Of another run from our source (so its run may be damaged), of our run from elsewhere, and neither.
    let all = [frame(0, 60, RUN ^ 1), elsewhere(frame(1, 60, RUN)), elsewhere(frame(2, 60, 5))];
    let (departed, arrived) = pass(&mut bench, &all[..2], 0, 1);
    assert_eq!((departed.len(), arrived.len()), (0, 2), "a number is missing, so none is reported");
    let sent = bench
        .testbed
        .client()
        .enter(|| Ok(Sender::open(CLIENT_INTERFACE)?.send(&all[2], &[all[2].len()])?));
    assert_eq!(sent.expect("it is sent"), 1);
    assert_eq!(bench.arrivals.drain(|_| {}).expect("arrivals"), 0);
}
