//! Flow offload: which flows the kernel forwards by a shortcut, and for how long.
//!
//! A flow whose packets come by the ring again and again is a *candidate*: the pipeline is queried, and if
//! it gives a shortcut, that is entered in the table of shortcuts ([`nilometer_linux::flow_offload`]). From
//! then on this thread sees nothing of the flow. So it checks the shortcuts that it has granted:
//!
//! ```text
//!   every 10 ms    a tenth of the flows: credit what they have forwarded; has the neighbour moved, or
//!                  is there anything at the link to wait for? then ask the pipeline again
//!   100 times idle (ten seconds): take it back
//!   routes, next hops, links changed, or a command was executed (filters, ports, neighbours, the
//!                  fabric, disciplines, rates): ask the pipeline again about all of them
//! ```
//!
//! The pipeline decides which flows may have a shortcut ([`nilometer_router::pipeline::shortcut`]); where
//! the fabric allows none, frames are not even looked at for candidates.
//!
//! A command takes effect on shortcuts before it is answered; changes of routes, which another thread
//! writes, and of neighbours within 100 ms. A request for counters gets the current ones.
//!
//! Where the routing table changes all the time, all flows would be checked all the time. So that is done
//! at most every [`EVERY`].

use std::time::{Duration, Instant};

use nilometer_router::header::protocol;
use nilometer_router::memory::Place as Frame;
use nilometer_router::pipeline::Router;
use nilometer_router::pipeline::shortcut::Shortcut;
use nilometer_router::{AnyKey, Header, Key};
use nilometer_wire::Time;

use super::noticed::Noticed;
use super::offload_log::OffloadLog;
use super::port_slot::{PortSlot, Presence};
use nilometer_linux::flow_offload::{Exit, FlowOffload, Place};
use nilometer_linux::memory::PacketMemory as Memory;

/// Between two looks at the table.
pub(super) const EVERY: Duration = Duration::from_millis(10);
/// Each flow is checked once in this many rounds.
const PARTS: usize = 10;
/// Checks of an idle flow until its shortcut is taken back.
const IDLE_MAX: u8 = 100;
/// Candidates of a turn.
const CANDIDATES_MAX: usize = 256;

/// A flow that has a shortcut.
struct Granted {
    place: Place,
    input: u16,
    key: Key<u32>,
    shortcut: Shortcut,
    exit: Exit,
    idle: u8,
}

/// What a turn of the driver lends.
pub(super) struct Turn<'a> {
    pub(super) now: Time,
    pub(super) router: &'a mut Router,
    pub(super) slots: &'a [PortSlot],
}

/// What is granted.
pub(super) struct Grants {
    table: FlowOffload,
    granted: Vec<Granted>,
    /// Of each place, which flow has it: its number and one.
    holders: Vec<u32>,
    /// Packets and bytes credited for each place. Packets that the program counted while the flow was taken
    /// back are credited with the next ones of the place.
    credited: Vec<(u64, u64)>,
    noticed: Noticed,
    candidates: Vec<(u16, Key<u32>)>,
    /// The next flow to be looked at.
    next: usize,
    looked: Instant,
    /// Something has changed that all of them rest on.
    is_stale: bool,
    /// Where grants are logged, if at all.
    log: Option<OffloadLog>,
}

impl Grants {
    /// Nothing is granted in this table.
    pub(super) fn new(table: FlowOffload) -> Grants {
        Grants {
            granted: Vec::new(),
            holders: vec![0; table.places()],
            credited: vec![(0, 0); table.places()],
            noticed: Noticed::new(table.buckets()),
            candidates: Vec::new(),
            next: 0,
            looked: Instant::now(),
            is_stale: false,
            log: None,
            table,
        }
    }

    /// Logs from now on which flows have a shortcut.
    pub(super) fn log(&mut self) -> OffloadLog {
        self.log.insert(OffloadLog::default()).clone()
    }

    fn note_event(&self, key: Key<u32>, is_installed: bool) {
        if let Some(log) = &self.log {
            log.write(key, is_installed);
        }
    }

    /// The table.
    pub(super) fn table(&self) -> FlowOffload {
        self.table.clone()
    }

    /// Whether there is anything to look after.
    pub(super) fn is_any(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Something has changed that all of them rest on.
    pub(super) fn distrust(&mut self) {
        self.is_stale = true;
    }

    /// Frames have come by port `input`.
    pub(super) fn note(&mut self, input: usize, frames: &[Frame], memory: &Memory) {
        for frame in frames {
            let mark = memory.mark_of(frame);
            if mark == 0 || !self.noticed.note(mark, memory.frame(frame)) {
                continue;
            }
            if self.candidates.len() < CANDIDATES_MAX
                && let Ok(Header { key: AnyKey::V4(key), .. }) = Header::read(memory.frame(frame))
            {
                self.candidates.push((input as u16, Key { flags: 0, ..key }));
            }
        }
    }

    /// At the end of a turn: credits what has left, grants shortcuts, and takes them back.
    pub(super) fn turn(&mut self, mut turn: Turn<'_>, memory: &mut Memory) {
        self.table.left(memory.take_unmarked());
        for (input, key) in std::mem::take(&mut self.candidates) {
            self.grant(&mut turn, input, key);
        }
        if self.looked.elapsed() < EVERY {
            return;
        }
        self.looked = Instant::now();
        if std::mem::take(&mut self.is_stale) {
            return self.revise(&mut turn);
        }
        for _ in 0..self.granted.len().div_ceil(PARTS) {
            if self.next >= self.granted.len() {
                self.next = 0;
            }
            // A flow that is taken back is replaced by the last one, which is then checked in its place.
            if self.granted.is_empty() || self.look_at(&mut turn, self.next) {
                self.next += 1;
            }
        }
    }

    /// Queries the pipeline about all of them again, at once.
    pub(super) fn revise(&mut self, turn: &mut Turn<'_>) {
        self.is_stale = false;
        for number in (0..self.granted.len()).rev() {
            self.ask_again(turn, number);
        }
    }

    /// Credits what all of them have forwarded.
    pub(super) fn settle(&mut self, router: &mut Router) {
        (0..self.granted.len()).for_each(|number| self.credit(number, router));
    }

    /// Checks a flow; returns whether it keeps its shortcut.
    fn look_at(&mut self, turn: &mut Turn<'_>, number: usize) -> bool {
        self.credit(number, turn.router);
        let granted = &mut self.granted[number];
        granted.idle += 1;
        if granted.idle >= IDLE_MAX {
            self.take_back(turn.router, number);
            return false;
        }
        turn.router.still_leads(&granted.shortcut) || self.ask_again(turn, number)
    }

    /// Queries the pipeline about a flow; returns whether it keeps its shortcut.
    fn ask_again(&mut self, turn: &mut Turn<'_>, number: usize) -> bool {
        let &Granted { place, input, key, shortcut, exit: old, .. } = &self.granted[number];
        let Some((new, exit)) = ask(turn, input, &key) else {
            self.take_back(turn.router, number);
            return false;
        };
        if (new, exit) != (shortcut, old) {
            self.credit(number, turn.router);
            self.table.set(place, input, &key, &exit);
        }
        let granted = &mut self.granted[number];
        (granted.shortcut, granted.exit) = (new, exit);
        true
    }

    /// Grants a flow its shortcut, and one of TCP the way back as well: a host that has answered is about to send.
    fn grant(&mut self, turn: &mut Turn<'_>, input: u16, key: Key<u32>) {
        let Some(output) = self.grant_one(turn, input, key) else { return };
        if key.protocol == protocol::TCP {
            let back = Key {
                source: key.destination,
                destination: key.source,
                source_port: key.destination_port,
                destination_port: key.source_port,
                ..key
            };
            self.grant_one(turn, output, back);
        }
    }

    /// Grants a flow its shortcut, if it has none and may have one; the port that it leads to.
    fn grant_one(&mut self, turn: &mut Turn<'_>, input: u16, key: Key<u32>) -> Option<u16> {
        let places = self.table.places_of(input, &key);
        let holder = |place: &Place| {
            let number = self.holders[place.number()].checked_sub(1)?;
            Some((number as usize, &self.granted[number as usize]))
        };
        let is_of_it = |place: &Place| {
            holder(place).is_some_and(|(_, has)| (has.input, has.key) == (input, key))
        };
        if places.iter().any(is_of_it) {
            return None;
        }
        // One that has forwarded nothing lately makes room.
        let makes_room = |place: &&Place| holder(place).is_none_or(|(_, has)| has.idle > 2);
        let place = *places.iter().find(makes_room)?;
        let old = holder(&place).map(|(number, _)| number);
        let (shortcut, exit) = ask(turn, input, &key)?;
        if let Some(number) = old {
            self.take_back(turn.router, number);
        }
        self.table.set(place, input, &key, &exit);
        self.granted.push(Granted { place, input, key, shortcut, exit, idle: 0 });
        self.holders[place.number()] = self.granted.len() as u32;
        self.note_event(key, true);
        Some(shortcut.output)
    }

    fn take_back(&mut self, router: &mut Router, number: usize) {
        self.table.clear(self.granted[number].place);
        self.credit(number, router);
        let gone = self.granted.swap_remove(number);
        self.note_event(gone.key, false);
        self.holders[gone.place.number()] = 0;
        if let Some(moved) = self.granted.get(number) {
            self.holders[moved.place.number()] = number as u32 + 1;
        }
    }

    /// Credits what a flow has forwarded; one that has forwarded anything is not idle, whichever caller looks.
    fn credit(&mut self, number: usize, router: &mut Router) {
        let Granted { place, input, shortcut, idle, .. } = &mut self.granted[number];
        let forwarded = self.table.forwarded(*place);
        let before = std::mem::replace(&mut self.credited[place.number()], forwarded);
        let (packets, bytes) = (forwarded.0 - before.0, forwarded.1 - before.1);
        if packets > 0 {
            *idle = 0;
            router.credit(usize::from(*input), shortcut, packets, bytes);
        }
    }
}

/// The shortcut of a flow and where it leads, if it may have one and there is a device to lead to.
fn ask(turn: &mut Turn<'_>, input: u16, key: &Key<u32>) -> Option<(Shortcut, Exit)> {
    let shortcut = turn.router.shortcut(turn.now, input.into(), key)?;
    let slot = turn.slots.get(usize::from(shortcut.output))?;
    let is_there = slot.presence == Presence::Up;
    let interface = slot.device.as_ref().filter(|_| is_there)?.interface_index()?;
    let Shortcut { from, to, mtu_bytes, .. } = shortcut;
    Some((shortcut, Exit { interface, from, to, mtu_bytes }))
}
