//! Drives a node by the real clock: one thread, frames in a packet memory, any kind of port.
//!
//! ```text
//!   each turn:   for each port: receive ─ node ─ what is due leaves ─ for each port: transmit
//!                (or transmits before it receives: [`Turns`])
//!                    nothing moved?  look again for a while; then sleep until a frame comes or the node's next moment is near
//! ```
//!
//! The last `AWAKE_FOR` before a moment are waited for awake, as the kernel's sleep is no finer. A frame that a
//! port has no room for waits in front of it, in order; nothing is dropped here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nilometer_linux::epoll::PromptTimers;
use nilometer_linux::memory::{Packet, PacketMemory as Memory};
use nilometer_linux::port::{PortError, PortIo, PortStatistics, wait};
use nilometer_linux::spinning::Spinning;
use nilometer_wire::{Node, Order, Port, Span, Time, Turns};

/// How long before a moment it is waited for awake.
const AWAKE_FOR: Duration = Duration::from_micros(60);
/// How long it polls for the next frame before it sleeps: a node delays frames by its own clock, and a wake-up
/// would be added to that.
const SPIN_FOR: Duration = Duration::from_millis(1);
/// The longest sleep, so that a stop is noticed.
const ASLEEP_FOR: Duration = Duration::from_millis(20);
/// How long a port without room is left alone.
const STUCK_FOR: Duration = Duration::from_micros(200);

/// A busy node moves at least this many frames in a millisecond.
const BUSY_FRAMES: u64 = 30;
const BUSY_SPAN: Span = Span::from_nanos(1_000_000);

/// A node between ports.
pub struct Driver<'a, N, P> {
    node: N,
    ports: Vec<P>,
    memory: Memory,
    leaving: Vec<VecDeque<Packet>>,
    batch: Vec<Packet>,
    spinning: Spinning,
    turns: Turns,
    /// How long it rests between turns while the node is busy, so that frames come by the batch.
    rest: Option<Duration>,
    /// Since when frames are counted, how many there were, and whether those before were many.
    busy: (Time, u64, bool),
    clock: &'a dyn Fn() -> Time,
}

impl<'a, N: Node<Packet, Memory>, P: PortIo> Driver<'a, N, P> {
    /// `node` between `ports`, which were opened with this memory; `clock` never runs backwards.
    pub fn new(
        node: N,
        ports: Vec<P>,
        memory: Memory,
        clock: &'a dyn Fn() -> Time,
    ) -> Driver<'a, N, P> {
        let leaving = ports.iter().map(|_| VecDeque::new()).collect();
        let spinning = Spinning::new(SPIN_FOR);
        let turns = Turns::default();
        let (rest, busy) = (None, (Time::ZERO, 0, false));
        let batch = Vec::new();
        Driver { node, ports, memory, leaving, batch, spinning, turns, rest, busy, clock }
    }

    /// Takes turns with the node in another way.
    pub fn with_turns(self, turns: Turns) -> Driver<'a, N, P> {
        Driver { turns: Turns { batch: turns.batch.max(1), ..turns }, ..self }
    }

    /// Polls for the next frame for at most `spin` before it sleeps.
    pub fn spinning(self, spin: Duration) -> Driver<'a, N, P> {
        Driver { spinning: Spinning::new(spin), ..self }
    }

    /// Polls for the next frame for at most `spin` before it sleeps, and sleeps for `rest` between the turns of a busy
    /// node. Timers are late by at most `rest`; in return frames are handled in batches, which costs less processor
    /// time and leaves more of it to other threads.
    pub fn resting(self, spin: Duration, rest: Duration) -> Driver<'a, N, P> {
        Driver { spinning: Spinning::new(spin), rest: Some(rest), ..self }
    }

    /// The counters of the ports.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn statistics(&mut self) -> Result<Vec<PortStatistics>> {
        self.ports.iter_mut().map(|port| port.statistics().map_err(Into::into)).collect()
    }

    /// Frames that left the node and wait for room of a port.
    pub fn waiting(&self) -> usize {
        self.leaving.iter().map(VecDeque::len).sum()
    }

    /// Drives until `stop`, looking after each turn with `look`.
    ///
    /// # Errors
    /// When a port fails other than by a link that is down, or the thread cannot sleep.
    pub fn run(&mut self, stop: &AtomicBool, mut look: impl FnMut(&mut N)) -> Result<()> {
        let _prompt = PromptTimers::new();
        while !stop.load(Ordering::Acquire) {
            let moved = self.turn()?;
            look(&mut self.node);
            if let Some(rest) = self.rest.filter(|_| self.is_busy()) {
                std::thread::sleep(rest);
            } else if self.spinning.after_turn(moved, Instant::now) {
                std::hint::spin_loop();
            } else if !moved {
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Whether many frames moved in the last millisecond that is over.
    fn is_busy(&mut self) -> bool {
        let now = (self.clock)();
        let (since, frames, _) = self.busy;
        if now.since(since) >= BUSY_SPAN {
            self.busy = (now, 0, frames >= BUSY_FRAMES);
        }
        // (A whole batch may have more behind it.)
        self.busy.2 && self.batch.len() < self.turns.batch
    }

    /// One turn; whether anything moved.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn turn(&mut self) -> Result<bool> {
        let mut moved = self.turns.order == Order::TransmitFirst && self.transmit()?;
        for number in 0..self.ports.len() {
            moved |= self.receive(number)?;
        }
        if self.turns.order == Order::ReceiveFirst {
            moved |= self.transmit()?;
        }
        Ok(moved)
    }

    fn receive(&mut self, number: usize) -> Result<bool> {
        self.batch.clear();
        let taken = self.ports[number].receive(&mut self.memory, &mut self.batch, self.turns.batch);
        let count = unless_down(taken)?.unwrap_or(0);
        self.busy.1 += count as u64;
        let now = (self.clock)();
        let port = Port(number as u32);
        if !self.batch.is_empty() {
            self.node.receive_batch(now, port, &self.batch, &mut self.memory);
        }
        Ok(count > 0)
    }

    fn transmit(&mut self) -> Result<bool> {
        let now = (self.clock)();
        if self.node.poll_timeout().is_some_and(|due| due <= now) {
            self.node.handle_timeout(now, &mut self.memory);
        }
        let mut frame = Packet::default();
        let mut moved = false;
        while let Some(port) = self.node.poll_transmit(now, &mut frame, &mut self.memory) {
            self.leaving[port.0 as usize].push_back(frame);
            self.busy.1 += 1;
            moved = true;
        }
        let memory = &mut self.memory;
        for (port, leaving) in self.ports.iter_mut().zip(&mut self.leaving) {
            if !leaving.is_empty() {
                moved |= unless_down(port.transmit(memory, leaving))?.is_some_and(|sent| sent > 0);
            }
            // (Also where nothing was sent: buffers of frames sent earlier come back by it.)
            unless_down(port.flush(memory))?;
        }
        Ok(moved)
    }

    fn sleep(&mut self) -> Result<()> {
        let now = (self.clock)();
        let due = self.node.poll_timeout().map(|due| due.since(now).as_nanos());
        let rest = due.map_or(ASLEEP_FOR, |nanos| Duration::from_nanos(nanos).min(ASLEEP_FOR));
        let is_stuck = self.waiting() > 0;
        if rest <= AWAKE_FOR && !is_stuck {
            std::hint::spin_loop();
            return Ok(());
        }
        let rest = rest.saturating_sub(AWAKE_FOR);
        let rest = if is_stuck { rest.max(STUCK_FOR) } else { rest };
        let leaving = &self.leaving;
        wait(&mut self.ports, |number| !leaving[number].is_empty(), rest)
            .context("the device cannot sleep")?;
        Ok(())
    }

    /// Gives the ports back and takes the node.
    pub fn close(mut self) -> N {
        let memory = &mut self.memory;
        for packet in self.leaving.drain(..).flatten() {
            memory.give(packet);
        }
        for port in self.ports.drain(..) {
            port.close(memory);
        }
        self.node
    }
}

/// The result of a port; none where its link is down, which is temporary.
fn unless_down<T>(done: Result<T, PortError>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(PortError::Down { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wires;
