//! Builds a network that is not yet running, and a list of its flows, from a scenario and a seed.

mod models;
mod routers;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nilometer_stat::Rng;
use nilometer_tcp::Config;
use nilometer_traffic::TrafficModel;
use nilometer_wire::{Rate, Span, Time};
use routers::Routers;

use crate::course::{Course, DELAYS_MAX, INTERVALS_MAX};
use crate::datagram::{HEADERS_BYTES, Pattern, Sink, Sizing, Source, Spacing};
use crate::endpoint::{ENDLESS, Endpoint};
use crate::fault_box::FaultBox;
use crate::forwarder::MakeRouter;
use crate::member::Member;
use crate::packet::Route;
use crate::plan::{Hop, Plan};
use crate::quantity::seconds;
use crate::refusal::Refusal;
use crate::scenario::{DatagramSpec, Drawn, Scenario, VERSION};
use crate::stack::FlowSpec;
use crate::topology::{GroupPath, Passage, Step, Topology};
use crate::wiring::{faults, links};

/// The purpose of the random stream that delays starts, by flow.
const PURPOSE_START: u32 = 0x5341_0001;
/// The purpose of the random stream of initial sequence numbers, by route.
const PURPOSE_SEQUENCE: u32 = 0x5341_0002;
/// Most flows of a run.
pub const FLOWS_MAX: u64 = 1_000_000;
/// Longest run, seconds.
pub const DURATION_MAX_S: f64 = 1e6;

nilometer_wire::named! {
    /// What makes a flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FlowKind {
        /// `[[flow]]`.
        Tcp = "tcp",
        /// A connection of a `[[model]]`.
        Model = "model",
        /// `[[datagrams]]`.
        Datagrams = "datagrams",
    }
}

/// One flow of a run: the number of its routes is its place in the list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// What makes it.
    pub kind: FlowKind,
    /// Which table of the scenario, counted among its kind.
    pub table: u32,
    /// The member that sends.
    pub sender: u32,
    /// The member that receives.
    pub receiver: u32,
    /// Its part of the bottleneck, bits per second, if it passes it and is measured.
    pub share: Option<f64>,
}

/// A network about to begin.
#[derive(Debug)]
pub struct Assembly {
    /// Links, paths and members.
    pub plan: Plan<Member>,
    /// The flows and their members.
    pub flows: Vec<Flow>,
    /// The digest of each `[[model]]`'s plan: the same as a live run's with this seed.
    pub plan_digests: Vec<[u8; 32]>,
    /// The measured link.
    pub bottleneck: u32,
    /// Its rate.
    pub rate: Rate,
    /// How long it runs.
    pub duration: Span,
}

/// Sets up the run of `scenario` with `seed`; `models` are those of its `[[model]]` tables.
///
/// # Errors
/// The first thing that is wrong with the scenario; a router with a description of its own.
pub fn assemble(
    scenario: &Scenario,
    models: &[TrafficModel],
    seed: u64,
) -> Result<Assembly, Refusal> {
    assemble_with(scenario, models, seed, &mut |site| {
        let what = "it has a file, which is not supported here";
        Err(Refusal::value(format!("router `{}`", site.name), what))
    })
}

/// As [`assemble`], with `make` for the routers that have a description of their own.
///
/// # Errors
/// The first thing that is wrong with the scenario.
pub fn assemble_with(
    scenario: &Scenario,
    models: &[TrafficModel],
    seed: u64,
    make: &mut MakeRouter<'_>,
) -> Result<Assembly, Refusal> {
    if scenario.version != VERSION {
        return Err(Refusal::Version(scenario.version));
    }
    if !(scenario.duration_s > 0.0 && scenario.duration_s <= DURATION_MAX_S) {
        let what = format!("it is above 0 and at most {DURATION_MAX_S}");
        return Err(Refusal::value("duration_s", what));
    }
    let topology = Topology::new(scenario)?;
    let bottleneck = topology.wire("measure.bottleneck", &scenario.measure.bottleneck)?;
    if topology.instances(bottleneck) != 1 {
        let what = "it is one link for each host of a group; name one between routers";
        return Err(Refusal::value("measure.bottleneck", what));
    }
    let step = Step { wire: bottleneck, is_back: false };
    let mut assembly = Assembly {
        plan: Plan {
            links: links(scenario, &topology, seed)?,
            paths: Vec::new(),
            members: Vec::new(),
            watched: Some(topology.link(step, 0)),
        },
        flows: Vec::new(),
        plan_digests: Vec::new(),
        bottleneck: topology.link(step, 0),
        rate: scenario.link[bottleneck].rate,
        duration: seconds("duration_s", scenario.duration_s)
            .map_err(|what| Refusal::value("duration_s", what))?,
    };
    let (boxes, ends) = (Vec::new(), Vec::new());
    let (routers, placed) = (Routers::default(), &mut assembly);
    let mut making = Making { topology, seed, boxes, routers, ends, assembly: placed };
    making.boxes(scenario)?;
    making.routers(scenario, make)?;
    for (table, spec) in scenario.flow.iter().enumerate() {
        making.flows(table, spec)?;
    }
    for (table, (spec, model)) in scenario.model.iter().zip(models).enumerate() {
        making.model(table, spec, model)?;
    }
    let mut kept = 0.0;
    for (table, spec) in scenario.datagrams.iter().enumerate() {
        kept += making.datagrams(table, spec, scenario.measure.delays_every)?;
    }
    if kept > DELAYS_MAX {
        let what = format!("{kept:.0} delays would be kept of a run; the most is {DELAYS_MAX}");
        return Err(Refusal::value("measure.delays_every", what));
    }
    making.introduce();
    if assembly.flows.is_empty() {
        return Err(Refusal::value(
            "scenario",
            "it has no [[flow]], no [[model]] and no [[datagrams]]",
        ));
    }
    share(scenario, bottleneck, &mut assembly);
    Ok(assembly)
}

/// One TCP flow to be made.
struct Transfer {
    table: usize,
    kind: FlowKind,
    config: Config,
    start: Time,
    bytes: u64,
}

/// Flows being made.
struct Making<'a> {
    topology: Topology,
    seed: u64,
    /// Of each declared link, the first of the fault boxes before its instances.
    boxes: Vec<Option<u32>>,
    /// Where routers with descriptions stand.
    routers: Routers,
    /// The addresses of each flow's ends; empty if no router needs them.
    ends: Vec<[Ipv4Addr; 2]>,
    assembly: &'a mut Assembly,
}

impl Making<'_> {
    /// Puts a fault box before each instance of the links that have faults, in their declared
    /// direction.
    fn boxes(&mut self, scenario: &Scenario) -> Result<(), Refusal> {
        for (wire, spec) in scenario.link.iter().enumerate() {
            let place = format!("link `{}`", spec.name);
            let faults = faults(&place, spec)?;
            if faults.is_some() && !self.topology.leaves_router(wire) {
                let what = "faults are for links that leave a router; turn it round or choose one";
                return Err(Refusal::value(place, what));
            }
            let members = &mut self.assembly.plan.members;
            self.boxes.push(faults.map(|_| members.len() as u32));
            for instance in 0..faults.map_or(0, |_| self.topology.instances(wire)) {
                let link = self.topology.link(Step { wire, is_back: false }, instance);
                let fault_box =
                    FaultBox::new(faults.unwrap_or_default(), self.seed, u64::from(link));
                // What comes in at port 0 goes out at port 1.
                members.push((Member::Fault(Box::new(fault_box)), vec![link, link]));
            }
        }
        Ok(())
    }

    /// How many flows a table stands for, and the sizes of its two groups.
    fn count(
        &self,
        place: &str,
        ends: [&str; 2],
        count: Option<u32>,
    ) -> Result<(u32, [u32; 2]), Refusal> {
        let sizes = self.topology.ends(place, ends[0], ends[1])?;
        let count = count.unwrap_or(sizes[0].max(sizes[1]));
        let total = self.assembly.flows.len() as u64 + u64::from(count);
        if count == 0 || total > FLOWS_MAX {
            let what = format!("count is between 1 and {FLOWS_MAX} in all");
            return Err(Refusal::value(place, what));
        }
        Ok((count, sizes))
    }

    fn flows(&mut self, table: usize, spec: &FlowSpec) -> Result<(), Refusal> {
        let place = format!("[[flow]] number {}", table + 1);
        let refuse = |what: String| Refusal::value(&*place, what);
        let (count, sizes) = self.count(&place, [&spec.from, &spec.to], spec.count)?;
        let config = spec.config(&place)?;
        let start = seconds("start_s", spec.start_s).map_err(refuse)?;
        let jitter = seconds("start_jitter_ms", spec.start_jitter_ms / 1e3).map_err(refuse)?;
        let ways = self.ways(&spec.from, &spec.to)?;
        for number in 0..count {
            let flow = self.assembly.flows.len() as u64;
            let late = match jitter.0 {
                0 => Span::ZERO,
                picos => Span(Rng::new(self.seed, PURPOSE_START, flow).below(picos)),
            };
            let transfer = Transfer {
                table,
                kind: FlowKind::Tcp,
                config,
                start: Time::ZERO + start + late,
                bytes: spec.bytes.unwrap_or(ENDLESS),
            };
            self.connect([&ways[0], &ways[1]], [number % sizes[0], number % sizes[1]], transfer)?;
        }
        Ok(())
    }

    /// The ways there and back.
    fn ways(&mut self, from: &str, to: &str) -> Result<[GroupPath; 2], Refusal> {
        Ok([self.topology.way(from, to)?, self.topology.way(to, from)?])
    }

    /// Adds one TCP flow that carries bytes from one host to another.
    fn connect(
        &mut self,
        ways: [&GroupPath; 2],
        hosts: [u32; 2],
        transfer: Transfer,
    ) -> Result<(), Refusal> {
        let Transfer { table, kind, config, start, bytes } = transfer;
        self.join(ways, hosts, (kind, table), |route, sequences| {
            let client = Endpoint::client(config, route, start, bytes, sequences[0]);
            let server = Endpoint::server(config, route.reverse(), bytes, sequences[1]);
            [Member::Endpoint(client), Member::Endpoint(server)]
        })
    }

    /// Adds a flow between two hosts: two paths, and the two ends that `ends` makes of the first one's route
    /// and of their initial sequence numbers.
    fn join(
        &mut self,
        ways: [&GroupPath; 2],
        hosts: [u32; 2],
        (kind, table): (FlowKind, usize),
        ends: impl FnOnce(Route, [u32; 2]) -> [Member; 2],
    ) -> Result<(), Refusal> {
        let number = self.assembly.flows.len() as u32;
        let there = self.topology.passages(ways[0], hosts[0], hosts[1])?;
        let back = self.topology.passages(ways[1], hosts[1], hosts[0])?;
        self.note_ends(ways[0], hosts);
        let flow = self.place(kind, table);
        let sequence = |way: u64| {
            Rng::new(self.seed, PURPOSE_SEQUENCE, 2 * u64::from(number) + way).next_u64() as u32
        };
        let [first, second] = ends(Route::out(number), [sequence(0), sequence(1)]);
        self.add(&there, first, Some(flow.receiver));
        self.add(&back, second, Some(flow.sender));
        self.assembly.flows.push(flow);
        Ok(())
    }

    /// The sources and sinks of a table; how many delays they will keep.
    fn datagrams(
        &mut self,
        table: usize,
        spec: &DatagramSpec,
        every: Option<Span>,
    ) -> Result<f64, Refusal> {
        let place = format!("[[datagrams]] number {}", table + 1);
        let (count, sizes) = self.count(&place, [&spec.from, &spec.to], spec.count)?;
        let pattern = pattern(&place, spec, self.assembly.duration)?;
        let course = every.map(|every| course(every, self.assembly.duration)).transpose()?;
        let way = self.topology.way(&spec.from, &spec.to)?;
        for number in 0..count {
            let hosts = [number % sizes[0], number % sizes[1]];
            let passages = self.topology.passages(&way, hosts[0], hosts[1])?;
            self.note_ends(&way, hosts);
            let route = Route::out(self.assembly.flows.len() as u32);
            let source = Source::new(pattern, route, self.seed);
            let flow = self.place(FlowKind::Datagrams, table);
            self.add(&passages, Member::Source(Box::new(source)), Some(flow.receiver));
            self.assembly.plan.paths.push(Vec::new());
            let sink = Sink { course: course.clone().map(Box::new), ..Sink::default() };
            self.assembly.plan.members.push((Member::Sink(sink), Vec::new()));
            self.assembly.flows.push(flow);
        }
        let kept = if course.is_some() { pattern.packets() * f64::from(count) } else { 0.0 };
        Ok(kept)
    }

    /// The next flow, whose two ends are the next two members.
    fn place(&self, kind: FlowKind, table: usize) -> Flow {
        let sender = self.assembly.plan.members.len() as u32;
        Flow { kind, table: table as u32, sender, receiver: sender + 1, share: None }
    }

    /// Adds a member that sends over `passages`, and the path to `receiver`.
    fn add(&mut self, passages: &[Passage], member: Member, receiver: Option<u32>) {
        let mut path = Vec::with_capacity(passages.len() + 1);
        for (number, passage) in passages.iter().enumerate() {
            let came = number.checked_sub(1).map(|before| passages[before].step);
            let router = came.and_then(|step| self.routers.entrance(&self.topology, step));
            path.extend(router.map(|(member, port)| Hop::Member(member, port)));
            let before = self.boxes[passage.step.wire].filter(|_| !passage.step.is_back);
            path.extend(before.map(|first| Hop::Member(first + passage.instance, 0)));
            path.push(Hop::Link(passage.link));
        }
        path.extend(receiver.map(|receiver| Hop::Member(receiver, 0)));
        self.assembly.plan.paths.push(path);
        let ports = vec![passages[0].link];
        self.assembly.plan.members.push((member, ports));
    }
}

/// The course of a run of this length, empty.
fn course(every: Span, duration: Span) -> Result<Course, Refusal> {
    let refuse = |what| Err(Refusal::value("measure.delays_every", what));
    if every == Span::ZERO {
        return refuse("it is more than nothing".into());
    }
    if duration.0.div_ceil(every.0) > INTERVALS_MAX {
        return refuse(format!("a run has at most {INTERVALS_MAX} intervals"));
    }
    Ok(Course::new(every, duration))
}

/// When the packets of a table leave, and how long they are.
fn pattern(place: &str, spec: &DatagramSpec, duration: Span) -> Result<Pattern, Refusal> {
    let refuse = |what: String| Refusal::value(place, what);
    if spec.size_bytes < HEADERS_BYTES {
        return Err(refuse(format!("size_bytes is at least {HEADERS_BYTES}, the headers")));
    }
    let sizing = match spec.sizes {
        Drawn::Constant => Sizing::Constant(spec.size_bytes),
        Drawn::Exponential => Sizing::Exponential(f64::from(spec.size_bytes)),
    };
    let mean = match (spec.rate, spec.spacing) {
        (Some(rate), None) => match sizing {
            Sizing::Constant(bytes) => rate.span_of(u64::from(bytes)),
            Sizing::Exponential(_) => {
                let bits = 8.0 * sizing.mean_bytes();
                Span::from_secs_f64(bits / rate.bits_per_second() as f64)
            }
        },
        (None, Some(span)) => span,
        _ => return Err(refuse("give either rate or spacing".into())),
    };
    if mean == Span::ZERO {
        return Err(refuse("spacing is more than nothing".into()));
    }
    let start = Time::ZERO + seconds("start_s", spec.start_s).map_err(refuse)?;
    let end = match spec.end_s {
        Some(end) => Time::ZERO + seconds("end_s", end).map_err(refuse)?,
        None => Time::ZERO + duration,
    };
    let spacing = match spec.arrivals {
        Drawn::Constant => Spacing::Constant(mean),
        Drawn::Exponential => Spacing::Exponential(mean),
    };
    Ok(Pattern { start, end, spacing, sizing })
}

/// Gives each measured flow its fair share: the rate of the bottleneck, in the direction in which the
/// flow passes it, by the number of measured flows in that direction. TCP flows are measured; where
/// there are none, datagrams are.
fn share(scenario: &Scenario, bottleneck: usize, assembly: &mut Assembly) {
    let spec = &scenario.link[bottleneck];
    let rates = [spec.rate, spec.rate_back.unwrap_or(spec.rate)];
    let has_tcp = assembly.flows.iter().any(|flow| flow.kind == FlowKind::Tcp);
    let kind = if has_tcp { FlowKind::Tcp } else { FlowKind::Datagrams };
    let direction = |number: usize| {
        let path = &assembly.plan.paths[2 * number];
        (0..2).find(|&back| path.contains(&Hop::Link(assembly.bottleneck + back)))
    };
    let directions: Vec<Option<u32>> = (0..assembly.flows.len()).map(direction).collect();
    let mut counts = [0u32; 2];
    for (flow, direction) in assembly.flows.iter().zip(&directions) {
        if let (true, Some(direction)) = (flow.kind == kind, direction) {
            counts[*direction as usize] += 1;
        }
    }
    for (flow, direction) in assembly.flows.iter_mut().zip(&directions) {
        let way = direction.filter(|_| flow.kind == kind).map(|way| way as usize);
        flow.share = way.map(|way| rates[way].bits_per_second() as f64 / f64::from(counts[way]));
    }
}
