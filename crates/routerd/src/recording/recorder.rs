//! Records a router while it runs: what its driver tells the pipeline, and what changes its tables.
//!
//! Two threads tell: the driver, and the one that keeps the routes. The driver holds the order for a whole turn
//! ([`Recorder::turn`]), so that a table changes between two turns and not within one. The file is written by the
//! thread that tells; where it is slow the router is, which the recorded times say.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nilometer_files::document::draft::Draft;
use nilometer_files::say;
use nilometer_linux::memory::Memory;
use nilometer_router::memory::{Memory as PacketMemory, Place};
use nilometer_router::pipeline::Router;
use nilometer_router::{Address, NextHop, Prefix, Snapshot};
use nilometer_wire::Time;

use super::command::Command;
use super::event::{Answer, Beginning, Told, begin, put_answer, put_told, write_all};
use super::observed::{Counters, ObservedMemory};

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 20;
/// How long the driver yields to a waiting route update.
const AFTER_YOU: Duration = Duration::from_micros(20);

/// Where events are put.
struct Sink {
    draft: Option<Draft>,
    /// What is not written yet; all of it as long as the beginning is not there.
    out: Vec<u8>,
    has_begun: bool,
    events: u64,
    /// Why nothing more is written.
    failure: Option<anyhow::Error>,
}

impl Sink {
    fn put(&mut self, told: &Told, answer: Option<&Answer>) {
        put_told(&mut self.out, told);
        if let Some(answer) = answer {
            put_answer(&mut self.out, answer);
        }
        self.events += 1;
        if self.has_begun && self.out.len() >= GATHERED {
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(draft) = self.draft.as_mut().filter(|_| self.failure.is_none()) else {
            return self.out.clear();
        };
        if let Err(why) = write_all(draft, &mut self.out) {
            let why = anyhow::Error::new(why).context("the recording cannot be written");
            say!("{why:#}: nothing more is recorded");
            self.failure = Some(why);
            self.out.clear();
        }
    }
}

/// What driver and route keeper share.
struct Shared {
    /// Held by whoever tells.
    order: Mutex<()>,
    /// Route keepers who wait for it.
    waiting: AtomicUsize,
    sink: Mutex<Sink>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's end of a recording.
pub struct Recorder {
    shared: Arc<Shared>,
    answer: Answer,
    counters: Counters,
}

/// The route keeper's end.
#[derive(Clone)]
pub struct TableRecorder(Arc<Shared>);

/// A prefix and its next hop, as they are recorded.
pub trait Recorded: Address {
    /// That routes of this prefix lead there, or nowhere.
    fn told(prefix: Prefix<Self>, next: Option<NextHop>) -> Told;
}

fn number(next: Option<NextHop>) -> u64 {
    next.map_or(0, |next| u64::from(next.0) + 1)
}

impl Recorded for u32 {
    fn told(prefix: Prefix<u32>, next: Option<NextHop>) -> Told {
        let prefix = (prefix.address(), prefix.length() as u8);
        Told::Route4 { prefix, next: number(next) }
    }
}

impl Recorded for u128 {
    fn told(prefix: Prefix<u128>, next: Option<NextHop>) -> Told {
        let prefix = (prefix.address(), prefix.length() as u8);
        Told::Route6 { prefix, next: number(next) }
    }
}

impl TableRecorder {
    /// Makes a change of a forwarding table between two turns, and records it.
    pub fn change<A: Recorded, T>(
        &self,
        prefix: Prefix<A>,
        next: Option<NextHop>,
        make: impl FnOnce() -> T,
    ) -> T {
        let Shared { order, waiting, sink } = &*self.0;
        waiting.fetch_add(1, Ordering::AcqRel);
        let _order = lock(order);
        waiting.fetch_sub(1, Ordering::AcqRel);
        let made = make();
        lock(sink).put(&A::told(prefix, next), None);
        made
    }
}

/// Holds the order for a turn.
pub struct Turn(Arc<Shared>);

impl Turn {
    /// Nobody else tells as long as this is kept.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        // (A lock that is taken again at once lets nobody in.)
        while self.0.waiting.load(Ordering::Acquire) > 0 {
            thread::sleep(AFTER_YOU);
        }
        lock(&self.0.order)
    }
}

impl Recorder {
    /// Records into a file that appears when the recording is finished. The beginning is yet to be told.
    pub fn new(draft: Draft) -> (Recorder, TableRecorder) {
        let sink = Sink {
            draft: Some(draft),
            out: Vec::new(),
            has_begun: false,
            events: 0,
            failure: None,
        };
        let shared = Arc::new(Shared {
            order: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            sink: Mutex::new(sink),
        });
        let tables = TableRecorder(Arc::clone(&shared));
        (Recorder { shared, answer: Answer::default(), counters: Counters::default() }, tables)
    }

    /// Says of what the router was made, in front of all that was told so far.
    ///
    /// # Errors
    /// When the description cannot be written.
    pub fn begin(&mut self, beginning: &Beginning, router: &Router) -> Result<()> {
        let mut sink = lock(&self.shared.sink);
        let told = std::mem::take(&mut sink.out);
        begin(&mut sink.out, beginning)?;
        sink.out.extend(told);
        sink.has_begun = true;
        self.counters.begin(router);
        Ok(())
    }

    /// What holds the order for a turn.
    pub fn turn(&self) -> Turn {
        Turn(Arc::clone(&self.shared))
    }

    /// Tells what has no answer.
    pub fn told(&mut self, told: &Told) {
        lock(&self.shared.sink).put(told, None);
    }

    /// The next hops in force.
    pub fn hops(&mut self, snapshot: &Snapshot) {
        self.told(&Told::Hops { words: snapshot.to_words() });
    }

    /// Lets `act` tell the router what `told` says, and records both.
    pub fn call<T>(
        &mut self,
        told: &Told,
        (router, memory): (&mut Router, &mut Memory),
        act: impl FnOnce(&mut Router, &mut ObservedMemory<'_, Memory>) -> T,
    ) -> T {
        self.answer.clear();
        let mut observed = ObservedMemory::new(memory, &mut self.answer, None);
        let result = act(router, &mut observed);
        self.finish(told, router);
        result
    }

    /// Frames that leave by a call, beside its answer.
    pub fn call_out(
        &mut self,
        told: &Told,
        (router, memory): (&mut Router, &mut Memory),
        act: impl FnOnce(&mut Router, &mut ObservedMemory<'_, Memory>, &mut Vec<Place>),
    ) -> Vec<Place> {
        self.answer.clear();
        let mut out = Vec::new();
        let mut observed = ObservedMemory::new(memory, &mut self.answer, None);
        act(router, &mut observed, &mut out);
        let digests =
            out.iter().map(|&place| super::event::digest(PacketMemory::frame(memory, place)));
        self.answer.left.extend(digests);
        self.finish(told, router);
        out
    }

    fn finish(&mut self, told: &Told, router: &Router) {
        if !self.answer.gone.is_empty() {
            self.answer.counted = self.counters.risen(router);
        }
        lock(&self.shared.sink).put(told, Some(&self.answer));
    }

    /// Makes a change of settings, and records it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn command(
        &mut self,
        now: Time,
        command: &Command,
        parts: (&mut Router, &mut Memory),
        act: impl FnOnce(&mut Router, &mut ObservedMemory<'_, Memory>),
    ) -> Result<()> {
        let toml = toml::to_string(command).context("a command")?.into_bytes();
        self.call(&Told::Command { now: now.as_nanos(), toml }, parts, act);
        Ok(())
    }

    /// Ends the recording and lets the file appear; how many events it has.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(&mut self) -> Result<u64> {
        let mut sink = lock(&self.shared.sink);
        let events = sink.events;
        sink.put(&Told::End { events }, None);
        sink.write();
        if let Some(why) = sink.failure.take() {
            return Err(why);
        }
        if let Some(mut draft) = sink.draft.take() {
            draft.flush()?;
            draft.publish()?;
        }
        Ok(events)
    }
}

/// The bytes of frames, for an event.
pub fn frames(memory: &Memory, places: &[Place]) -> Vec<Vec<u8>> {
    places.iter().map(|&place| PacketMemory::frame(memory, place).to_vec()).collect()
}
