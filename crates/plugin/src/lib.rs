//! The API of router plugins: one source, compiled with the router or to WebAssembly.
//!
//! ```
//! use nilometer_plugin::{Context, Decision, Packet, Plugin};
//!
//! /// Counts packets, and drops those of one DSCP.
//! struct Counter {
//!     dropped_dscp: Option<u8>,
//! }
//!
//! impl Plugin for Counter {
//!     const NAME: &'static str = "counter";
//!     const VERSION: &'static str = "1.0.0";
//!     const SEEN_BYTES: u16 = 20;
//!     const COUNTERS: &'static [&'static str] = &["packets", "dropped"];
//!
//!     fn new(configuration: &str) -> Result<Counter, String> {
//!         match configuration {
//!             "" => Ok(Counter { dropped_dscp: None }),
//!             dscp => match dscp.parse() {
//!                 Ok(dscp) => Ok(Counter { dropped_dscp: Some(dscp) }),
//!                 Err(_) => Err(format!("{dscp} is no DSCP")),
//!             },
//!         }
//!     }
//!
//!     fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
//!         context.count(0, 1);
//!         if self.dropped_dscp.is_some() && packet.dscp() == self.dropped_dscp {
//!             context.count(1, 1);
//!             return Decision::Drop;
//!         }
//!         Decision::Forward
//!     }
//! }
//!
//! nilometer_plugin::export_plugin!(Counter);
//! ```
//!
//! The last line writes the exports of the WebAssembly interface ([`interface`]), and nothing in a native build.
//! This crate has no dependencies, so that a plugin builds from its own folder and a compiler alone.
#![no_std]

extern crate alloc;

pub mod checksum;
pub mod context;
#[cfg(target_arch = "wasm32")]
pub mod guest;
pub mod headers;
pub mod interface;
pub mod labels;
mod macros;
pub mod packet;
pub mod prefix;
mod rewrite;
pub mod running;
pub mod settings;

use alloc::string::String;

pub use context::{Context, Random, Services};
pub use headers::Headers;
pub use packet::{Packet, Unseen};
pub use prefix::Prefix;
pub use running::Running;
pub use settings::Settings;

/// What a plugin decides on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Decision {
    /// It continues: to the next instance of the chain, then to its output.
    #[default]
    Forward = 0,
    /// It goes no further.
    Drop = 1,
}

/// A plugin: code for the packets of chosen flows. A value of the type is an instance.
pub trait Plugin: Sized {
    /// Its name: letters, digits and hyphens.
    const NAME: &'static str;
    /// Its version, as in semantic versioning.
    const VERSION: &'static str;
    /// Bytes at the beginning of an IP packet that it reads or changes; the fewer, the less is copied.
    const SEEN_BYTES: u16;
    /// The names of its counters, in the order of their numbers.
    const COUNTERS: &'static [&'static str] = &[];
    /// Whether it handles packets that begin with a label stack ([`labels`]).
    const TAKES_LABELS: bool = false;

    /// An instance with a configuration, which is any text.
    ///
    /// # Errors
    /// What is wrong with the configuration, for the operator.
    fn new(configuration: &str) -> Result<Self, String>;

    /// Decides on a packet, and may change its bytes.
    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision;

    /// Answers a message of the operator.
    ///
    /// # Errors
    /// The reason, if it cannot.
    fn message(&mut self, message: &str, context: &mut Context<'_>) -> Result<String, String> {
        let _ = (message, context);
        Err(alloc::format!("{} takes no messages", Self::NAME))
    }

    /// Called when the timer is due. It fires once; set it again for another time.
    fn timeout(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }
}
