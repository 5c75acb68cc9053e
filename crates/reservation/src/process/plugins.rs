//! Plugins of reserved flows: which a setup may name, how many, and what happens when the caller refuses them.
//!
//! The process admits plugins by their names alone; the caller loads their code, which may take long, and binds
//! them to the flow. A flow whose plugins are refused keeps its bandwidth. The setup message that is sent
//! downstream shows it: at once if a class is not allowed, otherwise in one further message, when the caller has
//! refused. Refused plugins are tried again at the first refresh after a refresh period.

use nilometer_wire::Time;

use crate::admission::ReservationId;
use crate::message::{FlowPlugins, FlowSetup, NamedPlugin};
use crate::process::RsvpProcess;
use crate::process::outcome::{Command, PluginRefusal, Reservation, Upcall};
use crate::process::setup::Setup;

impl RsvpProcess {
    /// Whether the plugins that a setup names are refused, and until when; `old` is the setup that it replaces.
    pub(super) fn refuse_named(
        &mut self,
        now: Time,
        message: &FlowSetup,
        old: Option<&Setup>,
    ) -> Option<Time> {
        let plugins = message.plugins.as_ref()?;
        let old = old.filter(|old| old.message.plugins.as_ref() == Some(plugins));
        let until = old.and_then(|old| old.plugins_refused_until);
        if until.is_some_and(|until| now < until) {
            return until;
        }
        let why = self.check_names(plugins).and_then(|()| self.check_instances(Some(plugins)));
        let why = why.err()?;
        self.node.counts.plugins_refused += 1;
        self.node.upcall(Upcall::PluginsRefused { session: message.session, why });
        Some(now + self.node.settings.refresh)
    }

    fn check_names(&self, plugins: &FlowPlugins) -> Result<(), PluginRefusal> {
        let allowed = &self.node.settings.plugins;
        let is_allowed = |plugin: &&NamedPlugin| allowed.iter().any(|name| name == plugin.name());
        match plugins.plugins().iter().find(|plugin| !is_allowed(plugin)) {
            Some(plugin) => Err(PluginRefusal::NotAllowed(plugin.class.clone())),
            None => Ok(()),
        }
    }

    /// Whether there is room for the plugins of one more reservation.
    pub(super) fn check_instances(
        &self,
        plugins: Option<&FlowPlugins>,
    ) -> Result<(), PluginRefusal> {
        let Some(plugins) = plugins else { return Ok(()) };
        let count = |plugins: &FlowPlugins| plugins.plugins().len();
        let setups = self.setups.values().filter_map(|setup| setup.reservation.as_ref());
        let all = setups.chain(self.held.values().map(|held| &held.reservation));
        let there: usize = all.filter_map(|one| one.plugins.as_ref()).map(count).sum();
        let most = self.node.settings.plugin_instances_max;
        match there + count(plugins) > most {
            true => Err(PluginRefusal::Instances(most)),
            false => Ok(()),
        }
    }

    /// The caller does not bind the plugins of this reservation: it continues without them, and the routers and the
    /// host downstream are notified; returns whether it had any.
    pub fn refuse_plugins(&mut self, now: Time, id: ReservationId) -> bool {
        self.next_at = None;
        let is_it = |one: &Reservation| one.id == id && one.plugins.is_some();
        let mut setups = self.setups.values_mut();
        let setup = setups.find(|setup| setup.reservation.as_ref().is_some_and(is_it));
        let held = self.held.get_mut(&id).map(|held| &mut held.reservation);
        let node = &mut self.node;
        let reservation = match setup {
            Some(setup) => {
                setup.plugins_refused_until = Some(now + node.settings.refresh);
                setup.forward(node);
                setup.reservation.as_mut()
            }
            None => held.filter(|held| is_it(held)),
        };
        let Some(reservation) = reservation else { return false };
        reservation.plugins = None;
        node.counts.plugins_refused += 1;
        node.commands.push_back(Command::Install(reservation.clone()));
        true
    }
}
