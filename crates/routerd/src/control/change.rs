//! Fabric, ports, lookup engines and classifier, changed while packets pass.

use nilometer_router::classifier::{ByPort, Classified, Inputs, Refused as Full, Rule, RuleId};
use nilometer_router::memory::ReturnBuffers;
use nilometer_router::{Engine, EngineFault, Routed};
use nilometer_sim::quantity::span_text;
use nilometer_sim::queueing::QueueSpec;

use super::answer::Refused;
use super::command_channel::{CommandChannel, InForce};
use super::look::{no_port, shown_rate};
use super::view::{ClassifierBody, DelayBody, EngineBody, FabricBody, RateBody};
use crate::config::{PortSection, RouterConfig};
use crate::filter::{ClassifierName, Side};
use crate::machine::{PortPlace, fabric};
use crate::pace::Pace;
use crate::queue_size::{self, sized};
use crate::recording::Command;

/// A new classifier filled with the rules, or [`Full`].
type Filled<A> = Result<ByPort<A>, Full>;

impl CommandChannel {
    /// Gives the fabric other equations, another period or speed-up. Waiting packets stay.
    ///
    /// # Errors
    /// 400 for a value out of its range.
    pub fn set_fabric(&self, body: FabricBody) -> Result<String, Refused> {
        let mut in_force = self.change();
        let section = body.over(&in_force.config.fabric).map_err(Refused::bad)?;
        let changed = RouterConfig { fabric: section.clone(), ..in_force.config.clone() };
        let plan = fabric(&changed).map_err(Refused::bad)?;
        let command = Command::Fabric(Box::new(section.clone()));
        let done = self.ask(move |driver| {
            let mut done = Ok(());
            let recorded = driver.change(
                || command,
                |now, router, memory| {
                    let drops = &mut ReturnBuffers(memory);
                    done = router.fabric_mut().set_queueing(now, plan.shape, plan.variant, drops);
                },
            );
            recorded.map_err(Refused::unavailable)?;
            done.map_err(Refused::bad)
        })?;
        done?;
        let text = format!(
            "fabric: {}, speed-up {}, period {}",
            plan.variant.map_or("off", |variant| variant.name()),
            section.speedup,
            span_text(section.period)
        );
        in_force.config.fabric = section;
        Ok(self.report_change(text))
    }

    /// Gives an output another discipline; waiting packets move to it in the order in which they
    /// would have left. A discipline without a size holds what the rate carries in 50 ms.
    ///
    /// # Errors
    /// 400 for an invalid discipline, 404 for no such port.
    pub fn set_queue(&self, number: usize, queue: QueueSpec) -> Result<String, Refused> {
        let mut in_force = self.change();
        let rate = port_section(&mut in_force, number)?.rate;
        let has_size = queue.has_size();
        let queue = sized(queue, in_force.config.queue_rate(number));
        let plan = self.ask(move |driver| driver.router().ports()[number].plan().clone())?;
        let place = PortPlace { plan: &plan, number, rate, config: &in_force.config };
        let discipline = place.discipline(Some(&queue)).map_err(Refused::bad)?;
        let command = Command::Queue {
            port: number,
            rate_bps: rate.map(|rate| rate.bits_per_second()),
            queue: Box::new(queue.clone()),
        };
        let done = self.ask(move |driver| {
            driver.change(
                || command,
                |now, router, memory| {
                    let drops = &mut ReturnBuffers(memory);
                    router.fabric_mut().set_discipline(now, number, discipline, drops);
                },
            )
        })?;
        done.map_err(Refused::unavailable)?;
        let section = port_section(&mut in_force, number)?;
        let mut text =
            format!("port {}: the discipline is {}", section.interface, queue.discipline);
        if let Some(packets) = queue.buffer_packets.filter(|_| !has_size) {
            let held = span_text(queue_size::HELD);
            text += &format!(" with {packets} packets, for some {held} at its rate");
        }
        section.queue = Some(queue);
        Ok(self.report_change(text))
    }

    /// Sets an output's link to another rate, with another burst where one is given. A discipline
    /// that was created for a rate keeps that one.
    ///
    /// # Errors
    /// 400 for no rate or no such burst, 404 for no such port.
    pub fn set_rate(&self, number: usize, body: &RateBody) -> Result<String, Refused> {
        let rate = body.rate().map_err(Refused::bad)?;
        let mut in_force = self.change();
        let section = port_section(&mut in_force, number)?;
        let burst_bytes = body.burst_bytes.or(section.burst_bytes);
        let pace = Pace { rate, burst_bytes, ..section.pace() };
        self.ask(move |driver| driver.set_pace(number, pace))?;
        (section.rate, section.burst_bytes) = (rate, burst_bytes);
        let burst = burst_bytes.filter(|_| rate.is_some());
        let burst = burst.map_or(String::new(), |bytes| format!(", the burst {bytes} bytes"));
        let name = &section.interface;
        Ok(self.report_change(format!("port {name}: the rate is {}{burst}", shown_rate(rate))))
    }

    /// Makes an output's link longer or shorter, for packets that leave from now on.
    ///
    /// # Errors
    /// 400 for no time, 404 for no such port.
    pub fn set_delay(&self, number: usize, body: &DelayBody) -> Result<String, Refused> {
        let delay = body.delay().map_err(Refused::bad)?;
        let mut in_force = self.change();
        let section = port_section(&mut in_force, number)?;
        let pace = Pace { delay, ..section.pace() };
        self.ask(move |driver| driver.set_pace(number, pace))?;
        section.delay = delay;
        Ok(self.report_change(format!(
            "port {}: the delay is {}",
            section.interface,
            span_text(delay)
        )))
    }

    /// The lookup engines.
    pub fn engine(&self) -> EngineBody {
        let tables = self.change().config.tables.clone();
        let name = |engine: Engine| Some(engine.name().to_owned());
        EngineBody { v4: name(tables.engine_v4), v6: name(tables.engine_v6) }
    }

    /// Lets other engines look routes up: their tables are loaded here and exchanged between two
    /// turns.
    ///
    /// # Errors
    /// 400 for no such engine, 409 for one that cannot hold the routes or name their next hops.
    pub fn set_engine(&self, body: &EngineBody) -> Result<String, Refused> {
        let engine = |text: &Option<String>| {
            let parse = |text: &String| text.parse().map_err(|why: EngineFault| Refused::bad(why));
            text.as_ref().map(parse).transpose()
        };
        let (v4, v6): (Option<Engine>, Option<Engine>) = (engine(&body.v4)?, engine(&body.v6)?);
        if v4.or(v6).is_none() {
            return Err(Refused::bad("give `v4`, `v6` or both"));
        }
        if let Some(unfit) = v6.filter(|engine| !u128::ENGINES.contains(engine)) {
            return Err(Refused::bad(EngineFault::Family(unfit)));
        }
        let (mut in_force, mut done) = (self.change(), Vec::new());
        if let Some(engine) = v4 {
            let mut is_there = Ok(());
            let install = |reader| {
                let swap = move |old: &mut _| std::mem::replace(old, reader);
                let old = self.ask(|driver| swap(&mut driver.router_mut().tables_mut().routes4));
                is_there = old.map(drop);
            };
            self.routes.rib_thread().exchange_v4(engine, install).map_err(Refused::conflict)?;
            is_there?;
            in_force.config.tables.engine_v4 = engine;
            done.push(self.report_change(format!("IPv4 routes are looked up in {engine}")));
        }
        if let Some(engine) = v6 {
            let mut is_there = Ok(());
            let install = |reader| {
                let swap = move |old: &mut _| std::mem::replace(old, reader);
                let old = self.ask(|driver| swap(&mut driver.router_mut().tables_mut().routes6));
                is_there = old.map(drop);
            };
            self.routes.rib_thread().exchange_v6(engine, install).map_err(Refused::conflict)?;
            is_there?;
            in_force.config.tables.engine_v6 = engine;
            done.push(self.report_change(format!("IPv6 routes are looked up in {engine}")));
        }
        Ok(done.join(", "))
    }

    /// The classifier.
    pub fn classifier(&self) -> ClassifierBody {
        ClassifierBody { classifier: self.change().config.tables.classifier }
    }

    /// Lets another classifier find the filters; it is filled here, and exchanged between two turns.
    ///
    /// # Errors
    /// 409 when it cannot hold the filters.
    pub fn set_classifier(&self, body: ClassifierBody) -> Result<String, Refused> {
        let mut in_force = self.change();
        let (name, room) = (body.classifier, in_force.config.tables.filters);
        let (mut fours, mut sixes) = (Vec::new(), Vec::new());
        for (&id, filter) in &in_force.filters {
            let (four, six) = filter.rules().map_err(Refused::conflict)?;
            let side = in_force.config.side_of(filter).map_err(Refused::conflict)?;
            let Side::Input(inputs) = side else { continue };
            fours.extend(four.map(|rule| (RuleId(id), inputs, rule)));
            sixes.extend(six.map(|rule| (RuleId(id), inputs, rule)));
        }
        let four = filled(name, room, fours).map_err(Refused::conflict)?;
        let six = filled(name, room, sixes).map_err(Refused::conflict)?;
        let is_done = self.ask(move |driver| {
            let tables = driver.router_mut().tables_mut();
            let fits = four.len() == tables.filters4.len() && six.len() == tables.filters6.len();
            // The old ones are freed by the requesting thread, not by the forwarding thread.
            fits.then(|| {
                (tables.filters4.exchange_filled(four), tables.filters6.exchange_filled(six))
            })
        })?;
        if is_done.is_none() {
            return Err(Refused::conflict("the filters are not those that were entered here"));
        }
        in_force.config.tables.classifier = name;
        Ok(self.report_change(format!("the classifier is {name:?}").to_lowercase()))
    }
}

fn filled<A: Classified + Send + 'static>(
    name: ClassifierName,
    room: u32,
    rules: Vec<(RuleId, Inputs, Rule<A>)>,
) -> Filled<A> {
    let mut classifier = ByPort::new(name.classifier(room));
    for (id, inputs, rule) in rules {
        classifier.insert(id, inputs, rule)?;
    }
    classifier.settle();
    Ok(classifier)
}

/// The section of a port; spare ports have none yet, and cannot be changed.
fn port_section(in_force: &mut InForce, number: usize) -> Result<&mut PortSection, Refused> {
    let InForce { config, .. } = in_force;
    if number >= config.ports.len() {
        return Err(no_port(number, config));
    }
    Ok(&mut config.ports[number])
}
