//! The naive twin of the engine: one ordered map, one event for each end of each phase.

use std::collections::{BTreeMap, VecDeque};

use nilometer_queue::{Any, Discipline, Reason, Settings};
use nilometer_sim::{Hop, Packet};
use nilometer_stat::Rng;
use nilometer_wire::{Node, Port, Rate, Span, Time};

use crate::Seen;

/// A link as it is described to both engines.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub rate: Rate,
    pub delay: Span,
    pub mtu: u16,
    pub fifo_bytes: u64,
    pub settings: Option<Settings>,
    pub overhead: Option<(Span, u64, u64)>,
}

struct Wire {
    spec: Spec,
    fifo: VecDeque<(Span, Packet)>,
    chance: Option<Rng>,
    discipline: Option<Any<Packet>>,
    sending: Option<(Time, Packet)>,
    transmitted: (u64, u64),
}

/// At one moment, transmissions end first, then packets land, then timers run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sent(usize),
    Lands(usize),
    Timer(usize),
}

pub(crate) struct Naive<M> {
    wires: Vec<Wire>,
    paths: Vec<Vec<Hop>>,
    members: Vec<(M, Vec<u32>)>,
    events: BTreeMap<(Time, Event), VecDeque<Packet>>,
    pub(crate) seen: Seen,
}

impl<M: Node<Packet>> Naive<M> {
    pub fn new(specs: &[Spec], paths: &[Vec<Hop>], members: Vec<(M, Vec<u32>)>) -> Naive<M> {
        let wire = |spec: &Spec| Wire {
            spec: spec.clone(),
            fifo: VecDeque::new(),
            chance: spec.overhead.map(|(_, seed, index)| Rng::new(seed, 0x4c49_0001, index)),
            discipline: spec.settings.as_ref().map(|s| Any::new(s).expect("sane settings")),
            sending: None,
            transmitted: (0, 0),
        };
        let wires = specs.iter().map(wire).collect();
        let seen = Seen::default();
        let paths = paths.to_vec();
        let mut naive = Naive { wires, paths, members, events: BTreeMap::new(), seen };
        for member in 0..naive.members.len() {
            naive.attend(member, Time::ZERO);
        }
        naive
    }

    pub fn transmitted(&self, link: usize) -> (u64, u64) {
        self.wires[link].transmitted
    }

    pub fn run_until(&mut self, end: Time) {
        while let Some((&(now, event), _)) = self.events.first_key_value() {
            if now > end {
                break;
            }
            let packets = self.events.remove(&(now, event)).expect("the first");
            match event {
                Event::Sent(link) => self.sent(link, now),
                Event::Lands(link) => {
                    for packet in packets {
                        self.lands(link, now, packet);
                    }
                }
                Event::Timer(member) => {
                    if self.members[member].0.poll_timeout().is_some_and(|due| due <= now) {
                        self.members[member].0.handle_timeout(now, &mut ());
                    }
                    self.attend(member, now);
                }
            }
        }
    }

    fn sent(&mut self, link: usize, now: Time) {
        let wire = &mut self.wires[link];
        let (_, packet) = wire.sending.take().expect("a transmission");
        wire.transmitted.0 += 1;
        wire.transmitted.1 += u64::from(packet.bytes);
        let key = (now + wire.spec.delay, Event::Lands(link));
        self.events.entry(key).or_default().push_back(packet);
        self.start(link, now);
    }

    fn start(&mut self, link: usize, now: Time) {
        let wire = &mut self.wires[link];
        if wire.sending.is_some() {
            return;
        }
        let mut drops: Vec<(Reason, Packet)> = Vec::new();
        let next = match &mut wire.discipline {
            Some(discipline) => {
                discipline.dequeue(now, &mut drops).map(|packet| (Span::ZERO, packet))
            }
            None => wire.fifo.pop_front(),
        };
        if let Some((overhead, packet)) = next {
            let end = now + overhead + wire.spec.rate.span_of(u64::from(packet.bytes));
            wire.sending = Some((end, packet));
            self.events.insert((end, Event::Sent(link)), VecDeque::new());
        }
        self.drop(link, drops);
    }

    fn drop(&mut self, link: usize, drops: Vec<(Reason, Packet)>) {
        if self.seen.drops.len() <= link {
            self.seen.drops.resize_with(link + 1, Vec::new);
        }
        self.seen.drops[link].extend(drops);
    }

    fn send(&mut self, link: usize, now: Time, packet: Packet) {
        let wire = &mut self.wires[link];
        let mut drops = Vec::new();
        let span = |packet: &Packet| wire.spec.rate.span_of(u64::from(packet.bytes)).0;
        if packet.bytes > wire.spec.mtu {
            drops.push((Reason::TooBig, packet));
        } else if let Some(discipline) = &mut wire.discipline {
            discipline.enqueue(now, packet, &mut drops);
        } else {
            let rest = wire.sending.map_or(0, |(end, _)| end.since(now).0);
            let waiting = rest
                + wire.fifo.iter().map(|(before, packet)| before.0 + span(packet)).sum::<u64>();
            if waiting > wire.spec.rate.span_of(wire.spec.fifo_bytes).0 {
                drops.push((Reason::Full, packet));
            } else {
                let most = wire.spec.overhead.map_or(Span::ZERO, |(most, ..)| most);
                let before = wire.chance.as_mut().map_or(0, |chance| chance.below(most.0));
                wire.fifo.push_back((Span(before), packet));
            }
        }
        self.drop(link, drops);
        self.start(link, now);
    }

    fn lands(&mut self, link: usize, now: Time, packet: Packet) {
        let path = &self.paths[packet.route.0 as usize];
        let here = path.iter().position(|&hop| hop == Hop::Link(link as u32)).expect("on its path");
        match path[here + 1] {
            Hop::Link(next) => self.send(next as usize, now, packet),
            Hop::Member(member, port) => {
                self.seen.deliveries.push((now, member as usize, packet));
                let port = Port(u32::from(port));
                self.members[member as usize].0.receive(now, port, &packet, &mut ());
                self.attend(member as usize, now);
            }
        }
    }

    fn attend(&mut self, member: usize, now: Time) {
        let mut packet = Packet::default();
        while let Some(port) = self.members[member].0.poll_transmit(now, &mut packet, &mut ()) {
            let link = self.members[member].1[port.0 as usize];
            self.send(link as usize, now, packet);
        }
        if let Some(due) = self.members[member].0.poll_timeout() {
            self.events.entry((due, Event::Timer(member))).or_default();
        }
    }
}
