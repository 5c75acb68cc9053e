//! A trial's view of its machine: stolen time, and the kernel's receiving soft interrupts.

use anyhow::Result;
use nilometer_linux::machine::Machine;
use nilometer_linux::softnet::Softnet;

/// The machine when a trial began.
#[derive(Debug)]
pub struct Watch {
    machine: Machine,
    softnet: Softnet,
}

/// What happened to it since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineSeen {
    /// The share of its processors' time that a hypervisor took.
    pub stolen_share: f64,
    /// Frames dropped and rounds cut short by the kernel's receive path, over all interfaces.
    pub softnet: Softnet,
}

impl Watch {
    /// A watch that begins now.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn begin() -> Result<Watch> {
        Ok(Watch { machine: Machine::now()?, softnet: Softnet::now()? })
    }

    /// Until now.
    ///
    /// # Errors
    /// As [`Watch::begin`].
    pub fn end(&self) -> Result<MachineSeen> {
        let used = Machine::now()?.since(&self.machine);
        let stolen_share = used.stolen_s / used.all_s.max(f64::MIN_POSITIVE);
        Ok(MachineSeen { stolen_share, softnet: Softnet::now()?.since(&self.softnet) })
    }
}
