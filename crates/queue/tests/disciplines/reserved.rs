//! Reserved queues beside a naive twin, and what they promise under ten times overload.

use std::collections::VecDeque;

use nilometer_queue::{
    Any, Backlog, Capacity, Contract, ContractError, Discipline, DisciplineKind, Ledger, Packet,
    RESERVED_QUEUES_MAX, Reason, Reserved, Settings, TailDrop,
};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Rate, Span, Time};

/// A packet with or without a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parcel {
    id: u32,
    flow: u32,
    bytes: u32,
    reserved: Option<u32>,
}

impl Packet for Parcel {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.flow
    }
    fn reserved(&self) -> Option<u32> {
        self.reserved
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

const PURPOSE: u32 = u32::from_be_bytes(*b"resv");
const BEST_EFFORT: Capacity = Capacity::Packets(50);

fn contract(kilobits: u64, bucket_bytes: u32) -> Contract {
    let rate = Rate::new(kilobits * 1_000).expect("a rate");
    Contract { rate, bucket_bytes, capacity_bytes: 20_000 }
}

/// A reserved queue of the twin: its number, its contract, its clock, and what waits since when.
type Reference = (u32, Contract, Time, VecDeque<(Time, Parcel)>);

/// The same by looking at every queue for every packet.
struct Twin {
    queues: Vec<Reference>,
    best_effort: VecDeque<Parcel>,
}

impl Twin {
    /// Release and deadline of the first packet of a queue.
    fn times(contract: &Contract, clock: Time, first: &(Time, Parcel)) -> (Time, Time) {
        let base = clock.max(first.0);
        let limit = contract.rate.span_of(contract.bucket_bytes.into());
        let release = Time(base.0.saturating_sub(limit.0));
        (release, base + contract.rate.span_of(first.1.bytes.into()))
    }

    fn enqueue(&mut self, now: Time, parcel: Parcel) -> Option<Reason> {
        let queue = self.queues.iter_mut().find(|queue| Some(queue.0) == parcel.reserved);
        match queue {
            Some((_, contract, _, waiting)) => {
                let bytes: u32 = waiting.iter().map(|(_, parcel)| parcel.bytes).sum();
                if bytes + parcel.bytes > contract.capacity_bytes {
                    return Some(Reason::Full);
                }
                waiting.push_back((now, parcel));
            }
            None if self.best_effort.len() >= 50 => return Some(Reason::Full),
            None => self.best_effort.push_back(parcel),
        }
        None
    }

    fn dequeue(&mut self, now: Time) -> Option<Parcel> {
        let mut released = None;
        let mut next = None;
        for (at, (number, contract, clock, waiting)) in self.queues.iter().enumerate() {
            let Some(first) = waiting.front() else { continue };
            let (release, deadline) = Twin::times(contract, *clock, first);
            match release <= now {
                true => released = released.into_iter().chain([(deadline, *number, at)]).min(),
                false => next = next.into_iter().chain([(release, *number, at)]).min(),
            }
        }
        if released.is_none()
            && let Some(parcel) = self.best_effort.pop_front()
        {
            return Some(parcel);
        }
        let (_, _, at) = released.or(next)?;
        let (_, contract, clock, waiting) = &mut self.queues[at];
        let first = waiting.pop_front().expect("it has a first");
        let (_, deadline) = Twin::times(contract, *clock, &first);
        let limit = contract.rate.span_of(contract.bucket_bytes.into());
        *clock = deadline.min(now + limit + contract.rate.span_of(first.1.bytes.into()));
        Some(first.1)
    }
}

#[test]
fn reserved_queues_agree_with_a_search_through_all() {
    let (mut served, mut dropped) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed, PURPOSE, 0);
        let mut queues = Reserved::new(TailDrop::<Parcel>::new(BEST_EFFORT));
        let mut twin = Twin { queues: Vec::new(), best_effort: VecDeque::new() };
        for number in [0, 3, 4, 9] {
            let contract = contract(1 + rng.below(4_000), rng.below(6_000) as u32);
            queues.set(number, contract).expect("a contract");
            twin.queues.push((number, contract, Time::ZERO, VecDeque::new()));
        }
        let (mut now, mut drops, mut ledger) = (Time::ZERO, Vec::new(), Ledger::default());
        for id in 0..3_000 {
            now += Span::from_nanos(rng.below(1_000_000));
            if rng.below(5) < 3 {
                let reserved = Some(rng.below(12) as u32).filter(|number| *number != 11);
                let bytes = 40 + rng.below(1_461) as u32;
                let parcel = Parcel { id, flow: id % 7, bytes, reserved };
                ledger.in_packets += 1;
                ledger.in_bytes += u64::from(bytes);
                queues.enqueue(now, parcel, &mut drops);
                let refused = twin.enqueue(now, parcel);
                assert_eq!(drops.pop(), refused.map(|reason| (reason, parcel)));
                if let Some(reason) = refused {
                    ledger.drops.count(reason, bytes);
                    dropped += 1;
                }
            } else {
                let parcel = queues.dequeue(now, &mut drops);
                assert_eq!(parcel, twin.dequeue(now), "seed {seed}, step {id}");
                if let Some(parcel) = parcel {
                    ledger.out_packets += 1;
                    ledger.out_bytes += u64::from(parcel.bytes);
                    served += 1;
                }
            }
            assert!(ledger.balances(queues.backlog()), "nothing vanishes");
        }
        while let Some(parcel) = queues.dequeue(now, &mut drops) {
            assert_eq!(Some(parcel), twin.dequeue(now));
        }
        assert_eq!(
            queues.backlog(),
            Backlog::default(),
            "the link never idles while something waits"
        );
    }
    assert!(served > 50_000 && dropped > 1_000, "{served} {dropped}");
}

/// What reserved queues and best effort send over a link of 10 Mb/s in ten seconds, in bits per second. Each flow is
/// offered at a multiple of its rate, best effort at a multiple of the link's.
fn shares(
    inner: DisciplineKind,
    reserved: &[(u64, u64)],
    best_effort_times: f64,
) -> (Vec<f64>, f64) {
    const LINK: Rate = Rate::from_megabits(10);
    const SECONDS: f64 = 10.0;
    let settings = Settings::new(inner, Capacity::Packets(200), LINK);
    let mut queues = Reserved::new(Any::<Parcel>::new(&settings).expect("sound settings"));
    // (When the next comes, its flow, its spacing, its size.)
    let mut sources = Vec::new();
    for (number, &(kilobits, times)) in (0..).zip(reserved) {
        queues.set(number, contract(kilobits, 3_000)).expect("a contract");
        let bytes = 200 + 300 * number;
        let spacing = Rate::new(kilobits * 1_000 * times).expect("a rate").span_of(bytes.into());
        sources.push((Time::ZERO, Some(number), spacing, bytes));
    }
    let spacing = Span::from_secs_f64(1_500.0 * 8.0 / 1e7 / best_effort_times);
    sources.push((Time::ZERO, None, spacing, 1_500));
    let (mut sent, mut rest, mut free_at, mut drops) =
        (vec![0; reserved.len()], 0, Time::ZERO, Vec::new());
    let mut id = 0;
    loop {
        let next = sources.iter_mut().min_by_key(|source| source.0).expect("sources");
        if next.0.as_secs_f64() > SECONDS {
            break;
        }
        let now = next.0;
        // What the link takes until then.
        while free_at <= now {
            let Some(parcel) = queues.dequeue(free_at, &mut drops) else {
                free_at = now;
                break;
            };
            free_at += LINK.span_of(parcel.bytes.into());
            match parcel.reserved {
                Some(number) => sent[number as usize] += u64::from(parcel.bytes),
                None => rest += u64::from(parcel.bytes),
            }
        }
        let (_, reserved, spacing, bytes) = *next;
        queues.enqueue(now, Parcel { id, flow: id % 40, bytes, reserved }, &mut drops);
        next.0 += spacing;
        id += 1;
    }
    let rate = |bytes: u64| bytes as f64 * 8.0 / SECONDS;
    (sent.into_iter().map(rate).collect(), rate(rest))
}

#[test]
fn a_reserved_flow_keeps_its_rate_under_ten_times_overload() {
    let kinds = [DisciplineKind::TailDrop, DisciplineKind::Qsdrr, DisciplineKind::FqCoDel];
    for kind in kinds {
        let (sent, rest) = shares(kind, &[(1_000, 1), (2_500, 1), (300, 1)], 10.0);
        for (sent, rate) in sent.iter().zip([1e6, 2.5e6, 3e5]) {
            assert!((sent / rate - 1.0).abs() < 0.02, "{kind}: {sent} of {rate} b/s");
        }
        assert!((rest / 6.2e6 - 1.0).abs() < 0.02, "{kind}: best effort has the rest, {rest} b/s");
    }
}

#[test]
fn a_flow_beyond_its_contract_has_its_rate_and_no_more() {
    let (sent, rest) = shares(DisciplineKind::Qsdrr, &[(1_000, 10), (2_000, 1)], 10.0);
    assert!((sent[0] / 1e6 - 1.0).abs() < 0.02, "{sent:?}");
    assert!((sent[1] / 2e6 - 1.0).abs() < 0.02, "{sent:?}");
    assert!((rest / 7e6 - 1.0).abs() < 0.02, "{rest}");
    // Where best effort leaves room, it is used: 10 Mb/s less 2 less a tenth.
    let (sent, rest) = shares(DisciplineKind::Qsdrr, &[(1_000, 10), (2_000, 1)], 0.1);
    assert!((sent[0] / 7e6 - 1.0).abs() < 0.02 && (sent[1] / 2e6 - 1.0).abs() < 0.02, "{sent:?}");
    assert!((rest / 1e6 - 1.0).abs() < 0.02, "{rest}");
}

#[test]
fn spare_bandwidth_used_is_not_held_against_a_flow() {
    let mut queues = Reserved::new(TailDrop::<Parcel>::new(BEST_EFFORT));
    queues.set(0, contract(80, 0)).expect("a contract"); // 10,000 B/s
    let parcel = |id, reserved| Parcel { id, flow: 0, bytes: 1_000, reserved };
    let mut drops = Vec::new();
    for id in 0..20 {
        queues.enqueue(Time::ZERO, parcel(id, Some(0)), &mut drops);
    }
    // Alone, it sends ten packets at once, for which its rate takes a second.
    for id in 0..10 {
        assert_eq!(queues.dequeue(Time::ZERO, &mut drops), Some(parcel(id, Some(0))));
    }
    for id in 100..105 {
        queues.enqueue(Time::ZERO, parcel(id, None), &mut drops);
    }
    // Best effort has come: from now on a packet each tenth of a second is the flow's.
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    let sent: Vec<u32> = [50, 99, 101, 150, 201]
        .map(|millis| queues.dequeue(at(millis), &mut drops).expect("one waits").id)
        .to_vec();
    assert_eq!(sent, [100, 101, 10, 102, 11]);
}

#[test]
fn contracts_change_and_end_without_losing_a_packet() {
    let mut queues = Reserved::new(TailDrop::<Parcel>::new(BEST_EFFORT));
    let none = Contract { capacity_bytes: 0, ..contract(1, 1) };
    assert_eq!(queues.set(0, none), Err(ContractError::NoCapacity));
    let beyond = RESERVED_QUEUES_MAX;
    assert_eq!(queues.set(beyond, contract(1, 1)), Err(ContractError::NoSuchQueue(beyond)));
    assert_eq!(queues.contracts(), 0);
    queues.set(2, contract(80, 0)).expect("a contract");
    let mut drops = Vec::new();
    for id in 0..5 {
        queues.enqueue(
            Time::ZERO,
            Parcel { id, flow: 0, bytes: 1_000, reserved: Some(2) },
            &mut drops,
        );
    }
    queues.enqueue(Time::ZERO, Parcel { id: 5, flow: 0, bytes: 1_000, reserved: None }, &mut drops);
    assert_eq!(queues.dequeue(Time::ZERO, &mut drops).map(|parcel| parcel.id), Some(0));
    queues.set(2, contract(800, 0)).expect("another rate");
    assert_eq!(queues.contracts(), 1);
    let state = queues.state(2).expect("it has a contract");
    assert_eq!((state.backlog.packets, state.sent_bytes), (4, 1_000));
    // Ten times the rate, from the next packet on.
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    assert_eq!(queues.dequeue(at(100), &mut drops).map(|parcel| parcel.id), Some(1));
    assert_eq!(queues.dequeue(at(110), &mut drops).map(|parcel| parcel.id), Some(2));
    assert!(queues.remove(at(110), 2, &mut drops) && !queues.remove(at(110), 2, &mut drops));
    assert_eq!(queues.backlog(), Backlog { packets: 3, bytes: 3_000 });
    let rest: Vec<u32> =
        std::iter::from_fn(|| queues.dequeue(at(110), &mut drops)).map(|p| p.id).collect();
    assert_eq!((rest, drops.len()), (vec![5, 3, 4], 0));
    assert_eq!(queues.backlog(), Backlog::default());
}
