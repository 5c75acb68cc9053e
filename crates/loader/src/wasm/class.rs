//! A module that was checked, and the instances made of it.

use std::sync::Arc;

use nilometer_plugin::interface;
use nilometer_router::plugin::{Class, ClassFacts, Engine as Runs, Instance, Refusal};
use wasmi::{CompilationMode, Config, EnforcedLimits, Engine, Linker, Module};

use super::description::Description;
use super::imports::define;
use super::instance::{Bare, WasmInstance};
use super::shared::Shared;
use super::{Limits, LoadError, contract};

/// Frames of calls within a module, and bytes of its stack.
const RECURSION_MAX: usize = 256;
const STACK_BYTES_MAX: usize = 256 << 10;

/// A module of WebAssembly as a plugin class.
#[derive(Clone)]
pub struct WasmClass {
    facts: ClassFacts,
    shared: Arc<Shared>,
}

impl WasmClass {
    /// Validates a module, translates it, and asks it what it is; `limits` are cut to [`Limits::MOST`].
    ///
    /// # Errors
    /// Why it is no plugin class.
    pub fn load(module: &[u8], limits: &Limits) -> Result<WasmClass, LoadError> {
        WasmClass::load_as(module, limits, true)
    }

    /// The same without counting instructions, so that a call that does not end never does: for measuring what counting
    /// costs, and for nothing else.
    ///
    /// # Errors
    /// As for [`WasmClass::load`].
    pub fn load_without_budget(module: &[u8], limits: &Limits) -> Result<WasmClass, LoadError> {
        WasmClass::load_as(module, limits, false)
    }

    fn load_as(module: &[u8], limits: &Limits, has_budget: bool) -> Result<WasmClass, LoadError> {
        let limits = limits.within(&Limits::MOST);
        if module.len() > limits.module_bytes {
            return Err(LoadError::TooLong { bytes: module.len(), limit: limits.module_bytes });
        }
        let engine = Engine::new(&configuration(has_budget));
        let invalid = |error: wasmi::Error| LoadError::Module(error.to_string());
        let module = Module::new(&engine, module).map_err(invalid)?;
        contract::check_imports(&module)?;
        let mut linker = Linker::new(&engine);
        define(&mut linker).map_err(invalid)?;
        let counters = Vec::new();
        let mut shared = Shared { module, linker, limits, has_budget, counters, seen_bytes: 0 };
        let mut bare = Bare::new(&shared)?;
        let version = bare.version()?;
        if version != interface::VERSION {
            let known = interface::VERSION;
            return Err(LoadError::Version { found: version, known });
        }
        contract::check_exports(&shared.module)?;
        let text = bare.description()?;
        let description = Description::read(&text).map_err(LoadError::Description)?;
        shared.counters = description.counters;
        shared.seen_bytes = description.seen_bytes;
        let facts = ClassFacts {
            name: description.name,
            version: description.version,
            engine: Runs::Wasm,
            seen_bytes: description.seen_bytes,
        };
        Ok(WasmClass { facts, shared: Arc::new(shared) })
    }

    /// The limits of its instances.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The names of its counters.
    pub fn counters(&self) -> &[String] {
        &self.shared.counters
    }
}

impl Class for WasmClass {
    fn facts(&self) -> &ClassFacts {
        &self.facts
    }

    fn instantiate(&self, configuration: &str, seed: u64) -> Result<Box<dyn Instance>, Refusal> {
        if configuration.len() > interface::TEXT_BYTES_MAX {
            let limit = interface::TEXT_BYTES_MAX;
            return Err(Refusal::Configuration(format!("it has more than {limit} bytes")));
        }
        let instance = WasmInstance::new(&self.shared, configuration, seed)?;
        Ok(Box::new(instance))
    }
}

fn configuration(has_budget: bool) -> Config {
    let mut configuration = Config::default();
    configuration
        .consume_fuel(has_budget)
        .compilation_mode(CompilationMode::Eager)
        .enforced_limits(EnforcedLimits::strict())
        .set_max_recursion_depth(RECURSION_MAX)
        .set_max_stack_height(STACK_BYTES_MAX)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .ignore_custom_sections(true);
    configuration
}
