//! What a module must export and may import, held against the module before any of it runs.

use std::borrow::Borrow;

use nilometer_plugin::interface::{IMPORTS, exports, imports};

use super::LoadError;
use super::engine::Word::{self, I32, I64};
use super::engine::{ExternType, Module, is_function};

/// A function of the interface: its name, its parameters and its results.
type Function = (&'static str, &'static [Word], &'static [Word]);

/// Under this name a plugin exports its linear memory.
pub(super) const MEMORY: &str = "memory";

const EXPORTED: [Function; 8] = [
    (exports::INTERFACE, &[], &[I32]),
    (exports::DESCRIBE, &[], &[I64]),
    (exports::AREA, &[I32], &[I32]),
    (exports::NEW, &[I32, I32, I64], &[I32]),
    (exports::PROCESS, &[I32, I32, I64], &[I32]),
    (exports::MESSAGE, &[I32, I32, I64], &[I32]),
    (exports::TIMEOUT, &[I64], &[I32]),
    (exports::COUNTERS, &[], &[I32]),
];

const IMPORTED: [Function; 6] = [
    (imports::EMIT, &[I32, I32], &[I32]),
    (imports::LOG, &[I32, I32], &[]),
    (imports::REPLY, &[I32, I32], &[]),
    (imports::SET_TIMER, &[I64], &[]),
    (imports::SHARE, &[], &[I64]),
    (imports::FAULT, &[I32, I32], &[]),
];

/// (One engine has a type, the other lends it.)
fn is_of(there: impl Borrow<ExternType>, function: &Function) -> bool {
    is_function(there.borrow(), function.1, function.2)
}

/// The module imports functions of the interface alone, and says which version of it it is of.
///
/// # Errors
/// The first thing that is otherwise.
pub(super) fn check_imports(module: &Module) -> Result<(), LoadError> {
    for import in module.imports() {
        let (from, name) = (import.module(), import.name());
        let known = IMPORTED.iter().find(|function| from == IMPORTS && function.0 == name);
        let Some(function) = known else {
            return Err(LoadError::Import { module: from.to_owned(), name: name.to_owned() });
        };
        if !is_of(import.ty(), function) {
            return Err(LoadError::ImportType(name.to_owned()));
        }
    }
    check_export(module, &EXPORTED[0])
}

/// The module exports everything else that the interface wants.
///
/// # Errors
/// The first thing that is missing or of another type.
pub(super) fn check_exports(module: &Module) -> Result<(), LoadError> {
    match module.get_export(MEMORY) {
        Some(ExternType::Memory(memory)) if !memory.is_64() => {}
        Some(_) => return Err(LoadError::ExportType(MEMORY)),
        None => return Err(LoadError::Export(MEMORY)),
    }
    EXPORTED.iter().try_for_each(|function| check_export(module, function))
}

fn check_export(module: &Module, function: &Function) -> Result<(), LoadError> {
    match module.get_export(function.0) {
        Some(there) if is_of(&there, function) => Ok(()),
        Some(_) => Err(LoadError::ExportType(function.0)),
        None => Err(LoadError::Export(function.0)),
    }
}
