//! The whole router as a [`Node`]: its pipeline under any driver, by the virtual clock or the real one.
//!
//! What arrives goes as far as it may at once; when the driver asks for frames, the fabric is advanced, every output
//! transmits what its link allows, port after port, and so on until nothing more moves. Packets that the router
//! would hand to a kernel beside it, or to a tracer, have no receiver here: they are counted and their buffers are
//! given back.

use core::slice;

use nilometer_wire::memory::{Memory, Place};
use nilometer_wire::{Node, Port, Time};

use crate::pipeline::Router;

/// A router as a node.
#[derive(Debug)]
pub struct RouterNode {
    router: Router,
    /// The port that is polled next; none where the fabric is to be advanced first.
    output: Option<usize>,
    /// Whether some port has transmitted since the fabric was advanced.
    has_sent: bool,
    /// Whether anything has come or run out since all was sent.
    is_due: bool,
    unpunted: u64,
}

impl RouterNode {
    /// `router`, whose links are as they are.
    pub fn new(router: Router) -> RouterNode {
        RouterNode { router, output: None, has_sent: false, is_due: true, unpunted: 0 }
    }

    /// The router.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// The router, to be changed between two calls.
    pub fn router_mut(&mut self) -> &mut Router {
        self.is_due = true;
        &mut self.router
    }

    /// Packets for the router itself that had no receiver, copies for a tracer among them.
    pub fn unpunted(&self) -> u64 {
        self.unpunted
    }

    /// Gives back the buffers of punted packets and of copies.
    fn sweep<M: Memory>(&mut self, memory: &mut M) {
        for port in 0..self.router.ports().len() {
            while let Some(place) = self.router.poll_punted(port) {
                memory.give(place);
                self.unpunted += 1;
            }
        }
        while let Some((_, place)) = self.router.poll_copy() {
            memory.give(place);
            self.unpunted += 1;
        }
    }
}

impl<M: Memory> Node<Place, M> for RouterNode {
    fn receive(&mut self, now: Time, port: Port, frame: &Place, memory: &mut M) {
        self.receive_batch(now, port, slice::from_ref(frame), memory);
    }

    fn receive_batch(&mut self, now: Time, port: Port, frames: &[Place], memory: &mut M) {
        self.router.receive(now, port.0 as usize, frames, memory, &mut ());
        self.is_due = true;
    }

    fn handle_timeout(&mut self, _: Time, _: &mut M) {
        self.is_due = true;
    }

    fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        if !self.is_due {
            return None;
        }
        loop {
            let mut output = match self.output {
                Some(output) => output,
                None => {
                    self.router.advance(now, memory, &mut ());
                    self.sweep(memory);
                    self.has_sent = false;
                    0
                }
            };
            while output < self.router.ports().len() {
                if let Some(place) = self.router.transmit(now, output, memory) {
                    (*frame, self.output, self.has_sent) = (place, Some(output), true);
                    return Some(Port(output as u32));
                }
                output += 1;
            }
            self.output = None;
            if !self.has_sent {
                self.is_due = false;
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.router.poll_timeout()
    }
}
