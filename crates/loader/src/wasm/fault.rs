//! Errors of the engine as faults that an operator can read.

use nilometer_router::plugin::Fault;
use wasmi::{Error, TrapCode};

use super::imports::Host;

/// Why a call ended: `budget` is what it had, `memory_bytes` what the instance may have.
pub(super) fn fault(error: &Error, host: &mut Host, budget: u64, memory_bytes: usize) -> Fault {
    if let Some(breach) = host.breach.take() {
        return breach;
    }
    let code = error.as_trap_code();
    match code {
        Some(TrapCode::OutOfFuel) => return Fault::Budget(budget),
        Some(TrapCode::GrowthOperationLimited) => return Fault::Memory(memory_bytes),
        _ => {}
    }
    let account = host.account.take();
    Fault::Trap(account.unwrap_or_else(|| match code {
        Some(code) => plain(code).to_owned(),
        None => error.to_string(),
    }))
}

fn plain(code: TrapCode) -> &'static str {
    match code {
        TrapCode::UnreachableCodeReached => "it reached an instruction that it never should",
        TrapCode::MemoryOutOfBounds => "an access outside of its memory",
        TrapCode::TableOutOfBounds | TrapCode::IndirectCallToNull => "a call of no function",
        TrapCode::IntegerDivisionByZero => "a division by zero",
        TrapCode::IntegerOverflow => "an integer overflow",
        TrapCode::BadConversionToInteger => "a number that is no integer",
        TrapCode::BadSignature => "a call of a function of another type",
        TrapCode::StackOverflow => "calls nested too deeply",
        TrapCode::OutOfFuel => "its budget was used up",
        _ => "the engine stopped it",
    }
}
