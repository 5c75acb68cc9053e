//! A node: a state machine with ports that is given the time and never reads a clock.
//!
//! Hosts, switches, fault boxes, sources and the whole router are nodes. Two drivers run any of them: one by a virtual
//! clock, the other by the real one, between ports of the kernel or within the process. Frames are the simulator's
//! records, which have no bytes, or handles of buffers in a packet memory ([`crate::memory`]) that the driver lends. A
//! driver keeps three promises: `now` never runs backwards; after [`Node::receive`], [`Node::receive_batch`] or
//! [`Node::handle_timeout`] it calls [`Node::poll_transmit`] until that returns `None`; and it calls
//! [`Node::handle_timeout`] when the moment of [`Node::poll_timeout`] has come, not before.
//!
//! How many frames make a batch, and whether due frames leave before arrived ones are taken, is the driver's choice,
//! and may change what a node does: a queue that is offered more at once drops more. So both are parameters of both
//! drivers ([`Turns`]).

use crate::time::Time;

/// One of a node's ports, counted from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u32);

/// The order where a node has something to take and something to send at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Arrived frames are taken, then due frames leave.
    #[default]
    ReceiveFirst,
    /// Due frames leave, then arrived frames are taken.
    TransmitFirst,
}

/// How a driver takes turns with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The most frames of a port that the node is given at once; at least one.
    pub batch: usize,
    /// Whether frames are taken or sent first.
    pub order: Order,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { batch: 64, order: Order::ReceiveFirst }
    }
}

/// A state machine with ports, over frames of type `F`: a small handle or an inline record, never an
/// owned buffer for each packet. The bytes of handles lie in a memory `M` that the driver lends for each call;
/// records have none. Frames are passed in storage of the caller, because an inline record that is returned
/// through several functions is copied by each.
pub trait Node<F, M = ()> {
    /// `frame` has wholly arrived at `port`. If it is a handle, the node owns it from now on, and gives it back to
    /// the memory or transmits it.
    fn receive(&mut self, now: Time, port: Port, frame: &F, memory: &mut M);

    /// `frames` have wholly arrived at `port`, in this order, and nothing is to leave between them.
    fn receive_batch(&mut self, now: Time, port: Port, frames: &[F], memory: &mut M) {
        for frame in frames {
            self.receive(now, port, frame, memory);
        }
    }

    /// The moment that [`Node::poll_timeout`] named has come.
    fn handle_timeout(&mut self, now: Time, memory: &mut M);

    /// Puts the next frame into `frame` and returns the port whose link it is for; `None` when there is none
    /// now, and the content of `frame` is then unspecified.
    fn poll_transmit(&mut self, now: Time, frame: &mut F, memory: &mut M) -> Option<Port>;

    /// When this node wants its next [`Node::handle_timeout`], if it wants one.
    fn poll_timeout(&self) -> Option<Time>;
}

/// The owner of a node lends it to a driver.
impl<F, M, N: Node<F, M> + ?Sized> Node<F, M> for &mut N {
    fn receive(&mut self, now: Time, port: Port, frame: &F, memory: &mut M) {
        (**self).receive(now, port, frame, memory);
    }

    fn receive_batch(&mut self, now: Time, port: Port, frames: &[F], memory: &mut M) {
        (**self).receive_batch(now, port, frames, memory);
    }

    fn handle_timeout(&mut self, now: Time, memory: &mut M) {
        (**self).handle_timeout(now, memory);
    }

    fn poll_transmit(&mut self, now: Time, frame: &mut F, memory: &mut M) -> Option<Port> {
        (**self).poll_transmit(now, frame, memory)
    }

    fn poll_timeout(&self) -> Option<Time> {
        (**self).poll_timeout()
    }
}
