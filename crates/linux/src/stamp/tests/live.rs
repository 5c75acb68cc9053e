//! Live frames on a veth: as the caller makes them, at their times, and counted where the other end takes none.

use std::time::Duration;

use super::super::live::{LivePace, LiveSender, LiveTemplate};
use super::*;
use crate::netlink::Netlink;

/// A frame with a linear check and a checksum, by flow and sequence number.
fn tagged(flow: u32, number: u64) -> Vec<u8> {
    let mut one = frame(0, 60, RUN);
    one[16..18].copy_from_slice(&46u16.to_be_bytes());
    one[34..42].copy_from_slice(&[4, flow as u8, 9, 9, 0, 26, 0, 0]);
    one[PLACE_AT..PLACE_AT + 8].copy_from_slice(&(7 << 56 | number).to_be_bytes());
    let mut check = 0x1234_5678u32;
    for (at, byte) in one[RUN_AT..CHECK_AT].iter().enumerate() {
        check ^= u32::from(*byte).rotate_left(5 * at as u32);
    }
    one[CHECK_AT..CHECK_AT + 4].copy_from_slice(&check.to_be_bytes());
    let sum: u32 = one[26..].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let mut sum = sum + 17 + 26;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = if sum == 0xffff { 0xffff } else { !sum as u16 };
    one[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    one
}

#[test]
fn a_template_makes_the_frames_that_it_was_learnt_from() {
    let template = LiveTemplate::learn(3, tagged).expect("a linear check");
    for round in 0..5_000u64 {
        let (flow, sequence) = ((round % 3) as u32, round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8);
        assert_eq!(template.made(flow, sequence), tagged(flow, sequence), "{sequence:#x}");
    }
    let crooked = |flow, number: u64| {
        let mut one = tagged(flow, number);
        one[CHECK_AT] ^= (number % 251) as u8;
        one
    };
    assert!(LiveTemplate::learn(1, crooked).is_err());
}

/// Sends the frames of `pace` and reads both rings meanwhile; also returns how many the interface
/// took by its counter.
fn live(pace: &LivePace, far: Option<()>) -> (Seen, u64, u64) {
    let config = TestbedConfig { device: DeviceKind::Wire, ..TestbedConfig::default() };
    let testbed = Testbed::build(&config).expect("a wire");
    let template = LiveTemplate::learn(3, tagged).expect("a linear check");
    let open = || LiveSender::open(CLIENT_INTERFACE, &template, pace, 1 << 16);
    let (mut sender, mut departures) = testbed.client().enter(open).expect("live frames");
    let arrivals = || Arrivals::open(SERVER_INTERFACE, WATCHED, (1 << 16, 1_514), Stamping::Driver);
    let arrivals = far.map(|()| testbed.server().enter(arrivals).expect("stamps of arrivals"));
    testbed.raise().expect("links that are up");
    let counted =
        || testbed.client().enter(|| Ok(Netlink::open()?.statistics(CLIENT_INTERFACE)?.tx_packets));
    let before = counted().expect("a count");
    let origin_ns = monotonic_ns() + 1_000_000;
    sender.begin(origin_ns + ((pace.group - 1) as f64 / pace.group as f64 * pace.period_ns) as u64);
    let (mut seen, mut arrivals) = (Seen::default(), arrivals);
    testbed
        .client()
        .enter(|| {
            while sender.runs(2_000)? < pace.frames {
                departures.drain(|number, ns| seen.0.push((number, ns - origin_ns)))?;
                if let Some(arrivals) = &mut arrivals {
                    arrivals.drain(|one| seen.1.push((one.stamp_ns, one.frame.to_vec())))?;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
            departures.drain(|number, ns| seen.0.push((number, ns - origin_ns)))?;
            if let Some(arrivals) = &mut arrivals {
                arrivals.drain(|one| seen.1.push((one.stamp_ns, one.frame.to_vec())))?;
                assert_eq!(arrivals.lost()?, 0);
            }
            assert_eq!(departures.lost()?, 0);
            Ok(())
        })
        .expect("all is sent");
    (seen, counted().expect("a count") - before, origin_ns)
}

#[test]
fn live_frames_are_made_stamped_and_sent_at_their_times() {
    if skipped("live frames") {
        return;
    }
    for (group, period_ns, batch) in [(1, 10_000.0, 1), (4, 8_000.5, 4), (100, 300_000.0, 64)] {
        let pace = LivePace { frames: 5_000, group, period_ns, batch };
        let (seen, taken, origin_ns) = live(&pace, Some(()));
        assert_eq!((seen.0.len(), seen.1.len(), taken), (5_000, 5_000, 5_000));
        for (number, (left, arrived)) in seen.0.iter().zip(&seen.1).enumerate() {
            let number = number as u64;
            assert_eq!(arrived.1, tagged((number % 3) as u32, number), "{number}");
            let group = number / u64::from(group);
            let due = (group as f64 * period_ns) as u64;
            assert!(left.0 == number && left.1 >= due, "{number}: {left:?}, due at {due}");
            assert!(arrived.0 >= origin_ns + left.1);
        }
    }
}

#[test]
fn without_napi_no_live_frame_is_taken_and_the_counts_show_it() {
    if skipped("live frames") {
        return;
    }
    let pace = LivePace { frames: 100, group: 1, period_ns: 10_000.0, batch: 1 };
    let (seen, taken, _) = live(&pace, None);
    assert_eq!((seen.0.len(), seen.1.len(), taken), (100, 0, 0));
}
