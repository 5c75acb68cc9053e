//! Useful router plugins, each a page of source that depends only on `nilometer-plugin`.
//!
//! | plugin | what it does | after |
//! |---|---|---|
//! | [`Counter`] | counts packets and bytes by protocol | – |
//! | [`Delay`] | holds packets for a constant or varying time | – |
//! | [`Firewall`] | lets in what was begun inside | RFC 5382, RFC 4787 (timeouts) |
//! | [`Loss`] | loses packets by chance, one by one or in bursts | Gilbert, 1960 |
//! | [`Mpls`] | pushes, swaps and pops labels | RFC 3031, RFC 3032, RFC 3443 |
//! | [`Nat`] | translates addresses and ports | RFC 4787, RFC 5382, RFC 5508 |
//! | [`Policer`] | meters by token buckets; marks or drops | RFC 2697, RFC 2698, RFC 2597 |
//! | [`Remarker`] | sets the DSCP | RFC 2474 |
//! | [`Sampler`] | exports every Nth packet's flow as IPFIX | RFC 7011, RFC 5475 |
//! | [`Scrubber`] | bounds half-open connections, by source and by destination | RFC 4987 |
//! | [`WaveVideo`] | drops a video's highest sub-bands where its share of the link does not suffice | DER, 5 |
//!
//! Each is a native class of the router and, exported by a line in `examples/`, a module of WebAssembly, but for
//! `Mpls`, since the interface of modules does not support labels. All tables are bounded, and time and random
//! numbers come from outside: the same packets give the same decisions everywhere.
#![no_std]

extern crate alloc;

pub mod counter;
pub mod delay;
pub mod expiring;
pub mod firewall;
pub mod loss;
pub mod mpls;
pub mod nat;
pub mod policer;
pub mod remarker;
pub mod sampler;
pub mod scrubber;
#[cfg(test)]
mod testing;
pub mod wave_video;

pub use counter::Counter;
pub use delay::Delay;
pub use firewall::Firewall;
pub use loss::Loss;
pub use mpls::Mpls;
pub use nat::Nat;
pub use policer::Policer;
pub use remarker::Remarker;
pub use sampler::Sampler;
pub use scrubber::Scrubber;
pub use wave_video::WaveVideo;

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;
