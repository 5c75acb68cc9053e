//! Hostile messages on a link: no panic, no limit exceeded, nothing left undone, no storm of
//! queries.

use nilometer_router::multicast::{
    Membership, Message, Query, Record, RecordKind, Settings, Version,
};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use crate::MAC;
use crate::frames::Hosts;

const FRAMES: u64 = 60_000;

/// A sound message; `others`: whether queries of other routers may occur.
fn sample<A: Hosts>(rng: &mut Rng, others: bool) -> Vec<u8> {
    const KINDS: [RecordKind; 6] = [
        RecordKind::IsInclude,
        RecordKind::IsExclude,
        RecordKind::ToInclude,
        RecordKind::ToExclude,
        RecordKind::Allow,
        RecordKind::Block,
    ];
    let group = A::group(rng.below(40));
    match rng.below(8) {
        0 => A::older(group, false),
        1 => A::older(group, true),
        2 if others => {
            let query = Query {
                group: if rng.below(2) == 0 { A::NONE } else { group },
                sources: (0..rng.below(4)).map(A::source).collect(),
                response_interval: Span::from_nanos(rng.below(1 << 40)),
                is_suppressed: rng.below(2) == 0,
                robustness: rng.below(8) as u8,
                query_interval: Span::from_nanos(rng.below(1 << 45)),
                version: [Version::Oldest, Version::Older, Version::Newest][rng.below(3) as usize],
            };
            let mut frame = [0; 256];
            let from = A::on_link(50 + rng.below(100));
            let bytes = A::write_query(&query, (MAC, from), &mut frame);
            frame[..bytes].to_vec()
        }
        _ => {
            let records: Vec<Record<A>> = (0..1 + rng.below(4))
                .map(|_| Record {
                    kind: KINDS[rng.below(6) as usize],
                    group: A::group(rng.below(40)),
                    sources: (0..rng.below(20)).map(|_| A::source(rng.below(60))).collect(),
                })
                .collect();
            A::report(&records)
        }
    }
}

/// Changes bytes, and half of the time mends the message's checksum, so that the change gets further.
fn spoil<A: Hosts>(rng: &mut Rng, frame: &mut Vec<u8>) {
    let message_at = if frame[12] == 8 { 38 } else { 62 };
    for _ in 0..1 + rng.below(3) {
        let at = message_at + rng.below((frame.len() - message_at) as u64) as usize;
        let before = frame[at];
        frame[at] = rng.next_u64() as u8;
        if rng.below(2) == 0 {
            // The sum stays if the word of the checksum gives back what this byte took.
            let sum_at = message_at + 2 + (at - message_at) % 2;
            let change = i32::from(before) - i32::from(frame[at]);
            frame[sum_at] = (i32::from(frame[sum_at]) + change) as u8;
        }
    }
    if rng.below(10) == 0 {
        frame.truncate(rng.below(frame.len() as u64) as usize);
    }
}

fn survives<A: Hosts>(seed: u64, others: bool) {
    let mut rng = Rng::new(seed, u32::from_be_bytes(*b"mhos"), 0);
    let settings = Settings { groups_max: 16, sources_max: 8, ..Settings::default() };
    let mut now = Time::ZERO;
    let mut membership = Membership::new(now, settings, MAC, A::on_link(100)).expect("settings");
    let (mut queries, mut groups_most) = (0, 0);
    for _ in 0..FRAMES {
        let mut frame = sample::<A>(&mut rng, others);
        if rng.below(3) == 0 {
            spoil::<A>(&mut rng, &mut frame);
        }
        membership.receive(now, &frame);
        now += Span::from_nanos(rng.below(20_000_000));
        if rng.below(4_000) == 0 {
            now += Span::from_secs(rng.below(2_000));
        }
        membership.handle_timeout(now);
        assert!(membership.poll_timeout().is_some_and(|due| due > now), "nothing is left undone");
        let mut frame = [0; 256];
        while let Some(bytes) = membership.poll_transmit(&mut frame) {
            let read = A::read(&frame[..bytes]);
            assert!(matches!(read, Ok((_, Message::Query(_)))), "{read:?}");
            queries += 1;
        }
        let groups: Vec<A> = membership.groups().collect();
        groups_most = groups_most.max(groups.len());
        for group in groups {
            assert!(membership.filter(group).is_some_and(|(_, sources)| sources.count() <= 8));
        }
    }
    let ledger = membership.ledger();
    assert_eq!(groups_most, 16);
    assert!(ledger.malformed > 1_000 && ledger.groups_refused > 1_000, "{ledger:?}");
    assert!(ledger.sources_overflowed > 1_000, "{ledger:?}");
    assert_eq!(ledger.queries_heard > 1_000, others, "{ledger:?}");
    // A group is queried in a round, which lasts for the last member query time whichever hosts
    // leave meanwhile.
    assert!(queries < FRAMES / 2, "{queries} queries for {FRAMES} messages");
    assert_eq!(queries > 1_000, !others, "{queries} queries");
}

#[test]
fn limits_hold_for_any_messages() {
    for others in [false, true] {
        survives::<u32>(1, others);
        survives::<u128>(2, others);
    }
}
