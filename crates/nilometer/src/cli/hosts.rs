//! `--hosts` of `lab run`: whose TCP the hosts have.

use anyhow::{Result, bail};
use clap::Args;
use nilometer_lab::trial::config::{Clock, HostKind, LabConfig};

/// Host options.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// TCP implementation of the hosts: the kernel's, or ours (`simulated`) on the same interfaces.
    #[arg(long, value_name = "HOSTS")]
    hosts: Option<HostKind>,
    /// Replay the inputs of simulated hosts in virtual time, and compare every frame that they sent
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
