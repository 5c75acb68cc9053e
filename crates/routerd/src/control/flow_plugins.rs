//! Plugins of reserved flows: those named by signalling and reservations are fetched, made, and bound to the flow.
//!
//! ```text
//!   forwarding thread ── order ──► flow-plugins ─┬─ unbind ────────────────────────┐
//!     (reservation made,           (waits)       └─ flow-plugin: fetch, make, bind ┴─► between two turns
//!      changed or gone)                                         │
//!            ▲                                                  └─ refused: the reservation lives on without
//!            └──────────────────────────────────────────────────┘
//! ```
//!
//! The forwarding thread only gives orders ([`PluginOrders`]). A flow's plugins have instances of their own, named
//! after the reservation, and an active filter behind the operator's: what the operator's filters deny or hand to
//! other plugins stays so. Instances and filter are entered, recorded and shown like those of the API.

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use nilometer_reservation::message::plugins::FLOW_PLUGINS_MAX;
use nilometer_reservation::message::{FlowPlugins, NamedPlugin};
use nilometer_reservation::process::FlowFilter;
use nilometer_reservation::{Reservation, ReservationId};
use nilometer_router::plugin::Instance;
use nilometer_router::plugin::control::CHAIN_MAX;

use super::answer::Refused;
use super::command_channel::{Bound, CommandChannel, InForce};
use super::filters::{put_filter_in, take_filter_out};
use super::messages::Level;
use super::plugins::{enter_plugin, take_plugin_out};
use crate::config::RouterConfig;
use crate::driver::{Driver, PluginOrder, PluginOrders};
use crate::filter::{ActionName, FilterSection, Rules, Side};
use crate::plugins::{NewInstance, PluginSection};

/// The priority of filters of reserved flows: behind those of the operator.
const PRIORITY: u32 = 1 << 31;
/// The niceness of this thread, so that forwarding takes precedence.
const NICENESS: i32 = 5;

// What signalling can name in a row, a chain has room for.
const _: () = assert!(FLOW_PLUGINS_MAX <= CHAIN_MAX);

/// A flow's plugins, made but not bound.
struct Made {
    instances: Vec<(PluginSection, NewInstance)>,
    filter: FilterSection,
}

/// Instances that were removed or not entered, to be dropped by a thread that does not forward.
type Remains = Vec<Box<dyn Instance>>;

/// Carries out the orders of the forwarding thread until it is dropped.
pub(super) struct FlowBinder(Arc<PluginOrders>);

impl FlowBinder {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the process has no threads left, or the router has stopped.
    pub(super) fn start(commands: &Arc<CommandChannel>) -> Result<FlowBinder> {
        let (orders, commands) = (Arc::new(PluginOrders::default()), Arc::clone(commands));
        let given = Arc::clone(&orders);
        let reported = commands.ask(move |driver| driver.set_plugin_orders(given));
        reported.map_err(|why| anyhow!(why.error))?;
        let taken = Arc::clone(&orders);
        let work = move || {
            // A wish; without it all get their share.
            let _ = rustix::process::nice(NICENESS);
            serve(&taken, &commands);
        };
        let thread = thread::Builder::new().name("flow-plugins".into()).spawn(work);
        thread.context("cannot start the thread that binds plugins to flows")?;
        Ok(FlowBinder(orders))
    }
}

impl Drop for FlowBinder {
    fn drop(&mut self) {
        // (Threads that wait for a code server end by themselves, and find the router gone.)
        self.0.end();
    }
}

fn serve(orders: &Arc<PluginOrders>, commands: &Arc<CommandChannel>) {
    while let Some(order) = orders.next() {
        if order.reservation.is_some() {
            let (orders, commands, order) =
                (Arc::clone(orders), Arc::clone(commands), order.clone());
            let work = move || commands.carry_out(&orders, &order);
            if thread::Builder::new().name("flow-plugin".into()).spawn(work).is_ok() {
                continue;
            }
        }
        commands.carry_out(orders, &order);
    }
}

impl CommandChannel {
    fn carry_out(&self, orders: &PluginOrders, order: &PluginOrder) {
        let done = match &order.reservation {
            Some(reservation) => self.bind_flow(reservation),
            None => self.unbind_flow(order.id).map(|()| false),
        };
        let is_bound = done.unwrap_or_else(|why| {
            if let Some(reservation) = &order.reservation {
                self.refuse_flow(reservation, &why);
            }
            self.change().bound.contains_key(&order.id)
        });
        orders.done(order, is_bound);
    }

    /// Makes the plugins of a reservation, from the code server where they are not here, and binds them to its flow in
    /// place of those that are bound; whether some are bound then.
    fn bind_flow(&self, reservation: &Reservation) -> Result<bool, Refused> {
        let id = reservation.id;
        let made = self.make(reservation).map_err(|why| Refused::bad(format!("{why:#}")))?;
        let mut in_force = self.change();
        let old = in_force.bound.get(&id).cloned();
        let filter = old.as_ref().map_or_else(|| in_force.free_filter(), |old| Ok(old.filter))?;
        let rules = made.filter.rules().map_err(Refused::bad)?;
        let side = in_force.config.side_of(&made.filter).map_err(Refused::bad)?;
        let sections: Vec<PluginSection> =
            made.instances.iter().map(|(section, _)| section.clone()).collect();
        let (section, wanted, before) = (made.filter.clone(), reservation.clone(), old.clone());
        let (done, remains) = self.ask(move |driver| {
            if !driver.wants_plugins(&wanted) {
                // (It has changed or ended meanwhile, and there is another order.)
                let remains = made.instances.into_iter().map(|(_, new)| new.instance);
                return (Ok(false), remains.collect());
            }
            let mut remains = before.map_or_else(Vec::new, |old| take_out(driver, id, &old));
            let done = enter(driver, id, (filter, made, rules), side, &mut remains);
            (done.map(|()| true), remains)
        })?;
        drop::<Remains>(remains);
        if !matches!(done, Ok(false)) {
            in_force.forget(id);
        }
        if !done? {
            return Ok(in_force.bound.contains_key(&id));
        }
        let plugins = sections.iter().map(|section| section.name.clone()).collect();
        let classes: Vec<&str> = sections.iter().map(|section| section.class.as_str()).collect();
        let text =
            format!("reservation {}: its packets meet {} now", id.0, classes.join(" and then "));
        in_force.config.plugins.extend(sections);
        in_force.filters.insert(filter, section);
        in_force.bound.insert(id, Bound { filter, plugins });
        self.report_change(text);
        Ok(true)
    }

    /// Unbinds the plugins of the flow of a reservation.
    fn unbind_flow(&self, id: ReservationId) -> Result<(), Refused> {
        let mut in_force = self.change();
        let Some(bound) = in_force.bound.get(&id).cloned() else { return Ok(()) };
        let remains = self.ask(move |driver| take_out(driver, id, &bound))?;
        drop::<Remains>(remains);
        in_force.forget(id);
        self.report_change(format!("reservation {}: its packets meet no plugins any more", id.0));
        Ok(())
    }

    /// The plugins of a reservation cannot be bound: it lives on without them.
    fn refuse_flow(&self, reservation: &Reservation, why: &Refused) {
        let (id, error) = (reservation.id, &why.error);
        let refused = reservation.clone();
        let is_refused = self.ask(move |driver| {
            let is_it = driver.wants_plugins(&refused);
            is_it && driver.with_reservations(|it, now, _| it.refuse_plugins(now, id)) == Some(true)
        });
        if is_refused == Ok(true) {
            let to = reservation.flows.first().map(|flow| flow.destination.to_string());
            let text = format!(
                "reservation {}: plugins of its flow to {} are refused: {error}",
                id.0,
                to.unwrap_or_default()
            );
            self.messages.say(Level::Warning, text);
        }
    }

    /// Makes the plugins of a reservation as [`CommandChannel::add_plugin`] makes one, but with nothing locked: this may
    /// take as long as a code server does.
    fn make(&self, reservation: &Reservation) -> Result<Made> {
        let plugins = reservation.plugins.as_ref().map_or(&[][..], FlowPlugins::plugins);
        let maker = self.maker();
        let name = |input: &u32| Some(maker.ports.get(*input as usize)?.interface.clone());
        let inputs: Vec<String> = reservation.inputs.iter().filter_map(name).collect();
        let mut instances = Vec::new();
        for (place, NamedPlugin { class, configuration }) in plugins.iter().enumerate() {
            let section = PluginSection {
                name: format!("reservation-{}.{place}", reservation.id.0),
                class: class.clone(),
                configuration: configuration.clone(),
                ..PluginSection::default()
            };
            let new = maker.instance_of(&section).with_context(|| class.clone())?;
            instances.push((section, new));
        }
        let names = instances.iter().map(|(section, _)| section.name.clone()).collect();
        let [flow] = &reservation.flows[..] else {
            return Err(anyhow!("plugins are for one flow, not for {}", reservation.flows.len()));
        };
        Ok(Made { instances, filter: filter_of(flow, inputs, names) })
    }

    /// What of the configuration in force instances are made by.
    pub(super) fn maker(&self) -> RouterConfig {
        let in_force = self.change();
        let RouterConfig { seed, control, ports, .. } = &in_force.config;
        let (seed, control, ports) = (*seed, control.clone(), ports.clone());
        RouterConfig { seed, control, ports, ..RouterConfig::default() }
    }

    /// Whether the plugins of a reservation by API can be made here.
    ///
    /// # Errors
    /// 400 where there is no such class, or it refuses its configuration.
    pub(super) fn try_plugins(&self, plugins: &FlowPlugins) -> Result<(), Refused> {
        let maker = self.maker();
        for NamedPlugin { class, configuration } in plugins.plugins() {
            let section = PluginSection {
                name: "reservation".to_owned(),
                class: class.clone(),
                configuration: configuration.clone(),
                ..PluginSection::default()
            };
            let new = maker.instance_of(&section);
            drop(new.map_err(|why| Refused::bad(format!("{why:#}")))?);
        }
        Ok(())
    }
}

impl InForce {
    /// Records that nothing is bound to the flow of a reservation any more.
    fn forget(&mut self, id: ReservationId) {
        let Some(bound) = self.bound.remove(&id) else { return };
        self.filters.remove(&bound.filter);
        self.config.plugins.retain(|section| !bound.plugins.contains(&section.name));
    }
}

/// The filter of a reserved flow, by which its packets come to these plugin instances.
fn filter_of(flow: &FlowFilter, inputs: Vec<String>, plugins: Vec<String>) -> FilterSection {
    let host = |address: std::net::IpAddr| {
        format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
    };
    FilterSection {
        action: ActionName::Active,
        inputs: (!inputs.is_empty()).then_some(inputs),
        plugins,
        source: flow.source.map(host),
        destination: Some(host(flow.destination)),
        source_ports: flow.source_port.map(|port| port.to_string()),
        destination_ports: flow.destination_port.map(|port| port.to_string()),
        protocol: Some(flow.protocol.to_string()),
        priority: PRIORITY,
        ..FilterSection::default()
    }
}

/// Enters instances and filter, all or nothing; what could not stay is left in `remains`.
fn enter(
    driver: &mut Driver,
    id: ReservationId,
    (number, made, rules): (u32, Made, Rules),
    side: Side,
    remains: &mut Remains,
) -> Result<(), Refused> {
    let Made { instances, filter } = made;
    let mut entered: Vec<String> = Vec::new();
    let mut done = Ok(());
    for (section, new) in instances {
        done = enter_plugin(driver, &section, new);
        if done.is_err() {
            break;
        }
        entered.push(section.name);
    }
    let done = done.and_then(|()| put_filter_in(driver, (number, &filter), side, rules));
    match &done {
        Ok(()) => driver.note_bound(id, entered),
        Err(_) => {
            remains.extend(entered.iter().filter_map(|name| take_plugin_out(driver, name).ok()));
        }
    }
    done
}

/// Takes filter and instances of a flow out.
fn take_out(driver: &mut Driver, id: ReservationId, bound: &Bound) -> Remains {
    driver.note_bound(id, Vec::new());
    // (A failure to record ends the recording, which notes it.)
    let _ = take_filter_out(driver, bound.filter);
    bound.plugins.iter().filter_map(|name| take_plugin_out(driver, name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_of_the_flow_and_behind_all_others() {
        let mut flow = FlowFilter {
            source: Some([198, 18, 0, 2].into()),
            destination: [198, 19, 0, 2].into(),
            protocol: 17,
            source_port: None,
            destination_port: Some(5_004),
        };
        let names = vec!["reservation-1.0".to_owned()];
        let filter = filter_of(&flow, vec!["p0".to_owned()], names.clone());
        let (Some(four), None) = filter.rules().expect("a rule") else { panic!("of IPv4") };
        assert!(four.priority > 1_000_000_000 && filter.plugins == names);
        assert_eq!((four.source.length(), four.destination.length()), (32, 32));
        assert_eq!(filter.inputs, Some(vec!["p0".to_owned()]));
        (flow.source, flow.destination) = (None, std::net::Ipv6Addr::LOCALHOST.into());
        let filter = filter_of(&flow, Vec::new(), names);
        let (None, Some(six)) = filter.rules().expect("a rule") else { panic!("of IPv6") };
        assert_eq!((six.source.length(), six.destination.length()), (0, 128));
        assert_eq!(filter.inputs, None);
    }
}
