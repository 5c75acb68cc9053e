//! Copies of packets that filters chose, on their way from the forwarding thread to who listens.

use std::time::SystemTime;

use tokio::sync::mpsc::{Sender, error::TrySendError};

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

    /// Hands a packet on, if there is room; whether somebody still listens.
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

    /// Whether nobody listens any more.
    pub fn is_over(&self) -> bool {
        self.to.is_closed()
    }

    /// Packets that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
