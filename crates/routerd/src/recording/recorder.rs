//! Records a router while it runs: the inputs of its pipeline, and the changes of its tables.
//!
//! Two threads have inputs: the driver, and the RIB thread. The driver holds the order for a whole turn
//! ([`Recorder::turn`]), so that a table changes between two turns and not within one. The thread that
//! has the input writes the file; a slow disk slows the router, which the recorded times show.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nilometer_files::document::draft::Draft;
use nilometer_files::say;
use nilometer_linux::memory::PacketMemory;
use nilometer_router::memory::{Memory, Place};
use nilometer_router::pipeline::Router;
use nilometer_router::{Address, NextHop, Prefix, Snapshot};
use nilometer_wire::Time;

use super::command::Command;
use super::event::{Beginning, Input, Response, begin, put_input, put_response, write_all};
use super::observed::{Counters, ObservedMemory};

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 20;
/// How long the driver yields to a waiting route update.
const AFTER_YOU: Duration = Duration::from_micros(20);

/// Where events are put.
struct Sink {
    draft: Option<Draft>,
    /// Bytes not written yet; everything as long as the beginning is missing.
    out: Vec<u8>,
    has_begun: bool,
    events: u64,
    /// Why nothing more is written.
    failure: Option<anyhow::Error>,
}

impl Sink {
    fn put(&mut self, input: &Input, response: Option<&Response>) {
        put_input(&mut self.out, input);
        if let Some(response) = response {
            put_response(&mut self.out, response);
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
    /// Taken for the duration of one input to the pipeline.
    order: Mutex<()>,
    /// RIB threads that wait for it.
    waiting: AtomicUsize,
    sink: Mutex<Sink>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's end of a recording.
pub struct Recorder {
    shared: Arc<Shared>,
    response: Response,
    counters: Counters,
}

/// The route keeper's end.
#[derive(Clone)]
pub struct TableRecorder(Arc<Shared>);

/// A prefix and its next hop, as they are recorded.
pub trait Recorded: Address {
    /// That routes of this prefix lead there, or nowhere.
    fn input(prefix: Prefix<Self>, next: Option<NextHop>) -> Input;
}

fn number(next: Option<NextHop>) -> u64 {
    next.map_or(0, |next| u64::from(next.0) + 1)
}

impl Recorded for u32 {
    fn input(prefix: Prefix<u32>, next: Option<NextHop>) -> Input {
        let prefix = (prefix.address(), prefix.length() as u8);
        Input::Route4 { prefix, next: number(next) }
    }
}

impl Recorded for u128 {
    fn input(prefix: Prefix<u128>, next: Option<NextHop>) -> Input {
        let prefix = (prefix.address(), prefix.length() as u8);
        Input::Route6 { prefix, next: number(next) }
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
        lock(sink).put(&A::input(prefix, next), None);
        made
    }
}

/// Holds the order for a turn.
pub struct Turn(Arc<Shared>);

impl Turn {
    /// No other thread can record an input as long as this is kept.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        // (A lock that is taken again at once lets no other thread in.)
        while self.0.waiting.load(Ordering::Acquire) > 0 {
            thread::sleep(AFTER_YOU);
        }
        lock(&self.0.order)
    }
}

impl Recorder {
    /// Records into a file that appears when the recording is finished. [`Recorder::begin`] comes next.
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
        (Recorder { shared, response: Response::default(), counters: Counters::default() }, tables)
    }

    /// Writes the router's description, in front of the inputs so far.
    ///
    /// # Errors
    /// When the description cannot be written.
    pub fn begin(&mut self, beginning: &Beginning, router: &Router) -> Result<()> {
        let mut sink = lock(&self.shared.sink);
        let input = std::mem::take(&mut sink.out);
        begin(&mut sink.out, beginning)?;
        sink.out.extend(input);
        sink.has_begun = true;
        self.counters.begin(router);
        Ok(())
    }

    /// What holds the order for a turn.
    pub fn turn(&self) -> Turn {
        Turn(Arc::clone(&self.shared))
    }

    /// Records an input without a response.
    pub fn input(&mut self, input: &Input) {
        lock(&self.shared.sink).put(input, None);
    }

    /// The next hops in force.
    pub fn hops(&mut self, snapshot: &Snapshot) {
        self.input(&Input::Hops { words: snapshot.to_words() });
    }

    /// Lets `act` give `input` to the router, and records it with the response.
    pub fn call<T>(
        &mut self,
        input: &Input,
        (router, memory): (&mut Router, &mut PacketMemory),
        act: impl FnOnce(&mut Router, &mut ObservedMemory<'_, PacketMemory>) -> T,
    ) -> T {
        self.response.clear();
        let mut observed = ObservedMemory::new(memory, &mut self.response, None);
        let result = act(router, &mut observed);
        self.finish(input, router);
        result
    }

    /// As [`Recorder::call`], of an input by which frames leave: these.
    pub fn call_out(
        &mut self,
        input: &Input,
        (router, memory): (&mut Router, &mut PacketMemory),
        act: impl FnOnce(&mut Router, &mut ObservedMemory<'_, PacketMemory>, &mut Vec<Place>),
    ) -> Vec<Place> {
        self.response.clear();
        let mut out = Vec::new();
        let mut observed = ObservedMemory::new(memory, &mut self.response, None);
        act(router, &mut observed, &mut out);
        let digests = out.iter().map(|&place| super::event::digest(Memory::frame(memory, place)));
        self.response.left.extend(digests);
        self.finish(input, router);
        out
    }

    fn finish(&mut self, input: &Input, router: &Router) {
        if !self.response.gone.is_empty() {
            self.response.counted = self.counters.risen(router);
        }
        lock(&self.shared.sink).put(input, Some(&self.response));
    }

    /// Makes a change of settings, and records it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn command(
        &mut self,
        now: Time,
        command: &Command,
        parts: (&mut Router, &mut PacketMemory),
        act: impl FnOnce(&mut Router, &mut ObservedMemory<'_, PacketMemory>),
    ) -> Result<()> {
        let toml = toml::to_string(command).context("a command")?.into_bytes();
        self.call(&Input::Command { now: now.as_nanos(), toml }, parts, act);
        Ok(())
    }

    /// Ends the recording and lets the file appear; how many events it has.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(&mut self) -> Result<u64> {
        let mut sink = lock(&self.shared.sink);
        let events = sink.events;
        sink.put(&Input::End { events }, None);
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
pub fn frames(memory: &PacketMemory, places: &[Place]) -> Vec<Vec<u8>> {
    places.iter().map(|&place| Memory::frame(memory, place).to_vec()).collect()
}
