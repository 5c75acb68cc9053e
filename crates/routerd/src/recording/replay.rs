//! Replays the inputs of a recording to a router in virtual time, and compares its responses.
//!
//! The router is made from the recording's description, and nothing else: the same pipeline,
//! tables, filters, queues, distributed queueing and disciplines. Its time is that of the
//! recording. Buffers are refused where they were.

use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nilometer_router::memory::{Memory, Place};
use nilometer_router::pipeline::Router;
use nilometer_router::{Address, NextHop, Prefix, ServingFib, Snapshot};
use nilometer_wire::Time;
use nilometer_wire::memory::HeapMemory;
use serde::Serialize;

use super::command::Command;
use super::event::{Beginning, Input, Reader, Response, digest};
use super::observed::{Counters, ObservedMemory};
use crate::config::RouterConfig;
use crate::machine::router_without_devices;
use crate::rib_thread::Readers;

/// Room for the largest frame and the headroom in front of it, bytes.
const BUFFER_BYTES: usize = 10_240;
/// Congestion was experienced (RFC 3168, section 5).
const CONGESTION: u8 = 3;

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Inputs of the recorded router.
    pub events: u64,
    /// Frames that left it or went no further: each a decision.
    pub decisions: u64,
    /// Of these, frames that were dropped, by all reasons.
    pub drops: u64,
    /// Frames that left with a congestion mark and had come without one.
    pub marks: u64,
    /// Decisions that the replay made otherwise.
    pub differences: u64,
    /// The first of them.
    pub first_difference: Option<Difference>,
    /// Whether the recording ended as it should, and was not cut.
    pub complete: bool,
}

/// An input to which the router responded otherwise than the recorded one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The number of the event, from 0.
    pub event: u64,
    /// When, in seconds since the router began.
    pub at_s: f64,
    /// The input: `receive`, `advance`, `transmit` and so on.
    pub input: String,
    /// The port, where the input is of one.
    pub port: Option<String>,
    /// In what the responses differ.
    pub what: String,
}

/// A router that repeats a recording.
pub struct Replay {
    router: Router,
    memory: HeapMemory,
    /// (They keep the tables that packets are looked up in.)
    fib4: Box<dyn ServingFib<u32>>,
    fib6: Box<dyn ServingFib<u128>>,
    config: RouterConfig,
    counters: Counters,
    /// Frames that came, and that left, with a congestion mark.
    marked: [u64; 2],
    done: Replayed,
}

impl Replay {
    /// The router of a recording, before its first input.
    ///
    /// # Errors
    /// When there can be no such router.
    pub fn new(beginning: &Beginning) -> Result<Replay> {
        let Beginning { config, ports } = beginning;
        config.check()?;
        ensure!(
            ports.len() == config.ports.len(),
            "the recording's ports are not those of its description"
        );
        let tables = &config.tables;
        let fib4 = tables.engine_v4.table::<u32>(tables.routes_v4)?;
        let fib6 = tables.engine_v6.table::<u128>(tables.routes_v6)?;
        let readers = fib4.reader().zip(fib6.reader());
        let (v4, v6) = readers.context("a new table has no reader")?;
        let router = router_without_devices(config, ports, Readers { v4, v6 })?;
        let mut counters = Counters::default();
        counters.begin(&router);
        Ok(Replay {
            router,
            memory: HeapMemory::of_buffers(u32::MAX, BUFFER_BYTES),
            fib4,
            fib6,
            config: config.clone(),
            counters,
            marked: [0; 2],
            done: Replayed::default(),
        })
    }

    /// Gives the router an input; `recorded` is the recorded response, where there is one.
    ///
    /// # Errors
    /// When it is no input of this router: the recording is damaged.
    pub fn apply(&mut self, input: &Input, recorded: Option<&Response>) -> Result<()> {
        let event = self.done.events;
        ensure!(!self.done.complete, "event {event}: the recording ended before it");
        self.done.events += 1;
        let mut response = Response::default();
        self.act(input, recorded, &mut response).with_context(|| format!("event {event}"))?;
        let Some(recorded) = recorded else { return Ok(()) };
        if !response.gone.is_empty() || !recorded.counted.is_empty() {
            response.counted = self.counters.risen(&self.router);
        }
        let done = &mut self.done;
        done.decisions += (response.left.len() + response.gone.len()) as u64;
        done.drops += response.counted.iter().map(|counted| counted.1).sum::<u64>();
        done.marks = self.marked[1].saturating_sub(self.marked[0]);
        if response != *recorded {
            done.differences += differences(&response, recorded);
            let first = || Difference {
                event,
                at_s: time(input).map_or(0.0, |now| now as f64 / 1e9),
                input: input.name().to_owned(),
                port: port(input)
                    .and_then(|port| self.config.ports.get(port))
                    .map(|it| it.interface.clone()),
                what: compared(&self.router, recorded, &response),
            };
            if done.first_difference.is_none() {
                done.first_difference = Some(first());
            }
        }
        Ok(())
    }

    /// What came of it so far.
    pub fn done(&self) -> &Replayed {
        &self.done
    }

    fn act(
        &mut self,
        input: &Input,
        recorded: Option<&Response>,
        response: &mut Response,
    ) -> Result<()> {
        if let Some(port) = port(input) {
            ensure!(port < self.router.ports().len(), "there is no port {port}");
        }
        let refuse = recorded.map_or(&[][..], |recorded| &recorded.refused);
        match input {
            Input::Receive { now, port, frames } => {
                let places =
                    frames.iter().map(|frame| self.put(frame)).collect::<Result<Vec<_>>>()?;
                let (router, mut memory) =
                    (&mut self.router, observed(&mut self.memory, response, refuse));
                let now = Time::from_nanos(*now);
                router.receive(now, *port as usize, &places, &mut memory, &mut ());
            }
            Input::Inject { now, port, frame } => {
                let place = self.put(frame)?;
                let mut memory = observed(&mut self.memory, response, refuse);
                self.router.inject(Time::from_nanos(*now), *port as usize, place, &mut memory);
            }
            Input::Advance { now } => {
                let mut memory = observed(&mut self.memory, response, refuse);
                self.router.advance(Time::from_nanos(*now), &mut memory, &mut ());
            }
            Input::Transmit { now, port, room } => {
                let mut left = Vec::new();
                let mut memory = observed(&mut self.memory, response, refuse);
                let (now, room) = (Time::from_nanos(*now), *room as usize);
                let give = |place| left.push(place);
                self.router.transmit_all(now, *port as usize, room, &mut memory, give);
                self.leave(&left, response);
            }
            Input::Sending { port, frames } => {
                self.router.fabric_mut().set_sending(*port as usize, *frames as u32);
            }
            Input::Punt { port, most } => {
                let punted = std::iter::from_fn(|| self.router.poll_punted(*port as usize));
                let punted: Vec<_> = punted.take(*most as usize).collect();
                self.leave(&punted, response);
            }
            Input::Copies => {
                let copies: Vec<_> = std::iter::from_fn(|| self.router.poll_copy()).collect();
                let copies: Vec<_> = copies.into_iter().map(|(_, place)| place).collect();
                self.leave(&copies, response);
            }
            Input::Route4 { prefix, next } => route(&mut *self.fib4, *prefix, *next)?,
            Input::Route6 { prefix, next } => route(&mut *self.fib6, *prefix, *next)?,
            Input::Hops { words } => {
                let hops = Snapshot::from_words(words).context("next hops that are none")?;
                self.router.set_hops(Arc::new(hops));
            }
            Input::Command { now, toml } => {
                let text = std::str::from_utf8(toml).context("a command")?;
                let command: Command = toml::from_str(text).context("a command")?;
                let mut memory = observed(&mut self.memory, response, refuse);
                let now = Time::from_nanos(*now);
                command.apply(now, &mut self.router, &mut memory, &self.config)?;
            }
            Input::End { events } => {
                ensure!(*events + 1 == self.done.events, "events are missing: there were {events}");
                self.done.complete = true;
            }
        }
        Ok(())
    }

    /// A frame that came, in a buffer.
    fn put(&mut self, frame: &[u8]) -> Result<Place> {
        let bytes = u16::try_from(frame.len()).ok();
        let place =
            bytes.and_then(|bytes| self.memory.take(bytes)).context("a frame is too long")?;
        self.memory.frame_mut(place).copy_from_slice(frame);
        self.marked[0] += u64::from(is_marked(frame));
        Ok(place)
    }

    /// Frames that left: their digests join the response, and their buffers are free.
    fn leave(&mut self, places: &[Place], response: &mut Response) {
        for &place in places {
            let frame = self.memory.frame(place);
            response.left.push(digest(frame));
            self.marked[1] += u64::from(is_marked(frame));
            self.memory.give(place);
        }
    }
}

fn observed<'a>(
    memory: &'a mut HeapMemory,
    response: &'a mut Response,
    refuse: &'a [u64],
) -> ObservedMemory<'a, HeapMemory> {
    ObservedMemory::new(memory, response, Some(refuse))
}

fn route<A: Address>(
    fib: &mut dyn ServingFib<A>,
    (address, length): (A, u8),
    next: u64,
) -> Result<()> {
    let prefix = Prefix::new(address, u32::from(length)).context("a prefix that is none")?;
    // (One that had no room when it was recorded has none now.)
    let _ = match next.checked_sub(1) {
        Some(next) => fib.insert(prefix, NextHop(u16::try_from(next).context("a next hop")?)),
        None => fib.remove(prefix),
    };
    Ok(())
}

fn is_marked(frame: &[u8]) -> bool {
    let class = match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(15).copied(),
        Some([0x86, 0xdd]) => frame.get(15).map(|byte| byte >> 4),
        _ => None,
    };
    class.is_some_and(|class| class & 3 == CONGESTION)
}

fn time(input: &Input) -> Option<u64> {
    match input {
        Input::Receive { now, .. }
        | Input::Inject { now, .. }
        | Input::Advance { now }
        | Input::Transmit { now, .. }
        | Input::Command { now, .. } => Some(*now),
        _ => None,
    }
}

fn port(input: &Input) -> Option<usize> {
    match input {
        Input::Receive { port, .. }
        | Input::Inject { port, .. }
        | Input::Transmit { port, .. }
        | Input::Sending { port, .. }
        | Input::Punt { port, .. } => Some(*port as usize),
        _ => None,
    }
}

/// How many decisions of two responses are not the same, at least one.
fn differences(one: &Response, other: &Response) -> u64 {
    let of = |one: &[u64], other: &[u64]| {
        let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
        (one.len().max(other.len()) - same) as u64
    };
    (of(&one.left, &other.left) + of(&one.gone, &other.gone)).max(1)
}

/// The differences of a response from the recorded one, in words.
fn compared(router: &Router, recorded: &Response, replayed: &Response) -> String {
    let lists = [
        ("frames that left", &recorded.left, &replayed.left),
        ("frames that went no further", &recorded.gone, &replayed.gone),
    ];
    for (name, recorded, replayed) in lists {
        if recorded.len() != replayed.len() {
            return format!("{name}: {} recorded, {} replayed", recorded.len(), replayed.len());
        }
        if let Some(at) = recorded.iter().zip(replayed).position(|(one, other)| one != other) {
            return format!("{name}: number {at} of {} is another one", recorded.len());
        }
    }
    let reasons = |response: &Response| {
        let one = |&(number, by): &(u64, u64)| format!("{by} {}", Counters::name(router, number));
        let all: Vec<String> = response.counted.iter().map(one).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    };
    if recorded.counted != replayed.counted {
        return format!("reasons: {} recorded, {} replayed", reasons(recorded), reasons(replayed));
    }
    format!("buffers refused: {:?} recorded, {:?} replayed", recorded.refused, replayed.refused)
}

/// Replays a recording; with a `seed` of its own where one is given.
///
/// # Errors
/// When it is no recording, or damaged.
pub fn replay(from: impl Read, seed: Option<u64>) -> Result<Replayed> {
    let (mut reader, mut beginning) = Reader::open(from)?;
    beginning.config.seed = seed.unwrap_or(beginning.config.seed);
    let mut replay = Replay::new(&beginning)?;
    while let Some(input) = reader.input()? {
        let response = input.has_response().then(|| reader.response()).transpose()?;
        replay.apply(&input, response.as_ref())?;
    }
    Ok(replay.done)
}

#[cfg(test)]
mod tests {
    use super::super::event::{begin, put_input};
    use super::*;

    const TWO_PORTS: &str = "[[port]]\ninterface = \"p0\"\naddresses = [\"198.18.0.1/24\"]\n\
                             [[port]]\ninterface = \"p1\"\naddresses = [\"198.19.0.1/24\"]\n";

    fn beginning() -> Beginning {
        let config = toml::from_str(TWO_PORTS).expect("a description");
        Beginning { ports: vec![([2; 6], 1_500), ([4; 6], 1_500)], config }
    }

    fn command(text: &str) -> Input {
        Input::Command { now: 5, toml: text.as_bytes().to_vec() }
    }

    #[test]
    fn impossible_inputs_of_a_recording_are_errors() {
        let refused = |input: &Input| {
            let mut replay = Replay::new(&beginning()).expect("a router");
            let response = Response::default();
            let done = replay.apply(input, input.has_response().then_some(&response));
            format!("{:#}", done.expect_err("it cannot be"))
        };
        let pace = "[pace]\nport = 9\ndelay_ns = 0\n";
        assert!(refused(&command(pace)).contains("port 9"));
        assert!(refused(&command("[link]\nport = 9\nis_up = true\n")).contains("port 9"));
        assert!(refused(&command("nothing")).contains("a command"));
        assert!(refused(&Input::Transmit { now: 1, port: 2, room: 1 }).contains("no port 2"));
        // One hop, and a bucket that names a second.
        assert!(refused(&Input::Hops { words: vec![1, 1, 0, 1, 1, 1, 3] }).contains("next hops"));
        let mut replay = Replay::new(&beginning()).expect("a router");
        replay.apply(&Input::End { events: 0 }, None).expect("the end");
        let after = replay.apply(&Input::Advance { now: 1 }, Some(&Response::default()));
        assert!(after.expect_err("it is over").to_string().contains("ended before"));
    }

    #[test]
    fn a_batch_that_no_driver_hands_in_is_an_error() {
        let mut bytes = Vec::new();
        begin(&mut bytes, &beginning()).expect("a description");
        put_input(&mut bytes, &Input::Receive { now: 0, port: 0, frames: vec![Vec::new(); 5_000] });
        let why = replay(&bytes[..], None).expect_err("too many frames");
        assert!(why.to_string().contains("too many"), "{why:#}");
    }

    /// The replayed router refuses what the recorded one refused, and continues.
    #[test]
    fn a_refused_filter_is_refused_again() {
        let mut replay = Replay::new(&beginning()).expect("a router");
        let filter = "[add_filter]\nid = 0\n[add_filter.filter]\naction = \"deny\"\n";
        for _ in 0..2 {
            replay.apply(&command(filter), Some(&Response::default())).expect("it goes on");
        }
        assert_eq!(replay.done().differences, 0);
    }
}
