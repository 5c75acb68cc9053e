//! An instance of a module: its memory, its budget, and the calls into it.

use std::sync::Arc;

use nilometer_plugin::interface::{BATCH_MAX, DONE, REFUSED, TEXT_BYTES_MAX, exports};
use nilometer_router::plugin::{Batch, Effects, Fault, Instance, Refusal};
use nilometer_wire::Time;

use super::LoadError;
use super::contract::MEMORY;
use super::engine::{
    ExternType, Instance as Made, Memory, Module, Store, TypedFunc, WasmParams, WasmResults, start,
};
use super::fault::fault;
use super::imports::Host;
use super::rooms::Rooms;
use super::shared::Shared;

/// Packets that an instance has room for at first.
const PACKETS_AT_FIRST: usize = 32;
/// Where an area begins, the host writes words of this size.
const AREA_ALIGNMENT: usize = 8;
/// Bytes of a page of linear memory.
const PAGE_BYTES: u64 = 65_536;

/// A module with a memory of its own, not yet initialised as a plugin.
pub(super) struct Bare {
    store: Store<Host>,
    instance: Made,
    start_instructions: u64,
    memory_bytes: usize,
    has_budget: bool,
}

impl Bare {
    /// # Errors
    /// A fault of its start function, or of a memory that is too large from the beginning.
    pub(super) fn new(shared: &Shared) -> Result<Bare, Fault> {
        let limits = &shared.limits;
        let mut store = Store::new(shared.module.engine(), Host::new(limits.memory_bytes));
        store.limiter(|host| &mut host.limiter);
        if shared.has_budget {
            store.set_fuel(limits.start_instructions).expect("the engine counts fuel");
        }
        if initial_bytes(&shared.module) > limits.memory_bytes as u64 {
            return Err(Fault::Memory(limits.memory_bytes));
        }
        store.data_mut().begin_call(limits.start_instructions);
        let instance = start(&shared.linker, &mut store, &shared.module);
        let instance = instance.map_err(|error| {
            let (budget, memory) = (limits.start_instructions, limits.memory_bytes);
            fault(&error, store.data_mut(), budget, memory)
        })?;
        let memory = instance.get_memory(&mut store, MEMORY);
        store.data_mut().memory = memory;
        Ok(Bare {
            store,
            instance,
            start_instructions: limits.start_instructions,
            memory_bytes: limits.memory_bytes,
            has_budget: shared.has_budget,
        })
    }

    fn function<P: WasmParams, R: WasmResults>(
        &mut self,
        name: &'static str,
    ) -> Result<TypedFunc<P, R>, Fault> {
        let missing = |_| Fault::Interface(format!("it does not export `{name}` as it should"));
        self.instance.get_typed_func(&mut self.store, name).map_err(missing)
    }

    /// Calls a function with a budget.
    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        function: &TypedFunc<P, R>,
        budget: u64,
        arguments: P,
    ) -> Result<R, Fault> {
        self.store.data_mut().begin_call(budget);
        if self.has_budget {
            self.store.set_fuel(budget).expect("the engine counts fuel");
        }
        function
            .call(&mut self.store, arguments)
            .map_err(|error| fault(&error, self.store.data_mut(), budget, self.memory_bytes))
    }

    /// The version of the interface that it is of.
    pub(super) fn version(&mut self) -> Result<u32, Fault> {
        let function: TypedFunc<(), u32> = self.function(exports::INTERFACE)?;
        self.call(&function, self.start_instructions, ())
    }

    /// What it says of itself.
    pub(super) fn description(&mut self) -> Result<String, LoadError> {
        let function: TypedFunc<(), u64> = self.function(exports::DESCRIBE)?;
        let place = self.call(&function, self.start_instructions, ())?;
        let (address, bytes) = (place as u32 as usize, (place >> 32) as usize);
        if bytes > TEXT_BYTES_MAX {
            return Err(LoadError::Description(format!("it has {bytes} bytes")));
        }
        let found = self.memory()?.data(&self.store).get(address..address + bytes);
        let outside = || LoadError::Description("it lies outside of the memory".to_owned());
        let text = std::str::from_utf8(found.ok_or_else(outside)?);
        text.map(str::to_owned)
            .map_err(|_| LoadError::Description("it is not UTF-8 text".to_owned()))
    }

    fn memory(&self) -> Result<Memory, Fault> {
        self.store.data().memory.ok_or_else(|| Fault::Interface(format!("no `{MEMORY}`")))
    }
}

/// An instance of a plugin class in WebAssembly.
pub(super) struct WasmInstance {
    shared: Arc<Shared>,
    bare: Bare,
    memory: Memory,
    rooms: Rooms,
    area_at: usize,
    area_bytes: usize,
    counters_at: usize,
    area: TypedFunc<u32, u32>,
    process: TypedFunc<(u32, u32, u64), i32>,
    message: TypedFunc<(u32, u32, u64), i32>,
    timeout: TypedFunc<u64, i32>,
}

impl WasmInstance {
    /// # Errors
    /// When it does not take the configuration, or fails.
    pub(super) fn new(
        shared: &Arc<Shared>,
        configuration: &str,
        seed: u64,
    ) -> Result<WasmInstance, Refusal> {
        let mut bare = Bare::new(shared)?;
        let mut made = WasmInstance {
            memory: bare.memory()?,
            rooms: Rooms::new(shared.seen_bytes),
            area_at: 0,
            area_bytes: 0,
            counters_at: 0,
            area: bare.function(exports::AREA)?,
            process: bare.function(exports::PROCESS)?,
            message: bare.function(exports::MESSAGE)?,
            timeout: bare.function(exports::TIMEOUT)?,
            shared: Arc::clone(shared),
            bare,
        };
        let budget = made.shared.limits.start_instructions;
        made.ensure_area(configuration.len().max(made.rooms.bytes(PACKETS_AT_FIRST)), budget)?;
        made.write(configuration.as_bytes());
        let new: TypedFunc<(u32, u32, u64), i32> = made.bare.function(exports::NEW)?;
        let arguments = (made.area_at as u32, configuration.len() as u32, seed);
        match made.bare.call(&new, budget, arguments)? {
            DONE => {}
            REFUSED => return Err(Refusal::Configuration(made.reply())),
            status => return Err(strange(exports::NEW, status).into()),
        }
        made.find_counters(budget)?;
        Ok(made)
    }

    fn find_counters(&mut self, budget: u64) -> Result<(), Fault> {
        let function: TypedFunc<(), u32> = self.bare.function(exports::COUNTERS)?;
        let at = self.bare.call(&function, budget, ())? as usize;
        let end = at + 8 * self.shared.counters.len();
        if end > self.memory.data_size(&self.bare.store) {
            let line = format!("its counters, at {at}, lie outside of its memory");
            return Err(Fault::Interface(line));
        }
        self.counters_at = at;
        Ok(())
    }

    /// Has room for so many bytes in the module's memory.
    fn ensure_area(&mut self, bytes: usize, budget: u64) -> Result<(), Fault> {
        if bytes <= self.area_bytes {
            return Ok(());
        }
        let at = self.bare.call(&self.area, budget, bytes as u32)? as usize;
        if at == 0 {
            return Err(Fault::Memory(self.shared.limits.memory_bytes));
        }
        if !at.is_multiple_of(AREA_ALIGNMENT)
            || at + bytes > self.memory.data_size(&self.bare.store)
        {
            let line = format!("it gave {bytes} bytes at {at} as room, which it does not have");
            return Err(Fault::Interface(line));
        }
        (self.area_at, self.area_bytes) = (at, bytes);
        Ok(())
    }

    /// Writes to the beginning of the area, which has the room.
    fn write(&mut self, bytes: &[u8]) {
        let area = &mut self.memory.data_mut(&mut self.bare.store)[self.area_at..];
        area[..bytes.len()].copy_from_slice(bytes);
    }

    fn reply(&mut self) -> String {
        let reply = self.bare.store.data_mut().reply.take();
        reply.unwrap_or_else(|| "it does not say why".to_owned())
    }

    /// A call during which the module's wishes go to `effects`.
    fn with_effects<R>(
        &mut self,
        effects: &mut Effects,
        call: impl FnOnce(&mut WasmInstance) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        // Nearly no call has wishes: those of none are not moved.
        if !effects.is_empty() {
            std::mem::swap(effects, &mut self.bare.store.data_mut().effects);
        }
        let result = call(self);
        let wished = &mut self.bare.store.data_mut().effects;
        if !wished.is_empty() {
            std::mem::swap(effects, wished);
        }
        result
    }

    fn process_batch(&mut self, now: Time, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let packets = batch.packets().len();
        let bytes = self.rooms.bytes(packets);
        if bytes > self.area_bytes {
            let room = self.rooms.bytes(packets.next_power_of_two().min(BATCH_MAX));
            self.ensure_area(room, self.shared.limits.budget(packets))?;
        }
        let (start, end) = (self.area_at, self.area_at + bytes);
        let memory = self.memory.data_mut(&mut self.bare.store);
        self.rooms.write(batch, &mut memory[start..end], start);
        self.bare.store.data_mut().share_bps = batch.share_bps();
        let budget = self.shared.limits.budget(packets);
        let arguments = (start as u32, packets as u32, now.as_nanos());
        match self.bare.call(&self.process, budget, arguments)? {
            DONE => {}
            status => return Err(strange(exports::PROCESS, status)),
        }
        self.rooms.read(batch, &self.memory.data(&self.bare.store)[start..end])
    }
}

/// Bytes of memory that an instance of a module has from the beginning.
fn initial_bytes(module: &Module) -> u64 {
    match module.get_export(MEMORY) {
        Some(ExternType::Memory(memory)) => memory.minimum().saturating_mul(PAGE_BYTES),
        _ => 0,
    }
}

fn strange(function: &str, status: i32) -> Fault {
    Fault::Interface(format!("`{function}` returned {status}"))
}

impl Instance for WasmInstance {
    /// # Panics
    /// When there are more than [`BATCH_MAX`] packets.
    fn process(
        &mut self,
        now: Time,
        batch: &mut Batch<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        assert!(batch.packets().len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
        self.with_effects(effects, |instance| instance.process_batch(now, batch))
    }

    fn handle_message(
        &mut self,
        now: Time,
        message: &str,
        effects: &mut Effects,
    ) -> Result<Result<String, String>, Fault> {
        if message.len() > TEXT_BYTES_MAX {
            return Ok(Err(format!("a message has at most {TEXT_BYTES_MAX} bytes")));
        }
        let budget = self.shared.limits.text_budget();
        self.with_effects(effects, |instance| {
            instance.ensure_area(message.len(), budget)?;
            instance.write(message.as_bytes());
            let arguments = (instance.area_at as u32, message.len() as u32, now.as_nanos());
            let status = instance.bare.call(&instance.message, budget, arguments)?;
            let reply = instance.bare.store.data_mut().reply.take().unwrap_or_default();
            match status {
                DONE => Ok(Ok(reply)),
                REFUSED => Ok(Err(reply)),
                status => Err(strange(exports::MESSAGE, status)),
            }
        })
    }

    fn handle_timeout(&mut self, now: Time, effects: &mut Effects) -> Result<(), Fault> {
        let budget = self.shared.limits.budget(0);
        self.bare.store.data_mut().timer = None;
        self.with_effects(effects, |instance| {
            match instance.bare.call(&instance.timeout, budget, now.as_nanos())? {
                DONE => Ok(()),
                status => Err(strange(exports::TIMEOUT, status)),
            }
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.bare.store.data().timer
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let memory = &self.memory.data(&self.bare.store)[self.counters_at..];
        let (values, _) = memory.as_chunks::<8>();
        let values = values.iter().map(|bytes| u64::from_le_bytes(*bytes));
        self.shared.counters.iter().cloned().zip(values).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.memory.data_size(&self.bare.store)
    }
}
