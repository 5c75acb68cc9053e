//! The command channel: it takes clients' commands to a running router, one change after the other.
//!
//! The command channel holds what the forwarding thread does not: the configuration in force, from
//! which the router can be rebuilt, and the sections of filters and routes as they were written. A
//! change is made in three steps under one lock: it is parsed and checked here, made between two turns
//! of the forwarding thread, and entered in the configuration. Slow work (loading a table, filling a
//! classifier) is done here, and only the result is handed over.
//!
//! # A flood of requests
//!
//! Each request that only the forwarding thread can answer keeps it from its packets for some
//! microseconds. So there is a minimum interval between two ([`BETWEEN_QUESTIONS`]), for all clients
//! together: a flood of requests waits, and forwarding is not disturbed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_queue::distributed::Variant;
use nilometer_reservation::ReservationId;
use nilometer_sim::stress::StressPlan;

use super::answer::Refused;
use super::connection_table::ConnectionTables;
use super::messages::{Level, Messages};
use super::simulated::SimulatedStress;
use crate::config::RouterConfig;
use crate::driver::{Driver, Remote};
use crate::filter::FilterSection;
use crate::routes::Routes;
use crate::running::Running;
use crate::tally::{Tally, tally};

/// The least time between two questions to the forwarding thread.
pub const BETWEEN_QUESTIONS: Duration = Duration::from_millis(3);

/// Where a router is spoken to.
pub struct CommandChannel {
    remote: Remote,
    last_question: Mutex<Option<Instant>>,
    /// When routes may be listed again.
    pub(super) listed: Mutex<Option<Instant>>,
    pub(super) routes: Arc<Routes>,
    pub(super) in_force: Mutex<InForce>,
    /// The stress test that was simulated last, and its result.
    pub(super) simulated: Mutex<Option<((StressPlan, Variant), SimulatedStress)>>,
    /// The router's messages.
    pub messages: Messages,
    /// The connected client.
    pub connection_tables: ConnectionTables,
}

/// What the router is to be now.
pub struct InForce {
    /// All but the filters.
    pub(super) config: RouterConfig,
    /// By number.
    pub(super) filters: BTreeMap<u32, FilterSection>,
    /// What of filters and plugins is bound to reserved flows, and goes with their reservations.
    pub(super) bound: BTreeMap<ReservationId, Bound>,
}

/// The plugins bound to a reserved flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// The number of its filter.
    pub(super) filter: u32,
    /// The names of its plugin instances.
    pub(super) plugins: Vec<String>,
}

impl InForce {
    /// The configuration from which this router can be rebuilt, without the parts that belong to
    /// reservations.
    pub fn whole(&self) -> RouterConfig {
        let stays = |(id, _): &(&u32, &FilterSection)| self.reservation_of(**id).is_none();
        let filters = self.filters.iter().filter(stays).map(|(_, filter)| filter.clone());
        let filters = filters.collect();
        let mut plugins = self.config.plugins.clone();
        plugins.retain(|plugin| !self.bound.values().any(|it| it.plugins.contains(&plugin.name)));
        RouterConfig { filters, plugins, ..self.config.clone() }
    }

    /// The reservation that a filter is of, if it is of one.
    pub(super) fn reservation_of(&self, filter: u32) -> Option<ReservationId> {
        let mut bound = self.bound.iter();
        bound.find(|(_, bound)| bound.filter == filter).map(|(id, _)| *id)
    }
}

impl CommandChannel {
    /// The command channel of a router that was started with `config`.
    ///
    /// # Errors
    /// When the process has no threads left.
    pub fn new(running: &Running, config: &RouterConfig) -> anyhow::Result<CommandChannel> {
        let messages = Messages::new()?;
        let filters = (0u32..).zip(config.filters.iter().cloned()).collect();
        let mut config = RouterConfig { filters: Vec::new(), ..config.clone() };
        config.size_queues();
        let (log, remote) = (messages.clone(), running.remote.clone());
        remote.call(move |driver| driver.set_messages(log))?;
        Ok(CommandChannel {
            remote,
            last_question: Mutex::new(None),
            listed: Mutex::new(None),
            routes: Arc::clone(&running.routes),
            in_force: Mutex::new(InForce { config, filters, bound: BTreeMap::new() }),
            simulated: Mutex::new(None),
            messages,
            connection_tables: ConnectionTables::default(),
        })
    }

    /// Calls the forwarding thread, between two of its turns.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let mut last_question = self.last_question.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = *last_question {
            thread::sleep(BETWEEN_QUESTIONS.saturating_sub(last.elapsed()));
        }
        let answer = self.remote.call(work).map_err(Refused::unavailable);
        *last_question = Some(Instant::now());
        answer
    }

    /// The counters.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn tally(&self) -> Result<Tally, Refused> {
        self.ask(tally)
    }

    /// The configuration in force, as a ROUTER.toml.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn saved(&self) -> Result<String, Refused> {
        let whole = self.change().whole();
        toml::to_string(&whole).map_err(|why| {
            let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
            Refused::new(status, format!("the configuration cannot be written: {why}"))
        })
    }

    /// The configuration in force, for inspection and change by one caller at a time.
    pub(super) fn change(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports what was done, in the messages and to the client that did it.
    pub(super) fn report_change(&self, text: String) -> String {
        self.messages.say(Level::Info, text.clone());
        text
    }
}
