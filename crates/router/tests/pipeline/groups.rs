//! Packets for groups: every receiver gets each once, a leaver none, and nothing is lost unaccounted.

#[path = "../multicast/frames.rs"]
pub mod frames;

use std::net::IpAddr;

use frames::{Hosts, one};
use nilometer_router::Prefix;
use nilometer_router::classifier::{Action, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::memory::Memory;
use nilometer_router::multicast::{RecordKind, Settings};
use nilometer_router::pipeline::groups::{MulticastError, MulticastPlan, StaticGroup};
use nilometer_stat::Rng;
use nilometer_wire::checksum::ipv4_header_checksum_ok;
use nilometer_wire::{Span, build};

use crate::bench::{Bench, framed, mac, mend, udp, with_hop_limit};

/// A group, its frames' destination, the source behind port 0, and one behind no port.
struct Family {
    group: &'static str,
    mac: [u8; 6],
    source: &'static str,
    join: fn() -> Vec<u8>,
    leave: fn() -> Vec<u8>,
}

const FOUR: Family = Family {
    group: "239.1.0.1",
    mac: [1, 0, 0x5e, 1, 0, 1],
    source: "198.19.0.9",
    join: || one(RecordKind::ToExclude, u32::group(1), &[]),
    leave: || one(RecordKind::ToInclude, u32::group(1), &[]),
};
const SIX: Family = Family {
    group: "ff0e::1:1",
    mac: [0x33, 0x33, 0, 1, 0, 1],
    source: "fd00:10::9",
    join: || one(RecordKind::ToExclude, u128::group(1), &[]),
    leave: || one(RecordKind::ToInclude, u128::group(1), &[]),
};
const FAMILIES: [Family; 2] = [FOUR, SIX];

/// Multicast is on at ports 1 to 3, whose first queries have been sent.
fn bench(plan: &MulticastPlan) -> Bench {
    let mut bench = Bench::with(|plans| {
        plans.ports[1..].iter_mut().for_each(|port| port.multicast = Some(plan.clone()));
    });
    let queried: Vec<usize> = bench.drain().into_iter().map(|(port, _)| port).collect();
    assert_eq!(queried, [1, 1, 2, 2, 3, 3], "by IGMP and by MLD, and only where multicast is on");
    bench
}

fn joined(family: &Family) -> Bench {
    let mut bench = bench(&MulticastPlan::default());
    for port in 1..=3 {
        assert!(bench.pass(port, &(family.join)()).is_empty());
    }
    bench
}

/// A frame for the group.
fn to_group(mac: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut frame = framed(0, packet);
    frame[..6].copy_from_slice(&mac);
    frame
}

fn video(family: &Family, bytes: usize) -> Vec<u8> {
    to_group(family.mac, &udp(family.source, family.group, bytes))
}

/// The ports by which frames for the group left, in order.
fn ports(family: &Family, out: &[(usize, Vec<u8>)]) -> Vec<usize> {
    let sent = out.iter().filter(|(_, frame)| frame[..6] == family.mac);
    let is_video = |frame: &[u8]| frame[23] == 17 || frame[20] == 17;
    let mut ports: Vec<usize> =
        sent.filter(|(_, frame)| is_video(frame)).map(|(port, _)| *port).collect();
    ports.sort_unstable();
    ports
}

fn discarded(bench: &Bench, port: usize, why: Discard) -> u64 {
    bench.router.ports()[port].discards().of(why)
}

#[test]
fn three_receivers_get_each_packet_once_and_whole() {
    for family in FAMILIES {
        let mut bench = joined(&family);
        for number in 0..40 {
            let before = *bench.router.account();
            let packet = udp(family.source, family.group, 30 + number);
            let mut padded = to_group(family.mac, &packet);
            padded.extend([9; 7]);
            let mut out = bench.pass(0, &padded);
            out.sort();
            let expected = with_hop_limit(packet, 63);
            assert_eq!(out.len(), 3);
            for ((port, frame), receiver) in out.iter().zip(1..) {
                assert_eq!(
                    (*port, &frame[..6], &frame[6..12]),
                    (receiver, &family.mac[..], &mac(receiver)[..])
                );
                assert_eq!(frame[14..], expected[..], "and nothing else has changed");
            }
            let after = bench.router.account();
            let made = (after.made - before.made, after.transmitted - before.transmitted);
            assert_eq!((made, after.discarded), ((2, 3), 0), "the third is the one that came");
        }
    }
}

#[test]
fn a_leaver_gets_none_after_the_last_member_time() {
    for family in FAMILIES {
        let mut bench = joined(&family);
        bench.pass(2, &(family.leave)());
        let left = bench.now;
        let mut seen = Vec::new();
        while bench.now < left + Span::from_secs(4) {
            bench.now += Span::from_nanos(100_000_000);
            bench.drain();
            let since = bench.now.since(left);
            let receivers = ports(&family, &bench.pass(0, &video(&family, 1_000)));
            assert_eq!(receivers.contains(&2), since < Span::from_secs(2), "{since}");
            assert!(receivers.contains(&1) && receivers.contains(&3));
            seen.push(receivers.len());
            assert!(bench.router.balances());
        }
        assert!(seen.starts_with(&[3]) && seen.ends_with(&[2]));
        bench.pass(1, &(family.leave)());
        bench.pass(3, &(family.leave)());
        bench.now += Span::from_secs(1);
        bench.drain();
        bench.now += Span::from_secs(1);
        bench.drain();
        assert!(bench.pass(0, &video(&family, 1_000)).is_empty());
        assert_eq!(discarded(&bench, 0, Discard::NoGroup), 1);
        assert!(bench.router.groups4().is_empty() && bench.router.groups6().is_empty());
    }
}

#[test]
fn a_leave_causes_two_queries_a_second_apart() {
    let mut bench = joined(&FOUR);
    let first = bench.pass(2, &(FOUR.leave)());
    let is_query = |(port, frame): &(usize, Vec<u8>)| *port == 2 && frame[38] == 0x11;
    assert!(first.len() == 1 && first.iter().all(is_query));
    let due = bench.router.poll_timeout().expect("a question");
    assert!(due > bench.now && due <= bench.now + Span::from_secs(1));
    bench.now = due;
    assert!(bench.drain().iter().all(is_query));
    assert!(bench.router.membership4(2).is_some_and(|membership| membership.is_querier()));
}

#[test]
fn packets_to_groups_without_members_are_discarded() {
    for family in FAMILIES {
        let mut bench = bench(&MulticastPlan::default());
        assert!(bench.pass(0, &video(&family, 30)).is_empty());
        assert_eq!(discarded(&bench, 0, Discard::NoGroup), 1);
        // A receiver next to the source needs no router.
        bench.pass(1, &(family.join)());
        let sibling = udp(
            &family.source.replace("10::", "11::").replace(".19.0.", ".19.1."),
            family.group,
            30,
        );
        assert!(bench.pass(1, &to_group(family.mac, &sibling)).is_empty());
        assert_eq!(discarded(&bench, 1, Discard::NoGroup), 1);
        // Nor does a packet that arrived at the wrong port.
        assert!(bench.pass(2, &video(&family, 30)).is_empty());
        assert_eq!(discarded(&bench, 2, Discard::ReversePath), 1);
    }
}

#[test]
fn groups_of_the_link_stay_there() {
    let mut bench = bench(&MulticastPlan::default());
    for (group, mac, source) in [
        ("224.0.0.9", [1, 0, 0x5e, 0, 0, 9], FOUR.source),
        ("ff02::9", [0x33, 0x33, 0, 0, 0, 9], SIX.source),
    ] {
        assert!(bench.pass(0, &to_group(mac, &udp(source, group, 30))).is_empty());
        let group = group.parse::<IpAddr>().expect("an address");
        let fixed = StaticGroup { group, source: None };
        assert!(matches!(bench.router.add_group(1, fixed), Err(MulticastError::Static(..))));
    }
    assert_eq!(discarded(&bench, 0, Discard::NoGroup), 2);
}

#[test]
fn hop_limits_end_packets_and_thresholds_keep_them_in() {
    for family in FAMILIES {
        let mut bench = bench(&MulticastPlan::default());
        let low = MulticastPlan { ttl_threshold: 15, ..MulticastPlan::default() };
        bench.router.set_multicast(bench.now, 2, Some(low)).expect("a plan");
        bench.drain();
        for port in 1..=3 {
            bench.pass(port, &(family.join)());
        }
        for (hop_limit, expected) in
            [(0, vec![]), (1, vec![]), (2, vec![1, 3]), (15, vec![1, 3]), (16, vec![1, 2, 3])]
        {
            let packet = with_hop_limit(udp(family.source, family.group, 30), hop_limit);
            let out = bench.pass(0, &to_group(family.mac, &packet));
            assert_eq!(ports(&family, &out), expected);
            assert_eq!(out.len(), expected.len(), "no error is sent for a group's hop limit");
        }
        assert_eq!(discarded(&bench, 0, Discard::Expired), 4);
    }
}

#[test]
fn multicast_over_a_small_mtu_is_fragmented_or_reported_as_too_big() {
    for family in FAMILIES {
        let mut bench = Bench::with(|plans| {
            plans.ports[3].mtu_bytes = 1_280;
            for port in &mut plans.ports[1..] {
                port.multicast = Some(MulticastPlan::default());
            }
        });
        bench.drain();
        for port in 1..=3 {
            bench.pass(port, &(family.join)());
        }
        let mut packet = udp(family.source, family.group, 1_400);
        if family.group == FOUR.group {
            packet[6] = 0;
            packet = mend(packet);
        }
        let out = bench.pass(0, &to_group(family.mac, &packet));
        if family.group == FOUR.group {
            assert_eq!(ports(&family, &out), [1, 2, 3, 3]);
            let sound = |(_, frame): &(usize, Vec<u8>)| {
                ipv4_header_checksum_ok(&frame[14..]) == Some(true) && frame[22] == 63
            };
            assert!(out.iter().all(sound));
            packet[6] = 0x40;
            let out = bench.pass(0, &to_group(family.mac, &mend(packet)));
            assert_eq!(ports(&family, &out), [1, 2]);
            assert_eq!(out.len(), 2, "not to be cut, and its sender not told");
            assert_eq!(discarded(&bench, 0, Discard::TooBig), 1);
        } else {
            assert_eq!(ports(&family, &out), [1, 2]);
            let icmp_errors: Vec<_> = out.iter().filter(|(port, _)| *port == 0).collect();
            assert!(icmp_errors.len() == 1 && icmp_errors[0].1[54] == 2, "{icmp_errors:?}");
        }
    }
}

#[test]
fn packets_with_options_are_copied_too() {
    let mut bench = joined(&FOUR);
    let mut packet = udp(FOUR.source, FOUR.group, 30);
    packet.splice(20..20, [0x94, 4, 0, 0]);
    packet[0] = 0x46;
    packet[3] += 4;
    let out = bench.pass(0, &to_group(FOUR.mac, &mend(packet)));
    assert_eq!(ports(&FOUR, &out), [1, 2, 3]);
    let mut bench = joined(&SIX);
    let mut packet = udp(SIX.source, SIX.group, 30);
    packet.splice(40..40, [17, 0, 1, 4, 0, 0, 0, 0]);
    packet[5] += 8;
    packet[6] = 0;
    let out = bench.pass(0, &to_group(SIX.mac, &packet));
    let mut left: Vec<usize> = out.iter().map(|(port, _)| *port).collect();
    left.sort_unstable();
    assert_eq!(left, [1, 2, 3]);
}

#[test]
fn without_buffers_one_copy_leaves_and_the_others_are_counted() {
    let mut bench = joined(&SIX);
    let frame = video(&SIX, 30);
    let mut taken = Vec::new();
    while let Some(place) = bench.memory.take(64) {
        taken.push(place);
    }
    bench.memory.give(taken.pop().expect("a buffer"));
    bench.receive(0, &frame);
    taken.into_iter().for_each(|place| bench.memory.give(place));
    assert_eq!(ports(&SIX, &bench.drain()), [3]);
    assert_eq!(discarded(&bench, 0, Discard::NoBuffer), 2);
}

#[test]
fn filters_deny_groups_as_all_else() {
    let mut bench = joined(&FOUR);
    let all: Prefix<u32> = "0.0.0.0/0".parse().expect("a prefix");
    let destination = "239.1.0.0/16".parse().expect("a prefix");
    let rule = Rule { destination, source: all, ..Rule::any(1, Action::Deny) };
    bench.router.tables_mut().filters4.insert(RuleId(1), rule).expect("room");
    assert!(bench.pass(0, &video(&FOUR, 30)).is_empty());
    assert_eq!(discarded(&bench, 0, Discard::Denied), 1);
}

#[test]
fn static_groups_need_no_hosts_and_end_with_the_port() {
    for family in FAMILIES {
        let group = family.group.parse().expect("an address");
        let source = family.source.parse().expect("an address");
        let fixed = StaticGroup { group, source: Some(source) };
        let plan = MulticastPlan { groups: vec![fixed], ..MulticastPlan::default() };
        let mut bench = bench(&plan);
        let out = |bench: &mut Bench| ports(&family, &bench.pass(0, &video(&family, 30)));
        assert_eq!(out(&mut bench), [1, 2, 3]);
        assert!(bench.router.remove_group(2, fixed) && !bench.router.remove_group(2, fixed));
        assert_eq!(out(&mut bench), [1, 3]);
        bench.router.add_group(2, StaticGroup { group, source: None }).expect("room");
        let all = StaticGroup { group, source: None };
        let fixed_of = |bench: &Bench| {
            bench.router.ports()[2].plan().multicast.clone().expect("it is on").groups
        };
        assert_eq!((out(&mut bench), fixed_of(&bench)), (vec![1, 2, 3], vec![all]));
        bench.router.add_group(2, all).expect("it is there");
        assert_eq!(fixed_of(&bench), [all]);
        assert!(!bench.router.remove_group(2, fixed), "another");
        assert!(bench.router.remove_group(2, all) && !bench.router.remove_group(2, all));
        assert_eq!((out(&mut bench), fixed_of(&bench)), (vec![1, 3], vec![]));
        bench.router.add_group(2, all).expect("room");
        bench.router.set_multicast(bench.now, 3, None).expect("nothing can be wrong");
        assert_eq!(bench.router.add_group(3, fixed), Err(MulticastError::Off));
        assert_eq!(out(&mut bench), [1, 2]);
        assert!(bench.router.membership4(3).is_none() && bench.router.membership6(3).is_none());
        let mixed = StaticGroup {
            group,
            source: Some(
                if group.is_ipv4() { "::5" } else { "1.2.3.4" }.parse().expect("an address"),
            ),
        };
        assert!(matches!(bench.router.add_group(1, mixed), Err(MulticastError::Static(..))));
        let igmp = Settings { robustness: 0, ..Settings::default() };
        let wrong = MulticastPlan { igmp, ..plan };
        assert!(bench.router.set_multicast(bench.now, 1, Some(wrong)).is_err());
        assert_eq!(out(&mut bench), [2], "and the port does nothing for groups then");
    }
}

/// The ports whose hosts want a packet, and the packet.
fn packet_of<A: Hosts>(
    numbers: (u64, u64),
    address: impl Fn(A) -> IpAddr,
    wants: impl Fn(usize, A, A) -> bool,
) -> (Vec<usize>, Vec<u8>) {
    let (group, source) = (A::group(numbers.0), A::source(numbers.1));
    let expected = (1..=3).filter(|port| wants(*port, group, source)).collect();
    let ends = ((address(source), 1_000).into(), (address(group), 2_000).into());
    (expected, to_group(group.group_mac(), &build::udp(ends.0, ends.1, &[7; 140])))
}

/// Hosts come and go at random; each packet goes where the memberships say at that moment, once.
#[test]
fn copies_follow_the_memberships() {
    const KINDS: [RecordKind; 4] =
        [RecordKind::ToExclude, RecordKind::ToInclude, RecordKind::Allow, RecordKind::Block];
    let mut rng = Rng::new(5, u32::from_be_bytes(*b"mgrp"), 0);
    let mut bench = bench(&MulticastPlan::default());
    let mut copies = [0; 4];
    for round in 0..4_000 {
        let numbers = (1 + rng.below(3), rng.below(4));
        let is_four = rng.below(2) == 0;
        if rng.below(3) == 0 {
            let kind = KINDS[rng.below(4) as usize];
            let is_older = rng.below(8) == 0;
            let frame = match is_four {
                true if is_older => u32::older(u32::group(numbers.0), rng.below(2) == 0),
                false if is_older => u128::older(u128::group(numbers.0), rng.below(2) == 0),
                true => one(kind, u32::group(numbers.0), &[u32::source(numbers.1)]),
                false => one(kind, u128::group(numbers.0), &[u128::source(numbers.1)]),
            };
            bench.pass(1 + rng.below(3) as usize, &frame);
            bench.now += Span::from_nanos(rng.below(300_000_000));
            bench.drain();
            continue;
        }
        let router = &bench.router;
        let (expected, frame) = match is_four {
            true => packet_of::<u32>(
                numbers,
                |four| IpAddr::V4(four.into()),
                |port, group, source| {
                    router.membership4(port).is_some_and(|there| there.wants(group, source))
                },
            ),
            false => packet_of::<u128>(
                numbers,
                |six| IpAddr::V6(six.into()),
                |port, group, source| {
                    router.membership6(port).is_some_and(|there| there.wants(group, source))
                },
            ),
        };
        bench.receive(0, &frame);
        let out = bench.drain();
        let copied = out.iter().filter(|(_, sent)| sent.len() == frame.len());
        let mut copied: Vec<usize> = copied.map(|(port, _)| *port).collect();
        copied.sort_unstable();
        assert_eq!(copied, expected, "round {round}");
        copies[copied.len()] += 1;
    }
    assert!(copies.iter().all(|count| *count > 50), "{copies:?}");
}
