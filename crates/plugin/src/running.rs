//! An instance with its state besides its own value, as a host runs it.

use alloc::string::String;

use crate::context::{Context, PortNumbers, Services, State};
use crate::packet::Packet;
use crate::{Decision, Plugin};

/// An instance of a plugin, with its counters, its timer and its chance.
pub struct Running<P> {
    plugin: P,
    state: State,
}

impl<P: Plugin> Running<P> {
    /// An instance with a configuration and a seed.
    ///
    /// # Errors
    /// What is wrong with the configuration, by the plugin.
    pub fn new(configuration: &str, seed: u64) -> Result<Running<P>, String> {
        let plugin = P::new(configuration)?;
        Ok(Running { plugin, state: State::new(P::COUNTERS.len(), seed) })
    }

    /// Decides on a packet.
    #[inline]
    pub fn process(
        &mut self,
        now_ns: u64,
        ports: PortNumbers,
        packet: &mut Packet<'_>,
        services: &mut dyn Services,
    ) -> Decision {
        let mut context = Context::new(now_ns, ports, &mut self.state, services);
        self.plugin.process(packet, &mut context)
    }

    /// Answers a message.
    ///
    /// # Errors
    /// The plugin's reason, if it cannot.
    pub fn message(
        &mut self,
        now_ns: u64,
        message: &str,
        services: &mut dyn Services,
    ) -> Result<String, String> {
        let ports = PortNumbers::default();
        let mut context = Context::new(now_ns, ports, &mut self.state, services);
        self.plugin.message(message, &mut context)
    }

    /// The timer is due; it is not set any more when the plugin sees it.
    pub fn timeout(&mut self, now_ns: u64, services: &mut dyn Services) {
        self.state.timer = None;
        let ports = PortNumbers::default();
        self.plugin.timeout(&mut Context::new(now_ns, ports, &mut self.state, services));
    }

    /// When the timer is due, nanoseconds.
    pub fn timer(&self) -> Option<u64> {
        self.state.timer
    }

    /// The values of its counters.
    pub fn counters(&self) -> &[u64] {
        &self.state.counters
    }
}
