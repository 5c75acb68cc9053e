//! A node: a state machine with ports that is told the time and never asks it.
//!
//! The simulator's hosts, switches and fault boxes are nodes, driven by a virtual clock. A fault box is driven by the
//! real clock as well, between two interfaces, where its frames are descriptors of buffers in a packet memory that the
//! driver lends. The live router is none yet: its pipeline takes packets in batches, by calls of its own
//! (`router::pipeline`). Whoever drives a node keeps three promises:
//! `now` never runs backwards; after [`Node::receive`] or [`Node::handle_timeout`] it calls
//! [`Node::poll_transmit`] until that answers nothing; and it calls [`Node::handle_timeout`] when the
//! moment of [`Node::poll_timeout`] has come, not before.

use crate::time::Time;

/// One of a node's ports, counted from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u32);

/// A state machine with ports, over frames of type `F`: a small handle or an inline record, never an
/// owned buffer for each packet. The bytes of handles lie in a memory `M` that the driver lends for each call;
/// records have none. Frames are passed in places of the caller, because an inline record
/// that is returned through several functions is copied by each.
pub trait Node<F, M = ()> {
    /// `frame` has wholly arrived at `port`. A handle is the node's from now on: it is given back to the memory, or
    /// transmitted.
    fn receive(&mut self, now: Time, port: Port, frame: &F, memory: &mut M);

    /// The moment that [`Node::poll_timeout`] named has come.
    fn handle_timeout(&mut self, now: Time, memory: &mut M);

    /// Puts the next frame into `frame` and names the port whose link it is for; nothing, and `frame`
    /// is anything, when there is none now.
    fn poll_transmit(&mut self, now: Time, frame: &mut F, memory: &mut M) -> Option<Port>;

    /// When this node wants to be told the time, if it does.
    fn poll_timeout(&self) -> Option<Time>;
}
