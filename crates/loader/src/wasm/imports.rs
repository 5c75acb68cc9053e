//! What the host does for a module: emit, log, reply, set the timer.

use nilometer_plugin::interface::{IMPORTS, NO_TIMER, TEXT_BYTES_MAX, imports};
use nilometer_router::plugin::batch::EMITTED_BYTES_MAX;
use nilometer_router::plugin::{Effects, Fault};
use nilometer_wire::Time;

use super::engine::{Caller, Error, Linker, Memory, MemoryLimiter, failure};

/// Bytes of a line that are looked at.
const LINE_BYTES_MAX: usize = 256;
/// Lines that a call may log before they are not even looked at.
const LINES_MAX: u32 = 8;

/// What belongs to an instance beside its memory.
pub(super) struct Host {
    pub(super) limiter: MemoryLimiter,
    /// None until the module is instantiated.
    pub(super) memory: Option<Memory>,
    pub(super) effects: Effects,
    pub(super) timer: Option<Time>,
    /// Of the batch that is being processed.
    pub(super) share_bps: Option<u64>,
    pub(super) reply: Option<String>,
    /// Why the module is about to trap, by its own account.
    pub(super) account: Option<String>,
    /// How it did not keep to the interface.
    pub(super) breach: Option<Fault>,
    lines: u32,
}

impl Host {
    pub(super) fn new(memory_bytes: usize) -> Host {
        Host {
            limiter: MemoryLimiter::new(memory_bytes),
            memory: None,
            effects: Effects::default(),
            timer: None,
            share_bps: None,
            reply: None,
            account: None,
            breach: None,
            lines: 0,
        }
    }

    /// Nothing is left of the call before; the next one has so many instructions.
    pub(super) fn begin_call(&mut self, budget: u64) {
        self.limiter.begin_call(budget);
        self.reply = None;
        self.account = None;
        self.breach = None;
        self.lines = 0;
    }

    fn breaks(&mut self, how: String) -> Error {
        self.breach = Some(Fault::Interface(how));
        failure("a breach of the interface")
    }
}

/// The bytes that a module points to, and the host.
fn pointed<'a>(
    caller: &'a mut Caller<'_, Host>,
    function: &str,
    address: u32,
    bytes: u32,
    bytes_max: usize,
) -> Result<(&'a [u8], &'a mut Host), Error> {
    let Some(memory) = caller.data().memory else {
        return Err(caller.data_mut().breaks(format!("it called `{function}` before its time")));
    };
    let (memory, host) = memory.data_and_store_mut(caller);
    let start = address as usize;
    match memory.get(start..start.saturating_add(bytes as usize)) {
        Some(found) => Ok((&found[..found.len().min(bytes_max)], host)),
        None => Err(host.breaks(format!(
            "`{function}` was given {bytes} bytes at {address}, outside of its memory"
        ))),
    }
}

fn emit(mut caller: Caller<'_, Host>, address: u32, bytes: u32) -> Result<u32, Error> {
    let whole = EMITTED_BYTES_MAX + 1;
    let (packet, host) = pointed(&mut caller, imports::EMIT, address, bytes, whole)?;
    Ok(u32::from(host.effects.emit(packet)))
}

fn log(mut caller: Caller<'_, Host>, address: u32, bytes: u32) -> Result<(), Error> {
    let (line, host) = pointed(&mut caller, imports::LOG, address, bytes, LINE_BYTES_MAX)?;
    host.lines += 1;
    if host.lines <= LINES_MAX {
        host.effects.log(&String::from_utf8_lossy(line));
    }
    Ok(())
}

fn reply(mut caller: Caller<'_, Host>, address: u32, bytes: u32) -> Result<(), Error> {
    let (text, host) = pointed(&mut caller, imports::REPLY, address, bytes, TEXT_BYTES_MAX)?;
    if host.reply.is_some() {
        return Err(host.breaks("it called `reply` twice".to_owned()));
    }
    host.reply = Some(String::from_utf8_lossy(text).into_owned());
    Ok(())
}

fn set_timer(mut caller: Caller<'_, Host>, at_ns: u64) {
    caller.data_mut().timer = (at_ns != NO_TIMER).then(|| Time::from_nanos(at_ns));
}

fn share(caller: Caller<'_, Host>) -> i64 {
    caller.data().share_bps.and_then(|share| i64::try_from(share).ok()).unwrap_or(-1)
}

fn fault(mut caller: Caller<'_, Host>, address: u32, bytes: u32) -> Result<(), Error> {
    let (text, host) = pointed(&mut caller, imports::FAULT, address, bytes, LINE_BYTES_MAX)?;
    if host.account.is_none() {
        host.account = Some(String::from_utf8_lossy(text).into_owned());
    }
    Ok(())
}

/// Defines them all.
///
/// # Errors
/// Never: each name is there once.
pub(super) fn define(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(IMPORTS, imports::EMIT, emit)?;
    linker.func_wrap(IMPORTS, imports::LOG, log)?;
    linker.func_wrap(IMPORTS, imports::REPLY, reply)?;
    linker.func_wrap(IMPORTS, imports::SET_TIMER, set_timer)?;
    linker.func_wrap(IMPORTS, imports::SHARE, share)?;
    linker.func_wrap(IMPORTS, imports::FAULT, fault)?;
    Ok(())
}
