//! The compiler, wasmtime with Cranelift: machine code made here, of a module that was checked, and kept in memory alone.
//!
//! Nothing that was compiled elsewhere is ever loaded: a signature does not sandbox machine code. Instructions are counted
//! as by the interpreter (fuel), so that a replay stops where the run did. Bounds are checked by comparison and not by
//! faults of the processor: the router's process has no handler of signals for the sake of a plugin, and an instance
//! takes no more addresses than its limit.

use std::fmt;

use wasmtime::{Config, OptLevel, ResourceLimiter, Strategy, Trap, ValType};

pub(in crate::wasm) use wasmtime::{
    Caller, Engine, Error, ExternType, Instance, Linker, Memory, Module, Store, TypedFunc,
    WasmParams, WasmResults,
};

use super::{
    DIVISION, NESTED, NO_FUNCTION, NO_INTEGER, OTHER_TYPE, OUTSIDE, OVERFLOW, STACK_BYTES_MAX,
    STOPPED, Stop, TABLE_ELEMENTS_MAX, UNREACHABLE, Word,
};
use crate::wasm::Limits;

/// Bytes by which a memory grows for an instruction: what the interpreter takes for filling them with zeros.
const BYTES_AN_INSTRUCTION: u64 = 64;

/// An engine for a class.
///
/// # Errors
/// When this processor or its settings cannot be.
pub(in crate::wasm) fn engine(limits: &Limits, has_budget: bool) -> Result<Engine, Error> {
    let mut configuration = Config::new();
    configuration
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .consume_fuel(has_budget)
        .signals_based_traps(false)
        .memory_reservation(limits.memory_bytes as u64)
        .memory_reservation_for_growth(0)
        .memory_guard_size(0)
        .memory_init_cow(false)
        .max_wasm_stack(STACK_BYTES_MAX)
        .wasm_relaxed_simd(false)
        .wasm_simd(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false);
    Engine::new(&configuration)
}

/// An instance of a module, whose start function has run.
///
/// # Errors
/// Why there is none.
pub(in crate::wasm) fn start<T: 'static>(
    linker: &Linker<T>,
    store: &mut Store<T>,
    module: &Module,
) -> Result<Instance, Error> {
    linker.instantiate(store, module)
}

/// An error of a function that the host has.
pub(in crate::wasm) fn failure(why: &'static str) -> Error {
    Error::msg(why)
}

/// Whether it is a function of this type.
pub(in crate::wasm) fn is_function(
    there: &ExternType,
    parameters: &[Word],
    results: &[Word],
) -> bool {
    let word = |kind: ValType| match kind {
        ValType::I32 => Some(Word::I32),
        ValType::I64 => Some(Word::I64),
        _ => None,
    };
    let ExternType::Func(there) = there else { return false };
    there.params().map(word).eq(parameters.iter().copied().map(Some))
        && there.results().map(word).eq(results.iter().copied().map(Some))
}

/// Why a call was stopped; nothing where the error is the host's.
pub(in crate::wasm) fn stop(error: &Error) -> Option<Stop> {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        return Some(refused.0);
    }
    Some(match error.downcast_ref::<Trap>()? {
        Trap::OutOfFuel => Stop::Budget,
        Trap::UnreachableCodeReached => UNREACHABLE,
        Trap::MemoryOutOfBounds => OUTSIDE,
        Trap::TableOutOfBounds | Trap::IndirectCallToNull => NO_FUNCTION,
        Trap::IntegerDivisionByZero => DIVISION,
        Trap::IntegerOverflow => OVERFLOW,
        Trap::BadConversionToInteger => NO_INTEGER,
        Trap::BadSignature => OTHER_TYPE,
        Trap::StackOverflow => NESTED,
        _ => STOPPED,
    })
}

/// Why a memory may not grow.
#[derive(Debug)]
struct Refused(Stop);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its memory may not grow")
    }
}

impl std::error::Error for Refused {}

/// What the engine holds an instance to: one that wants more memory than its limit traps.
#[derive(Clone, Copy, Debug)]
pub(in crate::wasm) struct MemoryLimiter {
    limit_bytes: usize,
    /// By so many bytes memory may grow in the call.
    growth_bytes: u64,
}

impl MemoryLimiter {
    pub(in crate::wasm) fn new(limit_bytes: usize) -> MemoryLimiter {
        MemoryLimiter { limit_bytes, growth_bytes: u64::MAX }
    }

    /// A call has so many instructions. (Fuel is not taken for growth, so it has a budget beside.)
    pub(in crate::wasm) fn begin_call(&mut self, budget: u64) {
        self.growth_bytes = budget.saturating_mul(BYTES_AN_INSTRUCTION);
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, Error> {
        if desired > self.limit_bytes {
            return Err(Refused(Stop::Memory).into());
        }
        match self.growth_bytes.checked_sub((desired - current) as u64) {
            Some(left) => self.growth_bytes = left,
            None => return Err(Refused(Stop::Budget).into()),
        }
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, Error> {
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
