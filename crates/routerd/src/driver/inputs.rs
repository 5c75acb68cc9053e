//! The inputs of the pipeline, recorded where the router is recorded.

use std::collections::VecDeque;

use anyhow::Result;
use nilometer_linux::port::PortIo;
use nilometer_router::Snapshot;
use nilometer_router::memory::{Memory, Place};
use nilometer_router::pipeline::Router;
use nilometer_wire::Time;

use super::Driver;
use crate::recording::event::Input;
use crate::recording::{Command, Recorder, frames};

/// Most punted frames that a port takes at once.
const PUNTED_AT_ONCE: usize = 64;

impl Driver {
    /// Whether the router is recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Makes a change of settings that affects the data plane, at the time passed to `act`;
    /// `command` describes it for a recording.
    ///
    /// # Errors
    /// When the change cannot be recorded.
    pub fn change(
        &mut self,
        command: impl FnOnce() -> Command,
        act: impl FnOnce(Time, &mut Router, &mut dyn Memory),
    ) -> Result<()> {
        let now = self.now();
        match &mut self.recorder {
            None => act(now, &mut self.router, &mut self.memory),
            Some(recorder) => {
                let parts = (&mut self.router, &mut self.memory);
                recorder.command(now, &command(), parts, |router, memory| {
                    act(now, router, memory);
                })?;
            }
        }
        Ok(())
    }

    /// Ends the recording, if there is one.
    pub(super) fn end_recording(&mut self) -> Result<()> {
        self.recorder.as_mut().map_or(Ok(0), |recorder| recorder.end()).map(drop)
    }

    pub(super) fn set_hops(
        router: &mut Router,
        recorder: &mut Option<Box<Recorder>>,
        hops: std::sync::Arc<Snapshot>,
    ) {
        if let Some(recorder) = recorder {
            recorder.hops(&hops);
        }
        router.set_hops(hops);
    }

    /// The frames that a port's device handed in.
    pub(super) fn receive_into_pipeline(&mut self, now: Time, number: usize) {
        let (router, memory, taken) = (&mut self.router, &mut self.memory, &self.taken);
        match &mut self.recorder {
            None => router.receive(now, number, taken, memory, &mut ()),
            // (A batch of none is none.)
            Some(_) if taken.is_empty() => {}
            Some(recorder) => {
                let frames = frames(memory, taken);
                let input = Input::Receive { now: now.as_nanos(), port: number as u64, frames };
                recorder.call(&input, (router, memory), |router, memory| {
                    router.receive(now, number, taken, memory, &mut ());
                });
            }
        }
    }

    /// A frame from the kernel's side of a port.
    pub(super) fn inject_into_pipeline(&mut self, now: Time, number: usize, place: Place) {
        let (router, memory) = (&mut self.router, &mut self.memory);
        match &mut self.recorder {
            None => router.inject(now, number, place, memory),
            Some(recorder) => {
                let frame = Memory::frame(memory, place).to_vec();
                let input = Input::Inject { now: now.as_nanos(), port: number as u64, frame };
                recorder.call(&input, (router, memory), |router, memory| {
                    router.inject(now, number, place, memory);
                });
            }
        }
    }

    /// What is due is to be done.
    pub(super) fn advance_pipeline(&mut self, now: Time) {
        let (router, memory) = (&mut self.router, &mut self.memory);
        match &mut self.recorder {
            None => router.advance(now, memory, &mut ()),
            Some(recorder) => {
                let input = Input::Advance { now: now.as_nanos() };
                recorder.call(&input, (router, memory), |router, memory| {
                    router.advance(now, memory, &mut ());
                });
            }
        }
    }

    /// Transmits at most `most` frames by a port; they join those that are leaving by it.
    pub(super) fn transmit_from_pipeline(&mut self, now: Time, number: usize, most: usize) {
        let (router, memory) = (&mut self.router, &mut self.memory);
        let leaving = &mut self.slots[number].leaving;
        match &mut self.recorder {
            None => {
                router.transmit_all(now, number, most, memory, |place| leaving.push_back(place))
            }
            Some(recorder) => {
                let (now_ns, port) = (now.as_nanos(), number as u64);
                let input = Input::Transmit { now: now_ns, port, room: most as u64 };
                let left = recorder.call_out(&input, (router, memory), |router, memory, out| {
                    router.transmit_all(now, number, most, memory, |place| out.push(place));
                });
                leaving.extend(left);
            }
        }
    }

    /// How many frames the device of a port has not sent yet.
    pub(super) fn set_sending(&mut self, number: usize, frames: u32) {
        if let Some(recorder) = &mut self.recorder {
            let (port, frames) = (number as u64, u64::from(frames));
            recorder.input(&Input::Sending { port, frames });
        }
        self.router.fabric_mut().set_sending(number, frames);
    }

    /// Packets for the router itself that came by a port.
    fn take_punted(&mut self, number: usize) -> VecDeque<Place> {
        let take = |router: &mut Router| {
            std::iter::from_fn(|| router.poll_punted(number)).take(PUNTED_AT_ONCE).collect()
        };
        match &mut self.recorder {
            None => take(&mut self.router),
            Some(recorder) => {
                let (port, most) = (number as u64, PUNTED_AT_ONCE as u64);
                let parts = (&mut self.router, &mut self.memory);
                let input = Input::Punt { port, most };
                recorder
                    .call_out(&input, parts, |router, _, out| *out = Vec::from(take(router)))
                    .into()
            }
        }
    }

    /// Copies that filters request, with the port that each came by.
    pub(super) fn take_copies(&mut self) -> Vec<(usize, Place)> {
        let take = |router: &mut Router| std::iter::from_fn(|| router.poll_copy()).collect();
        let Some(recorder) = &mut self.recorder else { return take(&mut self.router) };
        let parts = (&mut self.router, &mut self.memory);
        let mut copies: Vec<(usize, Place)> = Vec::new();
        recorder.call_out(&Input::Copies, parts, |router, _, out| {
            copies = take(router);
            out.extend(copies.iter().map(|&(_, place)| place));
        });
        copies
    }

    /// Packets for the router itself, to the kernel's side of the port that they came by.
    pub(super) fn punt(&mut self, number: usize) -> bool {
        let mut punted = self.take_punted(number);
        let slot = &mut self.slots[number];
        let any = !punted.is_empty();
        if let Some(beside) = &mut slot.beside {
            let _ = beside.transmit(&mut self.memory, &mut punted);
            let _ = beside.flush(&mut self.memory);
        }
        slot.lost.unpunted += punted.len() as u64;
        punted.into_iter().for_each(|place| self.memory.give(place));
        any
    }
}
