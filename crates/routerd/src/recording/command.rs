//! Changes of a router's settings, as data.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use nilometer_router::memory::{Memory, ReturnBuffers};
use nilometer_router::pipeline::Router;
use nilometer_sim::queueing::QueueSpec;
use nilometer_wire::{Rate, Span, Time};
use serde::{Deserialize, Serialize};

use crate::config::{FabricSection, RouterConfig};
use crate::filter::FilterSection;
use crate::machine::{PortPlace, enter_filter, fabric, remove_filter};
use crate::pace::Pace;
use crate::plugins::PluginSection;
use crate::reservations::{EnteredReservation, exchange};

/// A change that a router's driver makes between two turns. Exchanging lookup engines and classifiers is none: the
/// results are the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// A link has another pace.
    Pace {
        /// The port.
        port: usize,
        /// Bits per second; none where only the device limits it.
        rate_bps: Option<u64>,
        /// The burst.
        burst_bytes: Option<u64>,
        /// By how much it is made longer.
        delay_ns: u64,
    },
    /// An output has another discipline.
    Queue {
        /// The port.
        port: usize,
        /// The rate of its link when it was made.
        rate_bps: Option<u64>,
        /// The discipline.
        queue: Box<QueueSpec>,
    },
    /// The fabric has other equations, another period or speed-up.
    Fabric(Box<FabricSection>),
    /// A filter is entered.
    AddFilter {
        /// Its number.
        id: u32,
        /// The filter.
        filter: Box<FilterSection>,
    },
    /// A filter is taken out.
    RemoveFilter {
        /// Its number.
        id: u32,
    },
    /// A plugin instance is entered.
    AddPlugin(Box<PluginSection>),
    /// Another plugin instance takes the place of one of its name.
    ReplacePlugin(Box<PluginSection>),
    /// A plugin instance is taken out.
    RemovePlugin {
        /// Its name.
        name: String,
    },
    /// A plugin instance gets a message.
    MessagePlugin {
        /// Its name.
        name: String,
        /// The message.
        message: String,
    },
    /// A reservation is entered, takes the place of another, or is taken out.
    Reserve {
        /// The one that was there.
        old: Option<Box<EnteredReservation>>,
        /// The one that is there from now on.
        new: Option<Box<EnteredReservation>>,
    },
    /// The control processor sends a packet of RSVP.
    Signal {
        /// The port.
        port: usize,
        /// The neighbour there.
        next_hop: IpAddr,
        /// The IP packet.
        packet: Vec<u8>,
    },
    /// A link comes or goes.
    Link {
        /// The port.
        port: usize,
        /// Whether it carries traffic.
        is_up: bool,
    },
}

impl Command {
    /// That a link has this pace.
    pub fn pace(port: usize, pace: Pace) -> Command {
        Command::Pace {
            port,
            rate_bps: pace.rate.map(|rate| rate.bits_per_second()),
            burst_bytes: pace.burst_bytes,
            delay_ns: pace.delay.as_nanos(),
        }
    }

    fn port(&self) -> Option<usize> {
        match self {
            Command::Pace { port, .. }
            | Command::Queue { port, .. }
            | Command::Signal { port, .. }
            | Command::Link { port, .. } => Some(*port),
            _ => None,
        }
    }

    /// Makes the change to a router of this description. A change that the router refuses was refused when it was
    /// recorded, and has no effect.
    ///
    /// # Errors
    /// When it is no change of such a router.
    pub fn apply<M: Memory>(
        &self,
        now: Time,
        router: &mut Router,
        memory: &mut M,
        config: &RouterConfig,
    ) -> Result<()> {
        if let Some(port) = self.port() {
            ensure!(
                port < router.ports().len(),
                "the command names port {port}, which does not exist"
            );
        }
        match self {
            Command::Pace { port, rate_bps, burst_bytes, delay_ns } => {
                let (rate, delay) = (rate_bps.and_then(Rate::new), Span::from_nanos(*delay_ns));
                Pace { rate, burst_bytes: *burst_bytes, delay }.set(router.fabric_mut(), *port);
            }
            Command::Queue { port, rate_bps, queue } => {
                let plan = router.ports()[*port].plan().clone();
                let rate = rate_bps.and_then(Rate::new);
                let place = PortPlace { plan: &plan, number: *port, rate, config };
                let discipline = place.discipline(Some(queue))?;
                router.fabric_mut().set_discipline(
                    now,
                    *port,
                    discipline,
                    &mut ReturnBuffers(memory),
                );
            }
            Command::Fabric(section) => {
                let changed = RouterConfig { fabric: (**section).clone(), ..config.clone() };
                let plan = fabric(&changed)?;
                let drops = &mut ReturnBuffers(memory);
                let fabric = router.fabric_mut();
                let _ = fabric.set_queueing(now, plan.shape, plan.variant, drops);
            }
            Command::AddFilter { id, filter } => {
                let (rules, side) = (filter.rules()?, config.side_of(filter)?);
                let _ = enter_filter(router, *id, (side, &filter.plugins), rules);
            }
            Command::RemoveFilter { id } => {
                remove_filter(router, *id);
            }
            Command::AddPlugin(section) => {
                let new = config.instance_of(section)?;
                let on_fault = section.on_fault.into();
                let plugins = router.plugins_mut();
                let _ = plugins.add(&section.name, new.class, new.instance, on_fault);
            }
            Command::ReplacePlugin(section) => {
                let new = config.instance_of(section)?;
                let _ = router.plugins_mut().replace(&section.name, new.class, new.instance);
            }
            Command::RemovePlugin { name } => {
                let _ = router.plugins_mut().remove(name);
            }
            Command::MessagePlugin { name, message } => {
                let _ = router.plugins_mut().message(now, name, message);
            }
            Command::Reserve { old, new } => {
                let _ = exchange((now, router, memory), old.as_deref(), new.as_deref());
            }
            Command::Signal { port, next_hop, packet } => {
                router.send_signalling(now, *port, *next_hop, packet, memory);
            }
            Command::Link { port, is_up } => {
                // A port that is not plugged in has no link to report.
                let _ = router.set_link(now, *port, *is_up, memory);
            }
        }
        Ok(())
    }
}
