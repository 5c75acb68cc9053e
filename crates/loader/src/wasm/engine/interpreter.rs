//! The interpreter, wasmi: small, and without machine code.

use wasmi::{CompilationMode, Config, EnforcedLimits, ResourceLimiter, TrapCode, ValType};
use wasmi_core::LimiterError;

pub(in crate::wasm) use wasmi::{
    Caller, Engine, Error, ExternType, Instance, Linker, Memory, Module, Store, TypedFunc,
    WasmParams, WasmResults,
};

use super::{
    DIVISION, NESTED, NO_FUNCTION, NO_INTEGER, OTHER_TYPE, OUTSIDE, OVERFLOW, STACK_BYTES_MAX,
    STOPPED, Stop, TABLE_ELEMENTS_MAX, UNREACHABLE, Word,
};
use crate::wasm::Limits;

/// Frames of calls within a module.
const RECURSION_MAX: usize = 256;

/// An engine for a class.
///
/// # Errors
/// Never.
pub(in crate::wasm) fn engine(_: &Limits, has_budget: bool) -> Result<Engine, Error> {
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
    Ok(Engine::new(&configuration))
}

/// An instance of a module, whose start function has run.
///
/// # Errors
/// Why there is none.
pub(in crate::wasm) fn start<T>(
    linker: &Linker<T>,
    store: &mut Store<T>,
    module: &Module,
) -> Result<Instance, Error> {
    linker.instantiate_and_start(store, module)
}

/// An error of a function that the host has.
pub(in crate::wasm) fn failure(why: &'static str) -> Error {
    Error::new(why)
}

/// Whether it is a function of this type.
pub(in crate::wasm) fn is_function(
    there: &ExternType,
    parameters: &[Word],
    results: &[Word],
) -> bool {
    let word = |kind: &ValType| match kind {
        ValType::I32 => Some(Word::I32),
        ValType::I64 => Some(Word::I64),
        _ => None,
    };
    let are = |there: &[ValType], words: &[Word]| {
        there.iter().map(word).eq(words.iter().copied().map(Some))
    };
    let ExternType::Func(there) = there else { return false };
    are(there.params(), parameters) && are(there.results(), results)
}

/// Why a call was stopped; nothing where the error is the host's.
pub(in crate::wasm) fn stop(error: &Error) -> Option<Stop> {
    Some(match error.as_trap_code()? {
        TrapCode::OutOfFuel => Stop::Budget,
        TrapCode::GrowthOperationLimited => Stop::Memory,
        TrapCode::UnreachableCodeReached => UNREACHABLE,
        TrapCode::MemoryOutOfBounds => OUTSIDE,
        TrapCode::TableOutOfBounds | TrapCode::IndirectCallToNull => NO_FUNCTION,
        TrapCode::IntegerDivisionByZero => DIVISION,
        TrapCode::IntegerOverflow => OVERFLOW,
        TrapCode::BadConversionToInteger => NO_INTEGER,
        TrapCode::BadSignature => OTHER_TYPE,
        TrapCode::StackOverflow => NESTED,
        _ => STOPPED,
    })
}

/// What the engine holds an instance to: one that wants more memory than its limit traps.
#[derive(Clone, Copy, Debug)]
pub(in crate::wasm) struct MemoryLimiter {
    limit_bytes: usize,
}

impl MemoryLimiter {
    pub(in crate::wasm) fn new(limit_bytes: usize) -> MemoryLimiter {
        MemoryLimiter { limit_bytes }
    }

    /// A call has so many instructions. (The engine itself takes those that growth costs.)
    pub(in crate::wasm) fn begin_call(&mut self, _budget: u64) {}
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, LimiterError> {
        match desired <= self.limit_bytes {
            true => Ok(true),
            false => Err(LimiterError::ResourceLimiterDeniedAllocation),
        }
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, LimiterError> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}
