//! Errors of the engine as faults that an operator can read.

use nilometer_router::plugin::Fault;

use super::engine::{Error, Stop, stop};
use super::imports::Host;

/// Why a call ended: `budget` is what it had, `memory_bytes` what the instance may have.
pub(super) fn fault(error: &Error, host: &mut Host, budget: u64, memory_bytes: usize) -> Fault {
    if let Some(breach) = host.breach.take() {
        return breach;
    }
    let stopped = stop(error);
    match stopped {
        Some(Stop::Budget) => return Fault::Budget(budget),
        Some(Stop::Memory) => return Fault::Memory(memory_bytes),
        _ => {}
    }
    let account = host.account.take();
    Fault::Trap(account.unwrap_or_else(|| match stopped {
        Some(Stop::Other(why)) => why.to_owned(),
        _ => error.to_string(),
    }))
}
