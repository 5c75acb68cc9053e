//! The loop that drives the pipeline by the real clock: one thread, all ports, batch after batch.
//!
//! ```text
//!   each turn:   calls ─ for each port: receive ─ pipeline ─ advance ─ for each port: transmit
//!                     nothing moved?  look again for a while, where that is wanted (`Spinning`); then
//!                                     sleep until a packet, a timer of the pipeline, or a call
//!                     few frames, and more to come?  rest until some have gathered
//! ```
//!
//! Everything that forwards belongs to this thread, so there is no lock on a packet's path. A caller
//! that wants to look or to change something passes a function, which runs between two turns and sees a
//! router at rest ([`Remote::call`]); "changed live, without loss" depends on that. Routes are the
//! exception: their tables are written by another thread while this one reads.
//!
//! # Overload
//!
//! A turn takes at most [`TAKEN_AT_ONCE`] frames from a port before the outputs are served, and the
//! slow path is bounded by the pipeline. So work per turn is bounded, every port is served in every
//! turn, and excess frames are dropped by the device's own ring before this thread has touched them, so
//! that the paper's receiver livelock cannot begin here. The kernel's cost before that is outside our
//! control.
//!
//! # Devices that disappear
//!
//! A link that goes down or an interface that is removed is a state of its port ([`Presence`]), and the
//! router is informed; the other ports continue. A port whose device is gone can be given another one.

mod backlogs;
mod flow_offload;
mod gather;
mod inputs;
mod lateness;
mod links;
mod noticed;
mod offload_log;
mod plugin_orders;
mod port_slot;
mod remote;
mod reports;
mod signalling;
mod stalls;
mod stress_test;
mod tracer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nilometer_router::memory::Place;
use nilometer_router::pipeline::Router;
use nilometer_wire::{Span, Time};

use super::control::messages::Messages;
use super::latest::HopsReader;
use super::pace::Pace;
use super::recording::{Command, Recorder, Turn};
use super::stress::Stress;
pub use backlogs::{Backlogs, Course, PortCourses, Step, Waited};
use flow_offload::Grants;
use gather::Gathering;
pub use lateness::TimerLateness;
use nilometer_linux::epoll::PromptTimers;
use nilometer_linux::flow_offload::FlowOffload;
use nilometer_linux::memory::{Census, PacketMemory};
use nilometer_linux::port::{AnyPort, PortIo, PortStatistics, wait_with};
use nilometer_linux::spinning::Spinning;
use nilometer_linux::tap::TapPort;
pub use offload_log::{OffloadEvent, OffloadLog};
pub use plugin_orders::{PluginOrder, PluginOrders};
use port_slot::PortSlot;
pub use port_slot::{Lost, Presence};
use remote::CallReceiver;
pub use remote::Remote;
pub use signalling::Reserved;
use signalling::Signalling;
pub use stalls::Stalls;
pub use tracer::{Traced, Tracer};

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

/// The driver of one router.
pub struct Driver {
    router: Router,
    slots: Vec<PortSlot>,
    memory: PacketMemory,
    began: Instant,
    taken: Vec<Place>,
    /// Frames that devices handed in during this turn.
    came: usize,
    gathering: Gathering,
    call_receiver: CallReceiver,
    hops: HopsReader,
    links_seen: Instant,
    /// Turns that were made, and those after which it slept.
    turns: (u64, u64),
    spinning: Spinning,
    /// The receiver of port events; stderr where there is none.
    messages: Option<Messages>,
    /// The receiver of the copies that filters request.
    tracer: Option<Tracer>,
    /// The watcher of ports that come and go.
    watcher: Option<Sender<(usize, Presence)>>,
    stress: Option<Box<Stress>>,
    stalls: Option<stalls::Watch>,
    lateness: Option<lateness::Watch>,
    backlogs: Option<Box<Backlogs>>,
    grants: Option<Box<Grants>>,
    recorder: Option<Box<Recorder>>,
    signalling: Option<Box<Signalling>>,
}

impl Driver {
    /// A driver for `router`, whose next hops are those of a RIB thread and whose ports have no devices
    /// yet, and a handle to call it by. If there is a `recorder`, it has recorded the beginning.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(
        mut router: Router,
        memory: PacketMemory,
        hops: HopsReader,
        recorder: Option<Recorder>,
    ) -> Result<(Driver, Remote)> {
        let mut recorder = recorder.map(Box::new);
        let (call_receiver, remote) = remote::line()?;
        Driver::set_hops(&mut router, &mut recorder, Arc::clone(hops.current()));
        let now = Instant::now();
        let driver = Driver {
            slots: router.ports().iter().map(|_| PortSlot::empty()).collect(),
            gathering: Gathering::new(router.ports().len()),
            router,
            memory,
            began: now,
            taken: Vec::with_capacity(TAKEN_AT_ONCE),
            came: 0,
            call_receiver,
            hops,
            links_seen: now,
            turns: (0, 0),
            spinning: Spinning::new(Duration::ZERO),
            messages: None,
            tracer: None,
            watcher: None,
            stress: None,
            stalls: None,
            lateness: None,
            backlogs: None,
            grants: None,
            recorder,
            signalling: None,
        };
        Ok((driver, remote))
    }

    /// Lets flows take shortcuts of this table from now on. Devices that were opened with it are given afterwards.
    pub fn set_flow_offload(&mut self, table: FlowOffload) {
        self.grants = Some(Box::new(Grants::new(table)));
    }

    /// Writes down from now on which flows have shortcuts; none where no flow can have one.
    pub fn log_offloads(&mut self) -> Option<OffloadLog> {
        self.grants.as_mut().map(|grants| grants.log())
    }

    /// Sets how long it polls for frames after one was moved before it sleeps.
    pub fn set_spin(&mut self, most: Duration) {
        self.spinning = Spinning::new(most);
    }

    /// The table of shortcuts, for devices to be opened with.
    pub fn flow_offload(&self) -> Option<FlowOffload> {
        self.grants.as_ref().map(|grants| grants.table())
    }

    /// Gives port `number` a device and, where packets for the router are punted, the kernel's side.
    /// The memory is the one that both were opened with. Panics where there is no such port.
    pub fn attach(&mut self, number: usize, device: AnyPort, beside: Option<TapPort>) {
        self.detach(number);
        let slot = &mut self.slots[number];
        slot.device = Some(device);
        slot.beside = beside;
        self.look_at_link(number);
    }

    /// Takes the device from port `number`. Panics where there is no such port.
    pub fn detach(&mut self, number: usize) {
        self.slots[number].clear(&mut self.memory);
        self.set_sending(number, 0);
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

    /// Paces the link of output `number`; without a rate only the device limits it. Where a link has a
    /// rate or a length, packets are taken in as they come, for the sake of their timestamps. Panics
    /// where there is no such port.
    pub fn set_pace(&mut self, number: usize, pace: Pace) {
        self.gathering.set_paced(number, pace.rate.is_some() || pace.delay > Span::ZERO);
        // (Of numbers alone, which can always be written down.)
        let _ = self.change(
            || Command::pace(number, pace),
            |_, router, _| pace.set(router.fabric_mut(), number),
        );
    }

    /// The router and the memory that its packets lie in, for changes by which packets are dropped.
    pub fn parts_mut(&mut self) -> (&mut Router, &mut PacketMemory) {
        (&mut self.router, &mut self.memory)
    }

    /// Whether the device of port `number` is there. Panics where there is no such port.
    pub fn presence(&self, number: usize) -> Presence {
        self.slots[number].presence
    }

    /// The counters of the successive devices of port `number`, together. Panics where there is no such port.
    pub fn statistics(&mut self, number: usize) -> PortStatistics {
        self.slots[number].statistics()
    }

    /// Packets that left the pipeline by port `number` and got no further. Panics where there is no
    /// such port.
    pub fn lost(&self, number: usize) -> Lost {
        self.slots[number].lost
    }

    /// Reports to `watcher` the current state of all ports, and from now on which ports come and go. It
    /// gets messages rather than calls, because the thread that fails next hops may wait for this
    /// thread to take them.
    pub fn watch(&mut self, watcher: Sender<(usize, Presence)>) {
        for (number, slot) in self.slots.iter().enumerate() {
            // A watcher that has stopped needs no message.
            let _ = watcher.send((number, slot.presence));
        }
        self.watcher = Some(watcher);
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
        let driven = self.drive(stop);
        for slot in &mut self.slots {
            slot.clear(&mut self.memory);
        }
        // (Of a router that fails, too.)
        let recorded = self.end_recording();
        driven.and(recorded)
    }

    fn drive(&mut self, stop: &AtomicBool) -> Result<()> {
        let _prompt = PromptTimers::new();
        while !stop.load(Ordering::Acquire) {
            self.turns.0 += 1;
            let has_moved = self.watched_turn();
            if self.spinning.after_turn(has_moved, Instant::now) {
                std::hint::spin_loop();
            } else if !has_moved {
                self.turns.1 += 1;
                self.sleep()?;
            } else if let Some(rest) = self.rest() {
                thread::sleep(rest);
            }
        }
        Ok(())
    }

    /// One turn; whether anything moved.
    pub fn turn(&mut self) -> bool {
        let turn = self.recorder.as_ref().map(|recorder| recorder.turn());
        let _held = turn.as_ref().map(Turn::hold);
        let mut moved = self.listen();
        let have_routes_changed = self.hops.have_routes_changed();
        if let Some(newer) = self.hops.newer() {
            Driver::set_hops(&mut self.router, &mut self.recorder, Arc::clone(newer));
            self.follow_routes();
        } else if have_routes_changed {
            self.follow_routes();
        }
        if self.links_seen.elapsed() >= ASLEEP_FOR {
            self.links_seen = Instant::now();
            (0..self.slots.len()).for_each(|number| self.look_at_link(number));
        }
        self.came = 0;
        for number in 0..self.slots.len() {
            moved |= self.take_in(number);
        }
        let now = self.now();
        if let Some(watch) = &mut self.stalls {
            watch.turn(self.came);
        }
        self.advance_pipeline(now);
        self.report_plugins();
        self.signal(now);
        if let Some(stress) = &mut self.stress {
            moved |= stress.turn(now, &mut self.router, &mut self.memory);
        }
        self.trace();
        if let Some(watch) = &mut self.backlogs {
            watch.look(now, &self.router);
        }
        for number in 0..self.slots.len() {
            moved |= self.let_out(now, number);
        }
        if let Some(watch) = &mut self.backlogs {
            watch.look(now, &self.router);
        }
        if let Some(grants) = &mut self.grants {
            let turn = flow_offload::Turn { now, router: &mut self.router, slots: &self.slots };
            grants.turn(turn, &mut self.memory);
        }
        moved
    }

    /// Something has changed that shortcuts rest on.
    fn distrust(&mut self) {
        if let Some(grants) = &mut self.grants {
            grants.distrust();
        }
    }

    /// Executes a command. Its sender is answered when it has taken effect on shortcuts as well.
    fn listen(&mut self) -> bool {
        let mut any = false;
        while let Some(call) = self.call_receiver.next_call() {
            any = true;
            if let Some(grants) = &mut self.grants {
                grants.settle(&mut self.router);
            }
            let answer = call(self);
            let now = self.now();
            if let Some(grants) = &mut self.grants {
                grants.revise(&mut flow_offload::Turn {
                    now,
                    router: &mut self.router,
                    slots: &self.slots,
                });
            }
            answer();
        }
        any
    }

    /// Frames from a port's device and from its kernel's side into the pipeline. The clock is read when
    /// they are out of the device: a time from before would let a packet leave a link of 20 ms sooner
    /// than 20 ms after it came.
    fn take_in(&mut self, number: usize) -> bool {
        let slot = &mut self.slots[number];
        let mut count = 0;
        if let Some(device) = &mut slot.device {
            self.taken.clear();
            match device.receive(&mut self.memory, &mut self.taken, TAKEN_AT_ONCE) {
                Ok(taken) => (count, self.came) = (taken, self.came + taken),
                Err(failure) => self.device_failed(number, &failure),
            }
            if let Some(grants) = self.grants.as_mut().filter(|_| self.router.may_offload()) {
                grants.note(number, &self.taken, &self.memory);
            }
            let now = self.now();
            self.receive_into_pipeline(now, number);
        }
        let slot = &mut self.slots[number];
        if let Some(beside) = &mut slot.beside {
            self.taken.clear();
            // A failure here concerns the kernel's side alone; if the device disappears, its own side
            // reports it.
            count += beside.receive(&mut self.memory, &mut self.taken, 64).unwrap_or(0);
            let now = self.now();
            for at in 0..self.taken.len() {
                self.inject_into_pipeline(now, number, self.taken[at]);
            }
        }
        count > 0
    }

    /// Packets from the pipeline to a port's device and to its kernel's side.
    fn let_out(&mut self, now: Time, number: usize) -> bool {
        let moved = self.punt(number);
        let slot = &mut self.slots[number];
        let Some(device) = &mut slot.device else { return moved };
        if slot.presence != Presence::Up {
            return moved;
        }
        let room = device.room(&mut self.memory).min(GIVEN_AT_ONCE);
        let most = room.saturating_sub(slot.leaving.len());
        self.transmit_from_pipeline(now, number, most);
        let slot = &mut self.slots[number];
        let Some(device) = &mut slot.device else { return moved };
        let waiting = !slot.leaving.is_empty();
        let sent = device.transmit(&mut self.memory, &mut slot.leaving);
        let flushed = device.flush(&mut self.memory);
        slot.is_blocked = room == 0 || !slot.leaving.is_empty();
        let sending = slot.leaving.len() as u32 + device.sending();
        self.set_sending(number, sending);
        for failure in [sent.err(), flushed.err()].into_iter().flatten() {
            self.device_failed(number, &failure);
        }
        moved || (waiting && !self.slots[number].is_blocked)
    }

    /// How long to let frames gather after this turn.
    fn rest(&mut self) -> Option<Duration> {
        if self.came == 0 || self.slots.iter().any(|slot| slot.is_blocked) {
            return None;
        }
        let now = self.now();
        let due =
            self.router.poll_timeout().map(|due| Duration::from_nanos(due.since(now).as_nanos()));
        let free = due.map_or(ASLEEP_FOR, |due| due.saturating_sub(AWAKE_FOR));
        self.gathering.rest(now, self.came, free)
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self) -> Result<()> {
        let now = self.now();
        let stress = self.stress.as_ref().and_then(|stress| stress.poll_timeout());
        let due =
            self.router.poll_timeout().into_iter().chain(stress).chain(self.signals_at()).min();
        let due = due.map(|due| due.since(now).as_nanos());
        let has_grants = self.grants.as_ref().is_some_and(|grants| grants.is_any());
        let most = if has_grants { flow_offload::EVERY } else { ASLEEP_FOR };
        let rest = due.map_or(most, |nanos| Duration::from_nanos(nanos).min(most));
        let is_stuck = self.slots.iter().any(|slot| slot.is_blocked);
        if rest < AWAKE_FOR && !is_stuck {
            std::hint::spin_loop();
            return Ok(());
        }
        let rest = if is_stuck { rest.max(STUCK_FOR) } else { rest };
        let mut polls = vec![(self.call_receiver.descriptor(), libc::POLLIN)];
        for slot in &mut self.slots {
            let is_blocked = slot.is_blocked;
            let mut add = |descriptor, events| polls.push((descriptor, events));
            if let Some(device) = &mut slot.device {
                device.interest(is_blocked, &mut add);
            }
            if let Some(beside) = &mut slot.beside {
                beside.interest(false, &mut add);
            }
        }
        self.hops.rest();
        let began = Instant::now();
        let is_woken = wait_with(&polls, rest).context("the router cannot sleep")?;
        if let Some(stress) = self.stress.as_mut().filter(|_| !is_woken) {
            let late = Span::from_nanos(began.elapsed().saturating_sub(rest).as_nanos() as u64);
            stress.oversleep(late, self.router.fabric().made_up().unwrap_or(Span::ZERO));
        }
        self.call_receiver.silence();
        Ok(())
    }
}
