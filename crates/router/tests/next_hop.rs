//! Next hops: shares, what moves when a way fails, and snapshots against numbers that are used again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use nilometer_router::next_hop::{MEMBERS_LIMIT, NextHopFault};
use nilometer_router::{Hop, Member, NextHop, NextHops, Point, Snapshot};
use nilometer_stat::Rng;

fn gateway(number: u16) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0xc612_0000 + u32::from(number)))
}

/// Way `number`: four gateways behind each port.
fn via(number: u16) -> Hop {
    Hop::Via { port: number / 4, gateway: Some(gateway(number)) }
}

fn member(number: u16, weight: u16) -> Member {
    Member { hop: via(number), weight }
}

/// Where each of 4,096 flows goes.
fn flows(snapshot: &Snapshot, next: NextHop) -> Vec<Hop> {
    (0..4096).map(|hash| *snapshot.resolve(next, hash).expect("a number in use")).collect()
}

fn is_down(down: &[Point], hop: Hop) -> bool {
    let Hop::Via { port, gateway } = hop else { return false };
    down.iter().any(|point| match *point {
        Point::Port(failed) => failed == port,
        Point::Gateway { port: at, address } => at == port && gateway == Some(address),
    })
}

#[test]
fn the_same_members_have_the_same_number_while_anyone_refers_to_it() {
    let mut hops = NextHops::new(100, 10_000);
    assert!(hops.is_empty());
    let one = hops.intern(&[member(1, 2), member(2, 1)]).expect("room");
    let same = hops.intern(&[member(2, 1), member(1, 1), member(1, 1)]).expect("room");
    assert_eq!((one, hops.references(one), hops.len()), (same, 2, 1));
    assert!(!hops.is_empty());
    let single = hops.intern(&[member(1, 7)]).expect("room");
    assert_eq!(hops.intern(&[member(1, 1)]), Ok(single), "a share of everything");
    let own = hops.define(&[member(1, 1)]).expect("room");
    assert_ne!(own, single, "a defined number is not shared");
    hops.release(one);
    assert_eq!(hops.members(one), [member(1, 2), member(2, 1)]);
    hops.release(one);
    assert!(hops.members(one).is_empty() && hops.references(one) == 0);
    assert_eq!(hops.snapshot().resolve(one, 0), None);
    let before = hops.snapshot().version();
    assert_eq!(hops.snapshot().version(), before, "nothing has changed");
    hops.intern(&[member(3, 1)]).expect("room");
    assert!(hops.snapshot().version() > before);
}

#[test]
fn all_the_numbers_that_there_are_may_be_in_use() {
    let mut hops = NextHops::new(1 << 16, 1 << 16);
    for number in 0..=u16::MAX {
        // The way of groups without a living member is there from the start.
        let hop = if number == 0 { Hop::Failed } else { via(number) };
        let next = hops.define(&[Member { hop, weight: 1 }]).expect("room");
        assert_eq!(next, NextHop(number));
    }
    assert_eq!(hops.define(&[member(1, 1)]), Err(NextHopFault::Full));
    let snapshot = hops.snapshot();
    let last = NextHop(u16::MAX);
    assert_eq!(snapshot.resolve_numbered(last, 0), Some((u16::MAX, &via(u16::MAX))));
    assert_eq!(snapshot.resolve(NextHop(1), 0), Some(&via(1)));
}

#[test]
fn invalid_next_hops_are_refused_and_change_nothing() {
    let mut hops = NextHops::new(2, 34);
    assert_eq!(hops.intern(&[]), Err(NextHopFault::Members));
    assert_eq!(hops.intern(&[member(1, 0)]), Err(NextHopFault::Weight));
    let many: Vec<Member> = (0..=MEMBERS_LIMIT as u16).map(|number| member(number, 1)).collect();
    assert_eq!(hops.intern(&many), Err(NextHopFault::Members));
    let one = hops.define(&[member(0, 1)]).expect("room");
    let two = hops.define(&[member(0, 1), member(1, 1)]).expect("32 buckets");
    assert_eq!(hops.define(&[member(3, 1)]), Err(NextHopFault::Full), "numbers");
    let before = hops.snapshot();
    assert_eq!(hops.redefine(one, &[member(0, 1), member(1, 1)]), Err(NextHopFault::Full));
    assert_eq!(hops.redefine(NextHop(7), &[member(0, 1)]), Err(NextHopFault::Unknown));
    assert!(Arc::ptr_eq(&before, &hops.snapshot()), "nothing has changed");
    hops.release(two);
    assert_eq!(hops.redefine(one, &[member(0, 1), member(1, 1)]), Ok(()), "in the freed buckets");
}

#[test]
fn shares_are_proportional_and_a_failure_moves_its_own_flows_only() {
    let mut rng = Rng::new(5, 1, 0);
    for _ in 0..60 {
        let mut hops = NextHops::new(100, 100_000);
        let count = 2 + rng.below(24) as u16;
        let members: Vec<Member> =
            (0..count).map(|number| member(number, 1 + rng.below(4) as u16)).collect();
        let next = hops.intern(&members).expect("room");
        let whole = flows(&hops.snapshot(), next);
        let sum: usize = members.iter().map(|member| usize::from(member.weight)).sum();
        for member in &members {
            let got = whole.iter().filter(|hop| **hop == member.hop).count();
            let due = 4096 * usize::from(member.weight) / sum;
            let bucket = 4096 / (usize::from(count) * 16).next_power_of_two();
            assert!(got.abs_diff(due) <= 2 * bucket, "{got} of {due}, a bucket is {bucket}");
        }
        let mut down: Vec<Point> = Vec::new();
        let mut before = whole.clone();
        for _ in 0..40 {
            let number = rng.below(u64::from(count)) as u16;
            let (port, address) = (number / 4, gateway(number));
            let point = if rng.below(3) == 0 {
                Point::Port(port)
            } else {
                Point::Gateway { port, address }
            };
            if let Some(at) = down.iter().position(|failed| *failed == point) {
                down.remove(at);
                hops.restore(point);
            } else {
                down.push(point);
                hops.fail(point);
            }
            let now = flows(&hops.snapshot(), next);
            let all_down = members.iter().all(|member| is_down(&down, member.hop));
            for ((now, before), home) in now.iter().zip(&before).zip(&whole) {
                if all_down {
                    assert_eq!(*now, Hop::Failed);
                    continue;
                }
                assert!(!is_down(&down, *now) && *now != Hop::Failed);
                let lives = |hop: Hop| hop != Hop::Failed && !is_down(&down, hop);
                if lives(*home) {
                    assert_eq!(now, home, "a flow whose home lives is at home");
                } else if lives(*before) {
                    assert_eq!(now, before, "a flow is not moved without need");
                }
            }
            before = now;
        }
        for point in down {
            hops.restore(point);
        }
        assert_eq!(flows(&hops.snapshot(), next), whole, "all are up again");
    }
}

#[test]
fn a_redefined_number_moves_no_more_flows_than_its_new_members_take() {
    let mut hops = NextHops::new(10, 10_000);
    let next = hops.define(&[0, 1, 2, 3].map(|number| member(number, 1))).expect("room");
    let before = flows(&hops.snapshot(), next);
    hops.redefine(next, &[0, 1, 2].map(|number| member(number, 1))).expect("room");
    let three = flows(&hops.snapshot(), next);
    let moved = before.iter().zip(&three).filter(|(before, now)| before != now).count();
    assert_eq!(moved, 1024, "those of the one that left");
    hops.redefine(next, &[0, 1, 2, 9].map(|number| member(number, 1))).expect("room");
    let four = flows(&hops.snapshot(), next);
    for (before, now) in three.iter().zip(&four).filter(|(before, now)| before != now) {
        assert_eq!((*now, *before != *now), (via(9), true), "only to the new one");
    }
    assert_eq!(four.iter().filter(|hop| **hop == via(9)).count(), 1024);
    hops.redefine(next, &[member(5, 1)]).expect("room");
    assert!(flows(&hops.snapshot(), next).iter().all(|hop| *hop == via(5)));
}

#[test]
fn a_number_is_not_used_again_while_a_snapshot_knows_it() {
    let mut hops = NextHops::new(2, 100);
    let one = hops.intern(&[member(1, 1)]).expect("room");
    let two = hops.intern(&[member(2, 1)]).expect("room");
    let held = hops.snapshot();
    hops.release(one);
    let _ = hops.snapshot();
    assert_eq!(hops.intern(&[member(3, 1)]), Err(NextHopFault::Full), "held");
    assert_eq!(held.resolve(one, 0), Some(&via(1)));
    drop(held);
    let again = hops.intern(&[member(3, 1)]).expect("no reader can know it");
    assert_eq!(again, one);
    let latest = hops.snapshot();
    assert_eq!((latest.resolve(again, 9), latest.resolve(two, 9)), (Some(&via(3)), Some(&via(2))));
    hops.release(two);
    assert_eq!(hops.snapshot().resolve(two, 0), None);
    assert_eq!(latest.resolve(two, 0), Some(&via(2)), "a snapshot never changes");
}

/// A snapshot and the hops that it gave for flows.
type Held = (Arc<Snapshot>, BTreeMap<NextHop, Vec<Hop>>);

/// Random calls against a map from numbers to members, with readers that hold on to snapshots.
#[test]
fn next_hops_agree_with_a_map() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed, 2, 0);
        let mut hops = NextHops::new(64, 20_000);
        let mut twin: BTreeMap<NextHop, (Vec<Member>, bool)> = BTreeMap::new();
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..1_500 {
            let count = 1 + rng.below(3) * rng.below(5);
            let mut members: Vec<Member> =
                (0..count).map(|_| member(rng.below(12) as u16, 1)).collect();
            members.sort();
            members.dedup();
            let any = twin.keys().nth(rng.below(twin.len().max(1) as u64) as usize).copied();
            match (rng.below(6), any) {
                (0, _) => match hops.define(&members) {
                    Ok(next) => {
                        assert!(twin.insert(next, (members, true)).is_none());
                        let mut known = held.iter().map(|(held, _)| held.resolve(next, 0));
                        assert!(known.all(|hop| hop.is_none()), "seed {seed}: a reader knows it");
                    }
                    Err(fault) => assert_eq!(fault, NextHopFault::Full),
                },
                (1, _) => match hops.intern(&members) {
                    Ok(next) => drop(twin.insert(next, (members, false))),
                    Err(fault) => assert_eq!(fault, NextHopFault::Full),
                },
                (2, Some(next)) if twin[&next].1 => {
                    hops.redefine(next, &members).expect("room");
                    twin.insert(next, (members, true));
                }
                (2 | 3, Some(next)) => {
                    (0..hops.references(next)).for_each(|_| hops.release(next));
                    twin.remove(&next);
                }
                (4, _) => {
                    let snapshot = hops.snapshot();
                    let expected = twin.keys().map(|next| (*next, flows(&snapshot, *next)));
                    held.push((Arc::clone(&snapshot), expected.collect()));
                }
                _ if !held.is_empty() => drop(held.remove(rng.below(held.len() as u64) as usize)),
                _ => {}
            }
            assert_eq!(hops.len(), twin.len());
            for (next, (members, _)) in &twin {
                assert_eq!(&hops.members(*next), members, "seed {seed}");
            }
        }
        for (snapshot, expected) in held {
            for (next, flows) in expected {
                assert!(
                    (0..4096)
                        .zip(flows)
                        .all(|(hash, hop)| snapshot.resolve(next, hash) == Some(&hop))
                );
            }
        }
    }
}

/// Four bytes of each number's place and four of its size, two of each bucket, and the ways.
#[test]
fn a_snapshot_reports_its_memory() {
    let mut hops = NextHops::new(100, 1_000);
    let empty = hops.snapshot().bytes();
    let hop = |port| Hop::Via { port, gateway: None };
    hops.define(&[Member { hop: hop(1), weight: 1 }]).expect("room");
    let one = hops.snapshot().bytes();
    hops.define(&[Member { hop: hop(1), weight: 1 }, Member { hop: hop(2), weight: 1 }])
        .expect("room");
    let two = hops.snapshot().bytes();
    assert!(empty < one && one < two, "{empty} {one} {two}");
    assert!(two < 100 * 8 + 1_000 * 2 + 3 * size_of::<Hop>() + 1_000, "{two}");
}

#[test]
fn the_last_port_fails_alone() {
    let mut hops = NextHops::new(10, 100);
    let on_link = |port| Hop::Via { port, gateway: None };
    let ports = [u16::MAX - 1, u16::MAX];
    let ways = ports.map(|port| hops.define(&[Member { hop: on_link(port), weight: 1 }]));
    let local = hops.define(&[Member { hop: Hop::Local, weight: 1 }]).expect("room");
    let [other, last] = ways.map(|way| way.expect("room"));
    hops.fail(Point::Port(u16::MAX));
    let is_alive = |hops: &mut NextHops, next| {
        let snapshot = hops.snapshot();
        matches!(snapshot.resolve(next, 7), Some(Hop::Via { .. } | Hop::Local))
    };
    assert_eq!([last, other, local].map(|next| is_alive(&mut hops, next)), [false, true, true]);
    hops.fail(Point::Port(u16::MAX - 1));
    assert_eq!([last, other, local].map(|next| is_alive(&mut hops, next)), [false, false, true]);
}
