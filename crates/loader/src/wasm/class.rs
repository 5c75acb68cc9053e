//! A module that was checked, and the instances made of it.

use std::sync::Arc;

use nilometer_plugin::interface;
use nilometer_router::plugin::{Class, ClassFacts, Engine as Runs, Instance, Refusal};

use super::description::Description;
use super::engine::{Error, Linker, Module, engine};
use super::imports::define;
use super::instance::{Bare, WasmInstance};
use super::shared::Shared;
use super::{Limits, LoadError, contract};

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
        let invalid = |error: Error| LoadError::Module(in_one_line(&error));
        let engine = engine(&limits, has_budget).map_err(invalid)?;
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

fn in_one_line(error: &Error) -> String {
    format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ")
}
