//! `--hosts` of `lab run`: whose TCP the hosts have.

use anyhow::{Result, bail};
use clap::Args;
use nilometer_lab::trial::config::{Clock, HostKind, LabConfig};

/// Arguments about the hosts.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Whose TCP the hosts have: the kernel's, or ours (`simulated`), which speaks on the same interfaces.
    #[arg(long, value_name = "HOSTS")]
    hosts: Option<HostKind>,
    /// Repeat in virtual time what simulated hosts were told, and compare every frame that they sent
    /// (`simulated.replay` in result.json).
    #[arg(long)]
    replay_hosts: bool,
}

impl HostArgs {
    /// Changes what a configuration says of hosts; its clock is known by then.
    ///
    /// # Errors
    /// Where the kernel's hosts are to have a virtual clock.
    pub fn apply(&self, config: &mut LabConfig) -> Result<()> {
        config.hosts = self.hosts.unwrap_or(config.hosts);
        config.replay_hosts |= self.replay_hosts;
        if (self.hosts, config.clock) == (Some(HostKind::Kernel), Clock::Virtual) {
            bail!(
                "--hosts kernel: the kernel has no virtual clock; leave it out, or give --clock real"
            );
        }
        Ok(())
    }
}
