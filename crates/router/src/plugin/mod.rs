//! Plugins: code in the data path of chosen flows (DER, 3.3, 3.5 and 4.2).
//!
//! ```text
//!   filter (action = active) ──► chain ──► instance ──► instance ──► classified and looked up again
//!                                              ▲                     where the packet's key has changed
//!                                  made of a class, configured,
//!                                  sent messages, torn down
//! ```
//!
//! A *class* is code: native, or a WebAssembly module that an engine runs. An *instance* is a class with a
//! configuration and memory of its own. Filters bind flows to *chains* of instances; several flows may share
//! an instance, and an instance may be in several chains. All this is the plugin control unit's
//! ([`control::ControlUnit`]), which is a part of the pipeline and, like it, knows no clock and no device.
//!
//! # What a plugin may do
//!
//! It sees the IP packets of its flows, in their order and in batches, and for each says whether it goes on
//! ([`PluginDecision`]). It may change any byte of them, and not their length: a packet that is to become longer or
//! shorter is dropped and another is emitted. Labels alone (MPLS) come off and go on, by name ([`labels`]). Emitted packets are looked up like the router's own and meet no
//! filters. It may ask for a timer, and it answers messages of the control processor.
//!
//! # One that misbehaves
//!
//! A call ends with a [`Fault`] where the code trapped, used up its budget or did not keep to the interface.
//! A module's packets are as they were before that call; a native class, which changes them where they lie, may have
//! got half-way. The instance is cut off from then on, and the
//! packets of its flows are dropped or pass it by, as its binding says ([`OnFault`]).

pub mod batch;
pub mod control;
mod instance_state;
pub mod labels;
mod packet_set;
mod passage;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use nilometer_wire::Time;

pub use batch::{Batch, Effects, NO_PORT, PacketFacts};
pub use control::{ChainId, ControlError, ControlUnit};
pub use packet_set::{PACKETS_MAX, PacketSet};
pub(crate) use passage::{Handed, Passage};

nilometer_wire::named! {
    /// What runs the code of a class.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Engine {
        /// Compiled with the router; nothing isolates it.
        Native = "native",
        /// WebAssembly in a sandbox with limits.
        Wasm = "wasm",
    }
}

nilometer_wire::named! {
    /// What becomes of the packets of an instance that was cut off.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OnFault {
        /// They are dropped: nothing passes that the plugin has not seen.
        #[default]
        Drop = "drop",
        /// They go on as though the instance were not in the chain.
        Bypass = "bypass",
    }
}

/// What a plugin says of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PluginDecision {
    /// It goes on: to the next instance of the chain, then to its output.
    #[default]
    Forward = 0,
    /// It goes no further.
    Drop = 1,
}

/// What a class is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFacts {
    /// Its name: letters, digits and hyphens.
    pub name: String,
    /// Its version, as its author wrote it.
    pub version: String,
    /// What runs it.
    pub engine: Engine,
    /// Bytes at the beginning of an IP packet that its instances see; a packet that is shorter is seen whole.
    /// What they do not see they cannot change.
    pub seen_bytes: u16,
}

/// A plugin class: how instances are made.
pub trait Class: Send + Sync {
    /// What it is.
    fn facts(&self) -> &ClassFacts;

    /// An instance with a `configuration`, in the class's own words, and a seed for what it leaves to chance.
    ///
    /// # Errors
    /// When the configuration is not one, or the code fails before its first packet.
    fn instantiate(&self, configuration: &str, seed: u64) -> Result<Box<dyn Instance>, Refusal>;
}

/// A plugin instance. It is dropped when it is torn down.
pub trait Instance: Send {
    /// Looks at the packets of a batch, in their order, and gives its verdicts.
    ///
    /// # Errors
    /// A [`Fault`]; the packets that were not noted as changed are as they were, and it is called no more.
    fn process(
        &mut self,
        now: Time,
        batch: &mut Batch<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault>;

    /// Answers a message of the control processor, or says why it will not: it takes none, unless it says so here.
    ///
    /// # Errors
    /// A [`Fault`] as in [`Instance::process`].
    fn handle_message(
        &mut self,
        now: Time,
        message: &str,
        effects: &mut Effects,
    ) -> Result<Result<String, String>, Fault> {
        let _ = (now, message, effects);
        Ok(Err(String::from("it takes no messages")))
    }

    /// Its timer is due.
    ///
    /// # Errors
    /// A [`Fault`] as in [`Instance::process`].
    fn handle_timeout(&mut self, now: Time, effects: &mut Effects) -> Result<(), Fault> {
        let _ = (now, effects);
        Ok(())
    }

    /// When it wants [`Instance::handle_timeout`] to be called; never, unless it says so here.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Its own counters, in an order that does not change while it lives.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Bytes of memory that it has.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Whether it knows what to do with packets that begin with a label stack.
    fn takes_labels(&self) -> bool {
        false
    }
}

/// Why there is no instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The class does not take the configuration, and says why.
    #[error("the configuration is refused: {0}")]
    Configuration(String),
    /// The code failed while it was initialised.
    #[error("it failed while it was initialised: {0}")]
    Fault(#[from] Fault),
}

/// Why an instance was cut off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The code trapped: an access out of bounds, a division by zero, an instruction that says so.
    #[error("it trapped: {0}")]
    Trap(String),
    /// The code of a native class panicked.
    #[error("it panicked: {0}")]
    Panic(String),
    /// It did not end within its budget of instructions.
    #[error("it used up its budget of {0} instructions in one call")]
    Budget(u64),
    /// It wants more memory than it may have.
    #[error("it needs more than its {0} bytes of memory")]
    Memory(usize),
    /// It does not keep to the interface.
    #[error("it violates the interface: {0}")]
    Interface(String),
}
