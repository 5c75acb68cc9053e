//! The plugin control unit: which instances there are, which chains they stand in, and what each has done.
//!
//! It is asked by the pipeline, batch after batch, and changed between two batches: so an instance is replaced
//! by another, of the same class or a newer one, between two packets of its flow, and none is lost by that.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem;

use nilometer_wire::memory::Memory;
use nilometer_wire::{Span, Time};

use super::labels::LabelVerdicts;
use super::{Batch, ClassFacts, Effects, Fault, Handed, Instance, OnFault, PacketFacts};
use super::{PacketSet, Passage};

pub use super::instance_state::{InstanceCounters, InstanceState};

/// Instances that there may be.
pub const INSTANCES_MAX: usize = 256;
/// Instances in a chain.
pub const CHAIN_MAX: usize = 8;
/// Chains that there may be.
pub const CHAINS_MAX: usize = 4_096;
/// The least time between two calls of an instance's timer: one that always wants to be called at once does not keep
/// the router from its work.
const TIMER_MIN: Span = Span::from_nanos(100_000);
/// Lines for the operator that wait to be taken.
const LINES_MAX: usize = 256;

/// The number of a chain: what a filter names whose action is [`crate::Action::Active`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u16);

/// Why the control unit will not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// There is no such instance.
    #[error("there is no plugin instance {0:?}")]
    Missing(String),
    /// There is one already.
    #[error("there is a plugin instance {0:?} already")]
    Taken(String),
    /// It stands in chains of filters or ports: its name, and how many they are.
    #[error(
        "filters or ports hand packets to the plugin instance {0:?} ({1} of them); remove them first"
    )]
    Bound(String, usize),
    /// It knows no labels.
    #[error("the plugin instance {0:?} knows no labels: one of the class `mpls` does")]
    Labels(String),
    /// There are too many.
    #[error("there are at most {INSTANCES_MAX} plugin instances")]
    Instances,
    /// There are too many.
    #[error("there are at most {CHAINS_MAX} chains of plugins")]
    Chains,
    /// A chain of no instance, or of too many.
    #[error("a chain has one to {CHAIN_MAX} instances, not {0}")]
    Length(usize),
    /// It was cut off.
    #[error("the plugin instance {0:?} was disabled: {1}")]
    CutOff(String, Fault),
    /// Its answer to a message is that it will not.
    #[error("the plugin instance {0:?} answers: {1}")]
    Answer(String, String),
}

struct Slot {
    name: String,
    class: ClassFacts,
    instance: Box<dyn Instance>,
    on_fault: OnFault,
    fault: Option<(Time, Fault)>,
    counters: InstanceCounters,
    /// Its timer is not called before.
    rests_until: Time,
    /// When its timer is to be called, as far as it was looked at.
    wakes: Option<Time>,
}

impl Slot {
    /// When its timer is to be called.
    fn due(&self) -> Option<Time> {
        let due = self.instance.poll_timeout().filter(|_| self.fault.is_none());
        due.map(|due| due.max(self.rests_until))
    }

    /// So many packets came to it that it does not process, since it was cut off.
    fn pass_over(&mut self, packets: usize, passage: &mut Passage) {
        match self.on_fault {
            OnFault::Bypass => {
                self.counters.bypassed += packets as u64;
                passage.dropped = PacketSet::default();
            }
            OnFault::Drop => {
                self.counters.fault_dropped += packets as u64;
                passage.dropped = PacketSet::first(packets);
                passage.cut_off = passage.dropped;
            }
        }
    }
}

const IS_THERE: &str = "chains name instances that are there";

/// The instances of a chain, by number.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    instances: [u16; CHAIN_MAX],
    length: usize,
}

impl Chain {
    fn instances(&self) -> &[u16] {
        &self.instances[..self.length]
    }
}

/// Instances, chains, and what they want done.
#[derive(Default)]
pub struct ControlUnit {
    slots: Vec<Option<Slot>>,
    /// By number; those of filters that were removed are empty.
    chains: Vec<Chain>,
    emitted: Vec<(u16, Vec<u8>)>,
    lines: VecDeque<String>,
    effects: Effects,
    /// What was said of labels in the last call of a chain.
    pub(super) label_verdicts: LabelVerdicts,
    /// Packets that are left for the next instance of a chain, and their places in the batch.
    left: (Vec<PacketFacts>, Vec<u16>),
    /// The earliest timer of all instances.
    due: Option<Time>,
}

impl ControlUnit {
    /// Enters an instance.
    ///
    /// # Errors
    /// [`ControlError::Taken`] and [`ControlError::Instances`].
    pub fn add(
        &mut self,
        name: &str,
        class: ClassFacts,
        instance: Box<dyn Instance>,
        on_fault: OnFault,
    ) -> Result<(), ControlError> {
        if self.find(name).is_ok() {
            return Err(ControlError::Taken(name.into()));
        }
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or(self.slots.len());
        if at >= INSTANCES_MAX {
            return Err(ControlError::Instances);
        }
        let (counters, name) = (InstanceCounters::default(), name.into());
        let (fault, rests_until, wakes) = (None, Time::ZERO, None);
        let slot = Slot { name, class, instance, on_fault, fault, counters, rests_until, wakes };
        if at == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[at] = Some(slot);
        self.look_at_timers();
        Ok(())
    }

    /// Puts another instance in the place of one, in all its chains, and takes back the old. It begins
    /// without the fault of the old and goes on with its counters.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn replace(
        &mut self,
        name: &str,
        class: ClassFacts,
        instance: Box<dyn Instance>,
    ) -> Result<Box<dyn Instance>, ControlError> {
        let at = self.find(name)?;
        let slot = self.slot(at);
        (slot.class, slot.fault) = (class, None);
        let old = mem::replace(&mut slot.instance, instance);
        self.look_at_timers();
        Ok(old)
    }

    /// Takes out an instance that stands in no chain.
    ///
    /// # Errors
    /// [`ControlError::Missing`] and [`ControlError::Bound`].
    pub fn remove(&mut self, name: &str) -> Result<Box<dyn Instance>, ControlError> {
        let at = self.find(name)?;
        match self.chains_of(at) {
            0 => {}
            chains => return Err(ControlError::Bound(name.into(), chains)),
        }
        let slot = self.slots[at].take().expect("it was found");
        self.look_at_timers();
        Ok(slot.instance)
    }

    /// A chain of instances, in this order, for a filter.
    ///
    /// # Errors
    /// Where there is no such instance, none is named, or too many are.
    pub fn bind<S: AsRef<str>>(&mut self, names: &[S]) -> Result<ChainId, ControlError> {
        if names.is_empty() || names.len() > CHAIN_MAX {
            return Err(ControlError::Length(names.len()));
        }
        let mut chain = Chain { length: names.len(), ..Chain::default() };
        for (place, name) in chain.instances.iter_mut().zip(names) {
            *place = self.find(name.as_ref())? as u16;
        }
        let free = self.chains.iter().position(|chain| chain.length == 0);
        let at = free.unwrap_or(self.chains.len());
        if at >= CHAINS_MAX {
            return Err(ControlError::Chains);
        }
        if at == self.chains.len() {
            self.chains.push(Chain::default());
        }
        self.chains[at] = chain;
        Ok(ChainId(at as u16))
    }

    /// The filter of a chain is no more.
    pub fn unbind(&mut self, chain: ChainId) {
        if let Some(chain) = self.chains.get_mut(usize::from(chain.0)) {
            chain.length = 0;
        }
    }

    /// Sends an instance a message and waits for its answer.
    ///
    /// # Errors
    /// [`ControlError::Missing`], [`ControlError::CutOff`], and [`ControlError::Answer`] where it refuses.
    pub fn message(&mut self, now: Time, name: &str, text: &str) -> Result<String, ControlError> {
        let at = self.find(name)?;
        if let Some((_, fault)) = &self.slot(at).fault {
            return Err(ControlError::CutOff(name.into(), fault.clone()));
        }
        let mut effects = mem::take(&mut self.effects);
        let answer = self.slot(at).instance.handle_message(now, text, &mut effects);
        self.effects = effects;
        self.settle(now, at, 0, answer.as_ref().err().cloned());
        self.look_at_timers();
        match answer {
            Ok(answer) => answer.map_err(|why| ControlError::Answer(name.into(), why)),
            Err(fault) => Err(ControlError::CutOff(name.into(), fault)),
        }
    }

    /// Every instance, by number.
    pub fn states(&self) -> impl Iterator<Item = InstanceState> + '_ {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| slot.as_ref().map(|slot| (at, slot))).map(|(at, slot)| {
            InstanceState {
                name: slot.name.clone(),
                class: slot.class.clone(),
                on_fault: slot.on_fault,
                fault: slot.fault.clone(),
                counters: slot.counters,
                own_counters: slot.instance.counters(),
                memory_bytes: slot.instance.memory_bytes(),
                chains: self.chains_of(at),
            }
        })
    }

    /// Whether there are lines for the operator.
    #[inline]
    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Lines for the operator: what instances log, and which were cut off.
    pub fn take_lines(&mut self) -> Vec<String> {
        self.lines.drain(..).collect()
    }

    /// Packets that were emitted, with the port for which they count.
    pub(crate) fn take_emitted(&mut self) -> Vec<(u16, Vec<u8>)> {
        mem::take(&mut self.emitted)
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn has_emitted(&self) -> bool {
        !self.emitted.is_empty()
    }

    /// When an instance wants the time.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Serves the instances whose timers are due.
    pub(crate) fn handle_timeouts(&mut self, now: Time) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for at in 0..self.slots.len() {
            let Some(slot) = &mut self.slots[at] else { continue };
            if slot.due().is_some_and(|due| due <= now) {
                slot.rests_until = now + TIMER_MIN;
                let mut effects = mem::take(&mut self.effects);
                let failed = slot.instance.handle_timeout(now, &mut effects).err();
                self.effects = effects;
                self.settle(now, at, 0, failed);
            }
        }
        self.look_at_timers();
    }

    /// Hands packets of one batch to a chain, one instance after the other.
    pub(crate) fn process<M: Memory>(
        &mut self,
        now: Time,
        chain: ChainId,
        handed: Handed<'_>,
        memory: &mut M,
    ) -> Passage {
        // (One that was removed with its filter has no instances, and nobody names it.)
        let chain = self.chains.get(usize::from(chain.0)).copied().unwrap_or_default();
        if let &[only] = chain.instances() {
            return self.process_by(now, only.into(), handed, memory);
        }
        let packets = handed.packets;
        let mut passage = Passage::default();
        for at in chain.instances().iter().map(|at| usize::from(*at)) {
            if passage.dropped.is_empty() {
                passage.add(&self.process_by(now, at, handed, memory));
                continue;
            }
            let (mut some, mut places) = mem::take(&mut self.left);
            some.clear();
            places.clear();
            for place in PacketSet::first(packets.len()).without(&passage.dropped).iter() {
                some.push(packets[place]);
                places.push(place as u16);
            }
            let said_before = self.label_verdicts.len();
            let ip_bytes = Handed::new(&some).ip_bytes;
            let left = Handed { packets: &some, ip_bytes, ..handed };
            passage.add_at(&self.process_by(now, at, left, memory), &places);
            for (at, _) in &mut self.label_verdicts[said_before..] {
                *at = places[usize::from(*at)];
            }
            self.left = (some, places);
        }
        self.label_verdicts.sort_unstable_by_key(|(at, _)| *at);
        passage
    }

    /// Hands packets to one instance.
    fn process_by<M: Memory>(
        &mut self,
        now: Time,
        at: usize,
        handed: Handed<'_>,
        memory: &mut M,
    ) -> Passage {
        let mut passage = Passage::default();
        let Handed { packets, ip_bytes, share_bps, is_labelled } = handed;
        let Some(first) = packets.first() else { return passage };
        let ControlUnit { slots, effects, label_verdicts, .. } = self;
        let slot = slots[at].as_mut().expect(IS_THERE);
        let (mut failed, mut relabelled) = (None, 0);
        if slot.fault.is_none() {
            let batch = Batch::new(packets, memory).with_share(share_bps);
            let mut batch = batch.labelled(is_labelled);
            failed = slot.instance.process(now, &mut batch, effects).err();
            (passage.dropped, passage.changed) = (batch.dropped(), batch.changed());
            let verdicts = batch.take_label_verdicts();
            if !verdicts.is_empty() && failed.is_none() {
                relabelled = verdicts.iter().filter(|(_, it)| it.is_change()).count();
                label_verdicts.extend(verdicts);
            }
        }
        if slot.fault.is_some() || failed.is_some() {
            slot.pass_over(packets.len(), &mut passage);
        } else {
            slot.counters.packets += packets.len() as u64;
            slot.counters.bytes += ip_bytes;
            if !passage.dropped.is_empty() {
                slot.counters.dropped += (passage.dropped.len() - relabelled) as u64;
            }
        }
        if failed.is_some() || !effects.is_empty() {
            self.settle(now, at, first.input(), failed);
        }
        self.look_at_timer(at);
        passage
    }

    /// After a call of an instance: what it wants done is, unless it failed; then it is cut off.
    fn settle(&mut self, now: Time, at: usize, port: u16, failed: Option<Fault>) {
        let ControlUnit { slots, effects, emitted, lines, .. } = self;
        let slot = slots[at].as_mut().expect(IS_THERE);
        let mut say = |line: String| {
            if lines.len() < LINES_MAX {
                lines.push_back(line);
            }
        };
        match failed {
            None => {
                for line in effects.take_lines() {
                    say(alloc::format!("plugin {}: {line}", slot.name));
                }
                let some = effects.take_emitted();
                slot.counters.emitted += some.len() as u64;
                slot.counters.not_emitted += effects.refused();
                emitted.extend(some.into_iter().map(|packet| (port, packet)));
            }
            Some(fault) => {
                let then = match slot.on_fault {
                    OnFault::Drop => "its packets are dropped",
                    OnFault::Bypass => "its packets pass it by",
                };
                let why = fault.to_string();
                say(alloc::format!("plugin {} was disabled: {why}; {then}", slot.name));
                slot.counters.faults += 1;
                slot.fault = Some((now, fault));
            }
        }
        effects.clear();
    }

    fn look_at_timers(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.wakes = slot.due();
        }
        self.due = self.slots.iter().flatten().filter_map(|slot| slot.wakes).min();
    }

    /// The same after a call of one instance.
    #[inline]
    fn look_at_timer(&mut self, at: usize) {
        let slot = self.slot(at);
        let wakes = slot.due();
        if wakes != slot.wakes {
            slot.wakes = wakes;
            self.due = self.slots.iter().flatten().filter_map(|slot| slot.wakes).min();
        }
    }

    fn chains_of(&self, at: usize) -> usize {
        self.chains.iter().filter(|chain| chain.instances().contains(&(at as u16))).count()
    }

    /// Whether an instance knows labels.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn takes_labels(&self, name: &str) -> Result<bool, ControlError> {
        let slot = self.slots[self.find(name)?].as_ref();
        Ok(slot.is_some_and(|slot| slot.instance.takes_labels()))
    }

    fn find(&self, name: &str) -> Result<usize, ControlError> {
        let is_it = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.name == name);
        self.slots.iter().position(is_it).ok_or_else(|| ControlError::Missing(name.into()))
    }

    /// # Panics
    /// When there is none of this number.
    fn slot(&mut self, at: usize) -> &mut Slot {
        self.slots[at].as_mut().expect(IS_THERE)
    }
}
