//! A plugin that was compiled with the router, as a class of it: packets are changed where they lie.
//!
//! Nothing isolates it, but a panic ends with its call: it is caught here and becomes a fault, so that the instance is cut
//! off like any other, and the router goes on.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nilometer_plugin::context::PortNumbers;
use nilometer_plugin::labels::{LabelDecision, LabelRefusal, PUSHED_MAX, Relabelling};
use nilometer_plugin::{Decision, Packet, Plugin, Running, Services};
use nilometer_router::discard::Discard;
use nilometer_router::plugin::labels::{
    LabelStack, LabelVerdict, PUSHED_MAX as ROUTER_PUSHED_MAX, StackChange,
};
use nilometer_router::plugin::{
    Batch, Class, ClassFacts, Effects, Engine, Fault, Instance, PacketFacts, PluginDecision,
    Refusal,
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
        let running = caught(|| Running::<P>::new(configuration, seed))?;
        Ok(Box::new(NativeInstance(running.map_err(Refusal::Configuration)?)))
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

/// What a call returns, or that it panicked. (What it left half-done is the instance's alone, which is called no more.)
fn caught<R>(call: impl FnOnce() -> R) -> Result<R, Fault> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|why| Fault::Panic(panic_message(&*why)))
}

/// What a panic said.
fn panic_message(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| why.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it does not say why".to_owned())
}

impl<P: Plugin> NativeInstance<P> {
    /// Decides on the packet `at`.
    #[inline(always)]
    fn process_one(
        &mut self,
        now: Time,
        (at, facts): (usize, &PacketFacts),
        batch: &mut Batch<'_>,
        wanted: &mut Wanted<'_>,
    ) {
        let ports = PortNumbers { input: Some(facts.input()), output: facts.output() };
        let is_labelled = batch.is_labelled();
        let bytes = match P::SEEN_BYTES {
            0 => &mut [],
            most => {
                let bytes = batch.lend(at);
                let seen = bytes.len().min(usize::from(most));
                &mut bytes[..seen]
            }
        };
        let mut packet = Packet::new(bytes, facts.ip_bytes());
        if P::TAKES_LABELS && is_labelled {
            packet = packet.labelled();
        }
        let decision = self.0.process(now.as_nanos(), ports, &mut packet, wanted);
        let (is_changed, labels) = (packet.is_changed(), packet.label_decision().copied());
        if is_changed {
            batch.note_changed(at);
        }
        if let Some(labels) = labels.filter(|_| P::TAKES_LABELS) {
            batch.relabel(at, label_verdict(&labels));
        }
        if decision == Decision::Drop {
            batch.decide(at, PluginDecision::Drop);
        }
    }
}

// Whatever a plugin may push the router has room for.
const _: () = assert!(PUSHED_MAX <= ROUTER_PUSHED_MAX);

/// What a plugin says of labels, as the router takes it.
fn label_verdict(decision: &LabelDecision) -> LabelVerdict {
    match decision {
        LabelDecision::Relabel(change) => {
            let mut pushed = LabelStack::default();
            change.pushed().iter().for_each(|entry| _ = pushed.push(entry.to_bytes()));
            let &Relabelling { popped, hop_limit, next_hop, .. } = change;
            LabelVerdict::Change(StackChange { popped, pushed, hop_limit, next_hop })
        }
        LabelDecision::Refuse(why) => LabelVerdict::Discard(match why {
            LabelRefusal::UnknownLabel => Discard::UnknownLabel,
            LabelRefusal::Stack => Discard::LabelStack,
            LabelRefusal::Expired => Discard::Expired,
        }),
    }
}

impl<P: Plugin + Send> Instance for NativeInstance<P> {
    fn process(
        &mut self,
        now: Time,
        batch: &mut Batch<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        let mut wanted = Wanted { effects, share_bps: batch.share_bps() };
        let mut begun = 0;
        let done = caught(|| {
            for (at, facts) in batch.packets().iter().enumerate() {
                begun = at;
                self.process_one(now, (at, facts), batch, &mut wanted);
            }
        });
        if done.is_err() {
            batch.note_changed(begun);
        }
        done
    }

    fn handle_message(
        &mut self,
        now: Time,
        message: &str,
        effects: &mut Effects,
    ) -> Result<Result<String, String>, Fault> {
        caught(|| self.0.message(now.as_nanos(), message, &mut Wanted { effects, share_bps: None }))
    }

    fn handle_timeout(&mut self, now: Time, effects: &mut Effects) -> Result<(), Fault> {
        caught(|| self.0.timeout(now.as_nanos(), &mut Wanted { effects, share_bps: None }))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.timer().map(Time::from_nanos)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let values = self.0.counters().iter();
        P::COUNTERS.iter().zip(values).map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn takes_labels(&self) -> bool {
        P::TAKES_LABELS
    }

    /// Its value alone: what it holds on the heap is not known.
    fn memory_bytes(&self) -> usize {
        size_of::<Running<P>>()
    }
}
