//! A network in virtual time: RSVP processes joined by links that delay, lose and break.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use nilometer_reservation::admission::Side;
use nilometer_reservation::message::{FlowDescriptor, FlowSpec, Sender, Session, Tspec};
use nilometer_reservation::process::{Interface, NextHop, Routing, RsvpProcess, Settings};
use nilometer_reservation::{Arrival, Command, Reservation, ReservationId, Upcall, packet};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, Time};

const DELAY: Span = Span::from_nanos(1_000_000);
/// Links of 80 Mb/s: 8,000,000 B/s of 10,000,000 may be reserved.
pub const CAPACITY: Rate = Rate::from_megabits(80);
pub const RESERVABLE: u64 = 8_000_000;
pub const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 1, 1));

/// An end of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
struct End {
    node: usize,
    port: u32,
}

struct Link {
    ends: [End; 2],
    is_cut: bool,
}

/// Addresses of the two ends of link number `link`.
fn address(link: usize, end: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, link as u8, 1 + end as u8).into()
}

pub struct Network {
    pub nodes: Vec<RsvpProcess>,
    links: Vec<Link>,
    members: Vec<usize>,
    dead: Vec<bool>,
    pub now: Time,
    flying: VecDeque<(Time, End, Vec<u8>)>,
    /// Probability that a link loses a packet.
    pub loss: f64,
    rng: Rng,
    /// What the forwarding plane of each node has.
    pub planes: Vec<BTreeMap<ReservationId, Reservation>>,
    /// Reservations that each node has installed or changed.
    pub installs: Vec<u64>,
    pub upcalls: Vec<Vec<Upcall>>,
    /// Every packet that went by a link.
    pub packets: Vec<(Time, Vec<u8>)>,
}

/// The routing table of one node.
struct Table<'a> {
    links: &'a [Link],
    members: &'a [usize],
    node: usize,
}

impl Table<'_> {
    /// The first hop of a shortest way to a node, by breadth first search.
    fn towards(&self, target: usize) -> Option<NextHop> {
        let mut seen = vec![self.node];
        let mut queue = VecDeque::from([(self.node, None)]);
        while let Some((at, first)) = queue.pop_front() {
            if at == target {
                return first;
            }
            for (number, link) in self.links.iter().enumerate().filter(|(_, link)| !link.is_cut) {
                for end in 0..2 {
                    let (here, there) = (link.ends[end], link.ends[1 - end]);
                    if here.node == at && !seen.contains(&there.node) {
                        seen.push(there.node);
                        let address = address(number, 1 - end);
                        let first = first.or(Some(NextHop { port: here.port, address }));
                        queue.push_back((there.node, first));
                    }
                }
            }
        }
        None
    }
}

impl Routing for Table<'_> {
    fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>) {
        if destination == GROUP {
            to.extend(self.members.iter().filter_map(|member| self.towards(*member)));
            to.sort();
            to.dedup();
            return;
        }
        for (number, link) in self.links.iter().enumerate() {
            let end = (0..2).find(|end| address(number, *end) == destination);
            let Some(end) = end else { continue };
            let (node, here) = (link.ends[end].node, link.ends[1 - end]);
            // A neighbour is reached by its own link.
            match here.node == self.node && !link.is_cut {
                true => to.push(NextHop { port: here.port, address: destination }),
                false => to.extend(self.towards(node)),
            }
        }
    }
}

impl Network {
    /// As many nodes, joined by these links.
    pub fn new(nodes: usize, joined: &[(usize, usize)]) -> Network {
        Network::with_settings(nodes, joined, |_, _| {})
    }

    /// A network with other settings for each node.
    pub fn with_settings(
        nodes: usize,
        joined: &[(usize, usize)],
        set: impl Fn(usize, &mut Settings),
    ) -> Network {
        let mut interfaces: Vec<Vec<Interface>> = vec![Vec::new(); nodes];
        let mut links = Vec::new();
        for (number, &(a, b)) in joined.iter().enumerate() {
            let ends = [(a, 0), (b, 1)].map(|(node, end): (usize, usize)| {
                let port = interfaces[node].len() as u32;
                interfaces[node].push(Interface::new([address(number, end)], CAPACITY));
                End { node, port }
            });
            links.push(Link { ends, is_cut: false });
        }
        let process = |(node, interfaces)| {
            let mut settings = Settings::new(interfaces, node as u64);
            set(node, &mut settings);
            RsvpProcess::new(settings)
        };
        Network {
            nodes: (0..).zip(interfaces).map(process).collect(),
            links,
            members: Vec::new(),
            dead: vec![false; nodes],
            now: Time::ZERO,
            flying: VecDeque::new(),
            loss: 0.0,
            rng: Rng::new(1, u32::from_be_bytes(*b"loss"), 0),
            planes: vec![BTreeMap::new(); nodes],
            installs: vec![0; nodes],
            upcalls: vec![Vec::new(); nodes],
            packets: Vec::new(),
        }
    }

    /// The address of a node, that of its first link.
    pub fn address(&self, node: usize) -> IpAddr {
        let place = self.links.iter().enumerate().find_map(|(number, link)| {
            let end = (0..2).find(|end| link.ends[*end].node == node)?;
            Some(address(number, end))
        });
        place.expect("every node has a link")
    }

    /// Calls a process with its routing table, and takes its output.
    pub fn with<T>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut RsvpProcess, Time, &dyn Fn(IpAddr, &mut Vec<NextHop>)) -> T,
    ) -> T {
        let table = Table { links: &self.links, members: &self.members, node };
        let query = |destination, to: &mut Vec<NextHop>| table.route_query(destination, to);
        let outcome = act(&mut self.nodes[node], self.now, &query);
        self.collect(node);
        outcome
    }

    pub fn join(&mut self, node: usize) {
        self.members.push(node);
        self.nodes[node].join(GROUP);
    }

    /// Removes the node, which no longer sends anything.
    pub fn kill(&mut self, node: usize) {
        self.dead[node] = true;
    }

    pub fn cut(&mut self, link: usize) {
        self.links[link].is_cut = true;
    }

    pub fn join_link(&mut self, link: usize) {
        self.links[link].is_cut = false;
    }

    fn collect(&mut self, node: usize) {
        while let Some(transmit) = self.nodes[node].poll_transmit() {
            let here = End { node, port: transmit.port };
            let link = self.links.iter().find(|link| link.ends.contains(&here));
            let link = link.expect("a port has a link");
            let there = if link.ends[0] == here { link.ends[1] } else { link.ends[0] };
            let bytes = transmit.packet();
            self.packets.push((self.now, bytes.clone()));
            if !link.is_cut && self.rng.unit() >= self.loss {
                self.flying.push_back((self.now + DELAY, there, bytes));
            }
        }
        while let Some(command) = self.nodes[node].poll_command() {
            match command {
                Command::Install(reservation) => {
                    self.installs[node] += 1;
                    self.planes[node].insert(reservation.id, reservation);
                }
                Command::Remove(id) => {
                    assert!(self.planes[node].remove(&id).is_some(), "removed what was there");
                }
            }
        }
        while let Some(upcall) = self.nodes[node].poll_upcall() {
            self.upcalls[node].push(upcall);
        }
        self.check(node);
    }

    /// Checks that nothing vanishes: messages are counted, and what is booked is what the forwarding plane has.
    fn check(&self, node: usize) {
        let process = &self.nodes[node];
        let counts = process.counts();
        assert_eq!(counts.received, counts.effective + counts.discarded.iter().sum::<u64>());
        let plane = &self.planes[node];
        let listed = process.reservations();
        assert_eq!(
            listed.iter().map(|r| r.id).collect::<Vec<_>>(),
            plane.keys().copied().collect::<Vec<_>>()
        );
        for reservation in &listed {
            let installed = &plane[&reservation.id];
            let expires_at = reservation.expires_at;
            assert_eq!(*reservation, Reservation { expires_at, ..installed.clone() });
        }
        let admission = process.admission();
        for port in (0..).take_while(|port| admission.reservable(*port).is_some()) {
            let sum = |is_there: &dyn Fn(&&Reservation) -> bool| -> u64 {
                plane.values().filter(is_there).map(|r| r.rate_bytes).sum()
            };
            let [input, output] = Side::ALL.map(|side| admission.booked(port, side));
            assert_eq!(input, Some(sum(&|r| r.inputs.contains(&port))));
            assert_eq!(output, Some(sum(&|r| r.output == port)));
        }
    }

    /// Time passes until `until`.
    pub fn run_until(&mut self, until: Time) {
        loop {
            let arrival = self.flying.front().map(|(at, ..)| *at);
            let dead = &self.dead;
            let alive = self.nodes.iter_mut().enumerate().filter(|(node, _)| !dead[*node]);
            let timers = alive.filter_map(|(_, process)| process.poll_timeout());
            let Some(next) = timers.chain(arrival).min().filter(|next| *next <= until) else {
                break;
            };
            self.now = next.max(self.now);
            if arrival == Some(next) {
                let (_, end, bytes) = self.flying.pop_front().expect("it is there");
                self.arrive(end, &bytes);
            }
            for node in 0..self.nodes.len() {
                if !self.dead[node] {
                    self.nodes[node].handle_timeout(self.now);
                    self.collect(node);
                }
            }
        }
        self.now = until;
    }

    pub fn run(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    fn arrive(&mut self, end: End, bytes: &[u8]) {
        if self.dead[end.node] {
            return;
        }
        let (envelope, message) = packet::read(bytes).expect("our own packets");
        let arrival = Arrival { port: end.port, source: envelope.source, ttl: envelope.ttl };
        self.with(end.node, |process, now, query| {
            process.handle_message(now, &arrival, message, &RoutesByClosure(query));
        });
    }

    /// The rates that a node has installed, smallest first.
    pub fn rates(&self, node: usize) -> Vec<u64> {
        let mut rates: Vec<u64> = self.planes[node].values().map(|r| r.rate_bytes).collect();
        rates.sort_unstable();
        rates
    }

    /// Upcalls of a node since the last time.
    pub fn take_upcalls(&mut self, node: usize) -> Vec<Upcall> {
        std::mem::take(&mut self.upcalls[node])
    }

    /// A sender on a node announces 1 MB/s, or whatever rate is given.
    pub fn announce(&mut self, node: usize, session: Session, rate: f32) -> Sender {
        let sender = Sender { source: self.address(node), port: 4_000 };
        let tspec = Tspec::new(rate, 3_000.0);
        let announced = self.with(node, |process, now, query| {
            process.announce(now, session, (sender, tspec), None, &RoutesByClosure(query))
        });
        assert_eq!(announced, Ok(()));
        sender
    }
}

/// A routing table behind a closure.
pub struct RoutesByClosure<'a>(pub &'a dyn Fn(IpAddr, &mut Vec<NextHop>));

impl Routing for RoutesByClosure<'_> {
    fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>) {
        (self.0)(destination, to);
    }
}

pub fn udp_session(destination: IpAddr) -> Session {
    Session { destination, protocol: 17, port: 5_004 }
}

pub fn load(rate: f32) -> FlowSpec {
    FlowSpec::controlled_load(Tspec::new(rate, 3_000.0))
}

pub fn descriptor(rate: f32, senders: &[Sender]) -> FlowDescriptor {
    FlowDescriptor { flowspec: load(rate), senders: senders.to_vec() }
}

pub const SECOND: Span = Span::from_secs(1);
