//! Live traffic: a plan performed as kernel TCP connections by event loops.
//!
//! A plan lists every connection before the first is made: when, from which address, to which, how
//! many bytes. Performing it is the second half of Harpoon (paper, section 4.2), and the kernel's
//! TCP does what the paper leaves to it: congestion control and the path decide how long a transfer
//! takes, the plan decides how it starts.
//!
//! One connection, packet by packet (the client has all state in a place of a [`slab`], no thread):
//!
//! ```text
//! client                                             server
//!   socket, bind to source, connect   ── SYN ──▶
//!                                    ◀─ SYN+ACK ─
//!                                     ── ACK ──▶
//!   request ([`protocol`])            ── data ─▶     accept, read the request
//!   count, do not copy               ◀─ data ──      send exactly that many bytes
//!   end of file: compare, close      ◀─ data+FIN     no more to send
//!                                     ── FIN ──▶     end of file: close
//! ```
//!
//! In a plan of files a request has sixteen bytes; in a plan of whole connections it has as many as
//! the original's clients sent, and the segment sizes of both directions follow from the size that
//! the client announces.
//!
//! Both ends close with FIN, never with RST, so that every flow has the start and end marker that
//! meters and models look for. The server's FIN is first; [`server`] says why. A connection that
//! ends in any other way has an [`Outcome`] for it. Only a server that strangers can reach gives
//! clients up, and resets those ([`limits`]).
//!
//! What Harpoon's published code did otherwise, and what it cost, is why this is an event loop: a
//! thread for each session and a poll set rebuilt at each turn took 545–580 µs of CPU for a flow of
//! 10 KB, eight times a plain event loop; its client spun before each start; its server's threads
//! blocked in `send`; its sizes were 32-bit. `benches/generator.sh` measures the first of these for
//! this engine.

pub mod client;
mod client_loop;
mod connection;
pub mod execution;
pub mod giving_up;
pub mod limits;
pub mod live;
mod pattern;
pub mod place_table;
pub mod protocol;
pub mod server;
mod service;
pub mod slab;
pub mod socket;
pub mod under_way;
pub mod vectors;

pub use client::{Client, ClientConfig, Execution, Outcome};
pub use limits::Limits;
pub use live::{LiveCounters, Progress};
pub use server::{Server, ServerConfig, ServerReport};
pub use vectors::{VectorClient, VectorConfig, VectorServer};
