//! The loop that drives the pipeline by the real clock: one thread, all ports, batch after batch.
//!
//! ```text
//!   each turn:   told to do? ─ for each port: receive ─ pipeline ─ advance ─ for each port: transmit
//!                     nothing moved?  sleep until a packet, a timer of the pipeline, or a word
//! ```
//!
//! Everything that forwards belongs to this thread, so there is not a lock on a packet's way. Whoever
//! wants to look or to change something says so with a function, which runs between two turns and
//! sees a router at rest ([`Remote::call`]); that is what "changed live, without loss" rests on.
//! Routes are the exception: their tables are written by another thread while this one reads.
//!
//! # Overload
//!
//! A turn takes at most [`TAKEN_AT_ONCE`] frames from a port before the outputs are served, and the
//! slow path is bounded by the pipeline. So work per turn is bounded, every port is served in every
//! turn, and what is too much is dropped by the device's own ring before we have touched it, so that the
//! paper's receiver livelock cannot begin in this thread. What the kernel spends before that is not ours.
//!
//! # Devices that go
//!
//! A link that goes down or an interface that is removed is a state of its port ([`Presence`]), and the
//! router is told; the others go on. A port that is gone can be given another device.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow};
use nilometer_router::memory::Place;
use nilometer_router::pipeline::Router;
use nilometer_wire::Time;

use super::control::messages::{Level, Messages};
use super::control::trace::{Traced, Tracer};
use crate::device::memory::{Census, Memory};
use crate::device::port::{Port, PortError, PortIo, PortStatistics, wait_with};
use crate::device::tap::TapPort;

/// Frames that a port may hand in before the outputs are served.
pub const TAKEN_AT_ONCE: usize = 256;
/// Frames that a port is handed before the next port is served.
const GIVEN_AT_ONCE: usize = 256;
/// A timer that is due this soon is waited for awake: the kernel's sleep is no finer.
const AWAKE_FOR: Duration = Duration::from_micros(60);
/// The longest sleep, so that a stop is noticed; and how often links are looked at.
const ASLEEP_FOR: Duration = Duration::from_millis(100);

/// How long the packets of a device without room are left alone.
const STUCK_FOR: Duration = Duration::from_micros(200);

/// What may be said to the driver.
type Word = Box<dyn FnOnce(&mut Driver) + Send>;

/// Whether a port's device is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It carries traffic.
    Up,
    /// Its link is down.
    Down,
    /// There is no device: it was removed, or not yet given.
    Gone,
}

impl Presence {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Presence::Up => "up",
            Presence::Down => "down",
            Presence::Gone => "gone",
        }
    }
}

/// A port of the router and what stands behind it.
struct Seat {
    device: Option<Port>,
    /// The kernel's side, to which packets for the router itself are punted.
    beside: Option<TapPort>,
    presence: Presence,
    /// Taken from the router, and not yet by the device.
    leaving: VecDeque<Place>,
    /// The device had no room.
    is_blocked: bool,
    /// What devices that are gone have counted.
    before: PortStatistics,
    lost: Lost,
}

/// Packets that left the pipeline and got no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The device went before it took them.
    pub unsent: u64,
    /// The kernel's side of the port had no room for them, or there is none.
    pub unpunted: u64,
}

/// The driver of one router.
pub struct Driver {
    router: Router,
    seats: Vec<Seat>,
    memory: Memory,
    began: Instant,
    taken: Vec<Place>,
    words: Receiver<Word>,
    bell: UnixStream,
    links_seen: Instant,
    /// Turns that were made, and those after which it slept.
    turns: (u64, u64),
    /// Who is told what happens to ports; stderr where nobody is.
    messages: Option<Messages>,
    /// Who gets the copies that filters ask for.
    tracer: Option<Tracer>,
}

/// Speaks to a driver from other threads.
#[derive(Clone)]
pub struct Remote {
    words: Sender<Word>,
    bell: Arc<UnixStream>,
}

impl Remote {
    /// Runs `work` between two turns, and returns what it returned.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T> {
        let stopped = || anyhow!("the router has stopped");
        let (answer, answered) = channel();
        let word = move |driver: &mut Driver| drop(answer.send(work(driver)));
        self.words.send(Box::new(word)).map_err(|_| stopped())?;
        self.ring();
        answered.recv().map_err(|_| stopped())
    }

    /// Wakes the driver.
    pub fn ring(&self) {
        // A bell that is full has been rung.
        let _ = (&*self.bell).write(&[1]);
    }
}

impl Driver {
    /// A driver for `router`, whose ports have no devices yet, and a way to speak to it.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(router: Router, memory: Memory) -> Result<(Driver, Remote)> {
        let (bell, far) = UnixStream::pair().context("cannot make a bell for the driver")?;
        for end in [&bell, &far] {
            end.set_nonblocking(true).context("cannot make a bell for the driver")?;
        }
        let (say, words) = channel();
        let seat = |_| Seat {
            device: None,
            beside: None,
            presence: Presence::Gone,
            leaving: VecDeque::new(),
            is_blocked: false,
            before: PortStatistics::default(),
            lost: Lost::default(),
        };
        let now = Instant::now();
        let driver = Driver {
            seats: (0..router.ports().len()).map(seat).collect(),
            router,
            memory,
            began: now,
            taken: Vec::with_capacity(TAKEN_AT_ONCE),
            words,
            bell,
            links_seen: now,
            turns: (0, 0),
            messages: None,
            tracer: None,
        };
        Ok((driver, Remote { words: say, bell: Arc::new(far) }))
    }

    /// Gives port `number` a device and, where packets for the router are punted, the kernel's side.
    /// The memory is that which both were opened with. Panics where there is no such port.
    pub fn seat(&mut self, number: usize, device: Port, beside: Option<TapPort>) {
        self.unseat(number);
        let seat = &mut self.seats[number];
        seat.device = Some(device);
        seat.beside = beside;
        self.look_at_link(number);
    }

    /// Takes the device from port `number`. Panics where there is no such port.
    pub fn unseat(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        seat.lost.unsent += seat.leaving.len() as u64;
        seat.leaving.drain(..).for_each(|place| self.memory.give(place));
        if let Some(mut device) = seat.device.take() {
            seat.before = added(seat.before, device.statistics().unwrap_or_default());
            device.close(&mut self.memory);
        }
        if let Some(beside) = seat.beside.take() {
            beside.close(&mut self.memory);
        }
        self.set_presence(number, Presence::Gone);
    }

    /// The time since the router began.
    pub fn now(&self) -> Time {
        let nanos = self.began.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The router, to be looked at.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// The router, to be changed.
    pub fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }

    /// The router and the memory that its packets lie in, for changes by which packets are dropped.
    pub fn parts_mut(&mut self) -> (&mut Router, &mut Memory) {
        (&mut self.router, &mut self.memory)
    }

    /// Whether the device of port `number` is there. Panics where there is no such port.
    pub fn presence(&self, number: usize) -> Presence {
        self.seats[number].presence
    }

    /// What the devices of port `number` have counted, one after the other. Panics where there is no
    /// such port.
    pub fn statistics(&mut self, number: usize) -> PortStatistics {
        let seat = &mut self.seats[number];
        let now = seat.device.as_mut().and_then(|device| device.statistics().ok());
        added(seat.before, now.unwrap_or_default())
    }

    /// What left the pipeline by port `number` and got no further. Panics where there is no such port.
    pub fn lost(&self, number: usize) -> Lost {
        self.seats[number].lost
    }

    /// Tells `messages` from now on what happens to ports.
    pub fn set_messages(&mut self, messages: Messages) {
        self.messages = Some(messages);
    }

    /// Lets `tracer` have the copies that filters ask for; whether nobody has them already.
    pub fn set_tracer(&mut self, tracer: Tracer) -> bool {
        let is_free = self.tracer.as_ref().is_none_or(Tracer::is_over);
        if is_free {
            self.tracer = Some(tracer);
        }
        is_free
    }

    /// Hands the copies on that filters ask for.
    fn trace(&mut self) {
        while let Some((port, place)) = self.router.poll_copy() {
            if let Some(tracer) = &mut self.tracer {
                let frame = self.memory.frame(&place).to_vec();
                if !tracer.hand_on(Traced { port, stamp: SystemTime::now(), frame }) {
                    self.tracer = None;
                }
            }
            self.memory.give(place);
        }
    }

    fn say(&self, level: Level, text: String) {
        match &self.messages {
            Some(messages) => messages.say(level, text),
            None if level <= Level::Warning => eprintln!("nilometer: {text}"),
            None => {}
        }
    }

    /// Where all packet buffers are.
    pub fn census(&self) -> Census {
        self.memory.census()
    }

    /// Turns that were made, and how many of them found nothing to do and slept.
    pub fn turns(&self) -> (u64, u64) {
        self.turns
    }

    /// Drives until `stop`; then gives the devices back.
    ///
    /// # Errors
    /// When the kernel refuses to let the thread sleep.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            self.turns.0 += 1;
            if !self.turn() {
                self.turns.1 += 1;
                self.sleep()?;
            }
        }
        for number in 0..self.seats.len() {
            self.unseat(number);
        }
        Ok(())
    }

    /// One turn; whether anything moved.
    pub fn turn(&mut self) -> bool {
        let mut moved = self.listen();
        if self.links_seen.elapsed() >= ASLEEP_FOR {
            self.links_seen = Instant::now();
            (0..self.seats.len()).for_each(|number| self.look_at_link(number));
        }
        let now = self.now();
        for number in 0..self.seats.len() {
            moved |= self.take_in(now, number);
        }
        self.router.advance(now, &mut self.memory, &mut ());
        self.trace();
        for number in 0..self.seats.len() {
            moved |= self.let_out(now, number);
        }
        moved
    }

    /// Does what was said.
    fn listen(&mut self) -> bool {
        let mut any = false;
        while let Ok(word) = self.words.try_recv() {
            word(self);
            any = true;
        }
        any
    }

    /// Frames from a port's device and from its kernel's side into the pipeline.
    fn take_in(&mut self, now: Time, number: usize) -> bool {
        let seat = &mut self.seats[number];
        let mut count = 0;
        if let Some(device) = &mut seat.device {
            self.taken.clear();
            match device.receive(&mut self.memory, &mut self.taken, TAKEN_AT_ONCE) {
                Ok(taken) => count += taken,
                Err(failure) => self.device_failed(number, &failure),
            }
            self.router.receive(now, number, &self.taken, &mut self.memory, &mut ());
        }
        let seat = &mut self.seats[number];
        if let Some(beside) = &mut seat.beside {
            self.taken.clear();
            // What fails here is the kernel's side alone; the device says so for both when it goes.
            count += beside.receive(&mut self.memory, &mut self.taken, 64).unwrap_or(0);
            for place in self.taken.drain(..) {
                self.router.inject(now, number, place, &mut self.memory);
            }
        }
        count > 0
    }

    /// Packets from the pipeline to a port's device and to its kernel's side.
    fn let_out(&mut self, now: Time, number: usize) -> bool {
        let moved = self.punt(number);
        let seat = &mut self.seats[number];
        let Some(device) = &mut seat.device else { return moved };
        if seat.presence != Presence::Up {
            return moved;
        }
        let room = device.room(&mut self.memory).min(GIVEN_AT_ONCE);
        while seat.leaving.len() < room {
            let Some(place) = self.router.transmit(now, number, &mut self.memory) else { break };
            seat.leaving.push_back(place);
        }
        let waiting = !seat.leaving.is_empty();
        let sent = device.transmit(&mut self.memory, &mut seat.leaving);
        let flushed = device.flush(&mut self.memory);
        seat.is_blocked = room == 0 || !seat.leaving.is_empty();
        for failure in [sent.err(), flushed.err()].into_iter().flatten() {
            self.device_failed(number, &failure);
        }
        moved || (waiting && !self.seats[number].is_blocked)
    }

    /// Packets for the router itself, to the kernel's side of the port that they came by.
    fn punt(&mut self, number: usize) -> bool {
        let seat = &mut self.seats[number];
        let mut punted = VecDeque::new();
        punted.extend(std::iter::from_fn(|| self.router.poll_punted(number)).take(64));
        let any = !punted.is_empty();
        if let Some(beside) = &mut seat.beside {
            let _ = beside.transmit(&mut self.memory, &mut punted);
            let _ = beside.flush(&mut self.memory);
        }
        seat.lost.unpunted += punted.len() as u64;
        punted.into_iter().for_each(|place| self.memory.give(place));
        any
    }

    fn device_failed(&mut self, number: usize, failure: &PortError) {
        match failure {
            PortError::Gone { .. } => self.unseat(number),
            PortError::Down { .. } => self.set_presence(number, Presence::Down),
            PortError::System { .. } => {
                self.say(Level::Error, format!("port {number}: {failure}; its device is closed"));
                self.unseat(number);
            }
        }
    }

    /// Tells the router of a change.
    fn set_presence(&mut self, number: usize, presence: Presence) {
        let before = std::mem::replace(&mut self.seats[number].presence, presence);
        if before != presence {
            self.seats[number].is_blocked = false;
            self.say(Level::Info, format!("port {number} is {}", presence.name()));
            // A port that nobody has plugged in has no link to tell of.
            let (now, is_up) = (self.now(), presence == Presence::Up);
            let _ = self.router.set_link(now, number, is_up, &mut self.memory);
        }
    }

    /// Looks whether the link of port `number` is up. Panics where there is no such port.
    pub fn look_at_link(&mut self, number: usize) {
        let Some(device) = &self.seats[number].device else { return };
        match device.link_is_up() {
            Ok(true) => self.set_presence(number, Presence::Up),
            Ok(false) => self.set_presence(number, Presence::Down),
            Err(failure) => self.device_failed(number, &failure),
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self) -> Result<()> {
        let now = self.now();
        let due = self.router.poll_timeout().map(|due| due.since(now).as_nanos());
        let rest = due.map_or(ASLEEP_FOR, |nanos| Duration::from_nanos(nanos).min(ASLEEP_FOR));
        let is_stuck = self.seats.iter().any(|seat| seat.is_blocked);
        if rest < AWAKE_FOR && !is_stuck {
            std::hint::spin_loop();
            return Ok(());
        }
        let rest = if is_stuck { rest.max(STUCK_FOR) } else { rest };
        let mut polls = vec![(self.bell.as_raw_fd(), libc::POLLIN)];
        for seat in &mut self.seats {
            let is_blocked = seat.is_blocked;
            let mut add = |descriptor, events| polls.push((descriptor, events));
            if let Some(device) = &mut seat.device {
                device.interest(is_blocked, &mut add);
            }
            if let Some(beside) = &mut seat.beside {
                beside.interest(false, &mut add);
            }
        }
        wait_with(&polls, rest).context("the router cannot sleep")?;
        self.silence_bell();
        Ok(())
    }

    fn silence_bell(&mut self) {
        let mut rung = [0; 64];
        loop {
            match self.bell.read(&mut rung) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}

/// The sums of two accounts.
fn added(a: PortStatistics, b: PortStatistics) -> PortStatistics {
    PortStatistics {
        rx_packets: a.rx_packets + b.rx_packets,
        rx_bytes: a.rx_bytes + b.rx_bytes,
        tx_packets: a.tx_packets + b.tx_packets,
        tx_bytes: a.tx_bytes + b.tx_bytes,
        rx_dropped: a.rx_dropped + b.rx_dropped,
        rx_invalid: a.rx_invalid + b.rx_invalid,
        rx_ring_full: a.rx_ring_full + b.rx_ring_full,
        rx_fill_empty: a.rx_fill_empty + b.rx_fill_empty,
        rx_oversize: a.rx_oversize + b.rx_oversize,
        rx_partial_checksum: a.rx_partial_checksum + b.rx_partial_checksum,
        tx_partial_checksum: a.tx_partial_checksum + b.tx_partial_checksum,
        tx_invalid: a.tx_invalid + b.tx_invalid,
        tx_full: a.tx_full + b.tx_full,
    }
}
