//! Devices that are third-party programs, started in the device's namespace when its links are up.

use anyhow::{Context, Result};
use nilometer_linux::frr::{self, FrrDevice};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::scheduling::Timed;
use nilometer_linux::testbed::{PROGRAM_INTERFACES, Testbed};
use nilometer_linux::user_switch::{UserSwitch, UserSwitchKind};

/// Which programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// FRR's zebra and staticd, which keep the kernel's routes.
    Frr,
    /// A switch in user space.
    Switch(UserSwitchKind),
}

impl ProcessKind {
    /// The device's name.
    fn name(self) -> &'static str {
        match self {
            ProcessKind::Frr => "frr",
            ProcessKind::Switch(UserSwitchKind::OpenVSwitch) => "ovs",
            ProcessKind::Switch(UserSwitchKind::Testpmd) => "testpmd",
        }
    }

    /// Checks whether they can be started here: FRR's zebra is started on trial, switches are only
    /// searched for.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn try_out(self, namespace: &Namespace) -> Result<()> {
        let tried = match self {
            ProcessKind::Frr => frr::try_out(namespace),
            ProcessKind::Switch(kind) => kind.ensure_installed(),
        };
        tried.with_context(|| format!("dut {}", self.name()))
    }
}

/// The programs at work.
#[derive(Debug)]
pub enum Processes<'a> {
    /// FRR.
    Frr(FrrDevice<'a>),
    /// A switch.
    Switch(UserSwitch),
}

impl<'a> Processes<'a> {
    /// Starts them, and returns when they forward.
    ///
    /// # Errors
    /// When they are not installed or do not start.
    pub fn start(kind: ProcessKind, testbed: &'a Testbed) -> Result<Processes<'a>> {
        let namespace = testbed.device().context("a wire has no programs")?;
        let started = match kind {
            ProcessKind::Frr => {
                FrrDevice::start(namespace, &testbed.device_ports()).map(Processes::Frr)
            }
            ProcessKind::Switch(kind) => {
                UserSwitch::start(kind, namespace, PROGRAM_INTERFACES).map(Processes::Switch)
            }
        };
        started.with_context(|| format!("dut {}", kind.name()))
    }

    /// The threads that forward, where these are not the kernel's.
    ///
    /// # Errors
    /// When the device has ended.
    pub fn threads(&self) -> Result<Vec<i32>> {
        match self {
            Processes::Frr(_) => Ok(Vec::new()),
            Processes::Switch(switch) => switch.threads(),
        }
    }

    /// Has those threads go ahead of all others but the timed ones.
    ///
    /// # Errors
    /// When the device has ended.
    pub fn be_favoured(&self, timed: &Timed) -> Result<()> {
        self.threads()?.into_iter().for_each(|thread_id| timed.favour(thread_id));
        Ok(())
    }
}
