//! Copies of packets that filters chose, on their way from the forwarding thread to the listener.

use std::time::SystemTime;

use tokio::sync::mpsc::{Sender, error::TrySendError};

use super::Driver;

/// A packet that a filter chose.
pub struct Traced {
    /// The port that it came by.
    pub port: usize,
    /// When it was handed over.
    pub stamp: SystemTime,
    /// The frame, from its Ethernet header on.
    pub frame: Vec<u8>,
}

/// The forwarding thread's end of a trace.
pub struct Tracer {
    to: Sender<Traced>,
    lost: u64,
}

impl Tracer {
    /// One that hands packets on to this listener.
    pub fn new(to: Sender<Traced>) -> Tracer {
        Tracer { to, lost: 0 }
    }

    /// Hands a packet on, if there is room; whether the listener is still there.
    pub fn hand_on(&mut self, packet: Traced) -> bool {
        match self.to.try_send(packet) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }

    /// Whether the listener is gone.
    pub fn is_over(&self) -> bool {
        self.to.is_closed()
    }

    /// Packets that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Driver {
    /// Lets `tracer` have the copies that filters request; whether they were free.
    pub fn set_tracer(&mut self, tracer: Tracer) -> bool {
        let is_free = self.tracer.as_ref().is_none_or(Tracer::is_over);
        if is_free {
            self.tracer = Some(tracer);
        }
        is_free
    }

    /// Passes on the copies that filters request.
    pub(super) fn trace(&mut self) {
        for (port, place) in self.take_copies() {
            if let Some(tracer) = &mut self.tracer {
                let frame = self.memory.frame(&place).to_vec();
                if !tracer.hand_on(Traced { port, stamp: SystemTime::now(), frame }) {
                    self.tracer = None;
                }
            }
            self.memory.give(place);
        }
    }
}
