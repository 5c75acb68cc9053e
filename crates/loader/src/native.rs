//! A plugin that was compiled with the router, as a class of it: packets are changed where they lie.

use std::marker::PhantomData;

use nilometer_plugin::context::PortNumbers;
use nilometer_plugin::{Decision, Packet, Plugin, Running, Services};
use nilometer_router::plugin::{
    Batch, Class, ClassFacts, Effects, Engine, Fault, Instance, PluginDecision, Refusal,
};
use nilometer_wire::Time;

/// The class of a native plugin.
pub struct Native<P> {
    facts: ClassFacts,
    plugin: PhantomData<fn() -> P>,
}

impl<P: Plugin + Send + 'static> Native<P> {
    /// The class.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Native<P> {
        let facts = ClassFacts {
            name: P::NAME.to_owned(),
            version: P::VERSION.to_owned(),
            engine: Engine::Native,
            seen_bytes: P::SEEN_BYTES,
        };
        Native { facts, plugin: PhantomData }
    }
}

impl<P: Plugin + Send + 'static> Class for Native<P> {
    fn facts(&self) -> &ClassFacts {
        &self.facts
    }

    fn instantiate(&self, configuration: &str, seed: u64) -> Result<Box<dyn Instance>, Refusal> {
        let running = Running::<P>::new(configuration, seed).map_err(Refusal::Configuration)?;
        Ok(Box::new(NativeInstance(running)))
    }
}

/// What a call wants, as the plugin sees it.
pub(crate) struct Wanted<'a> {
    effects: &'a mut Effects,
    share_bps: Option<u64>,
}

impl Services for Wanted<'_> {
    fn emit(&mut self, packet: &[u8]) -> bool {
        self.effects.emit(packet)
    }

    fn log(&mut self, line: &str) {
        self.effects.log(line);
    }

    fn share_bps(&self) -> Option<u64> {
        self.share_bps
    }
}

struct NativeInstance<P>(Running<P>);

impl<P: Plugin + Send> Instance for NativeInstance<P> {
    fn process(
        &mut self,
        now: Time,
        batch: &mut Batch<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        let mut wanted = Wanted { effects, share_bps: batch.share_bps() };
        for at in 0..batch.packets().len() {
            let facts = batch.packets()[at];
            let ports = PortNumbers { input: Some(facts.input), output: facts.output };
            let bytes = batch.packet_mut(at);
            let seen = bytes.len().min(usize::from(P::SEEN_BYTES));
            let mut packet = Packet::new(&mut bytes[..seen], facts.ip_bytes);
            let decision = self.0.process(now.as_nanos(), ports, &mut packet, &mut wanted);
            if decision == Decision::Drop {
                batch.decide(at, PluginDecision::Drop);
            }
        }
        Ok(())
    }

    fn handle_message(
        &mut self,
        now: Time,
        message: &str,
        effects: &mut Effects,
    ) -> Result<Result<String, String>, Fault> {
        Ok(self.0.message(now.as_nanos(), message, &mut Wanted { effects, share_bps: None }))
    }

    fn handle_timeout(&mut self, now: Time, effects: &mut Effects) -> Result<(), Fault> {
        self.0.timeout(now.as_nanos(), &mut Wanted { effects, share_bps: None });
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.timer().map(Time::from_nanos)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let values = self.0.counters().iter();
        P::COUNTERS.iter().zip(values).map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    /// Its value alone: what it holds on the heap is not known.
    fn memory_bytes(&self) -> usize {
        size_of::<Running<P>>()
    }
}
