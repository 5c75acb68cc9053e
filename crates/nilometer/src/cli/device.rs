//! The device under test, and a path in front of it, as the command line says them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::Args;
use nilometer_files::input::sight::refuse_input;
use nilometer_lab::device::rules::Rules;
use nilometer_lab::device::spec::FaultSpec;
use nilometer_lab::trial::config::{DutKind, LabConfig};

use super::wiring::Interfaces;

/// The device as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dut {
    /// Which it is.
    pub kind: DutKind,
    /// The object behind `xdp:`.
    pub program: Option<PathBuf>,
}

impl FromStr for Dut {
    type Err = String;

    fn from_str(text: &str) -> Result<Dut, String> {
        let (name, program) = match text.split_once(':') {
            Some(("xdp", file)) if !file.is_empty() => ("xdp", Some(PathBuf::from(file))),
            _ => (text, None),
        };
        let kind = DutKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| {
            let names = DutKind::ALL.map(|kind| kind.name()).join(", ");
            format!("the devices are {}", names.replace("xdp", "xdp:FILE.o"))
        })?;
        Ok(Dut { kind, program })
    }
}

/// Device options of `lab run`.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// The device under test: nilometer, linux, nftables, bridge, frr, ovs, testpmd, xdp:FILE.o (your XDP programs on the ports of Linux),
    /// fault, external or wire.
    #[arg(long)]
    dut: Option<Dut>,
    #[command(flatten)]
    interfaces: Interfaces,
    /// Impairments of the device `fault`, such as rate=50Mbit,delay=20ms,jitter=1ms,loss=0.01,burst_loss=P:R,
    /// duplicate=0.001,reorder=0.01,corrupt=0.0001; a key applies to both directions, or with _back to packets towards
    /// the clients only (delay_back=5ms). Implies `--dut fault`.
    #[arg(long, value_name = "FAULTS")]
    fault: Option<FaultSpec>,
    /// Impairments of a path in front of the device, for any device: the keys of --fault. The device is metered behind
    /// it. By address pair: `[[path.pair]]` in LAB.toml.
    #[arg(long, value_name = "FAULTS")]
    path: Option<FaultSpec>,
    /// Rules of the device `nftables`, in the format of `nft -f`; a stateful firewall by default. Implies `--dut
    /// nftables`.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Configuration of our router: a ROUTER.toml as for `route run`, with the two ports `client` and `server`;
    /// addresses and routes are set by the lab. Implies `--dut nilometer`.
    #[arg(long, value_name = "ROUTER.toml")]
    router: Option<PathBuf>,
}

impl DeviceArgs {
    /// Puts what was given into a configuration.
    ///
    /// # Errors
    /// A file that cannot be read, or holds something else.
    pub fn apply(&self, config: &mut LabConfig) -> Result<()> {
        if let Some(path) = &self.path {
            let mut faults = path.clone();
            faults.load(Path::new("")).context("--path")?;
            config.path.get_or_insert_default().faults = Some(faults);
        }
        if let Some(fault) = &self.fault {
            let mut fault = fault.clone();
            fault.load(Path::new("")).context("--fault")?;
            (config.fault, config.dut) = (Some(fault), DutKind::Fault);
        }
        if let Some(path) = &self.router {
            (config.router, config.dut) = (Some(path.clone()), DutKind::Nilometer);
        }
        if let Some(path) = &self.rules {
            let mut rules = Rules::from(path.clone());
            rules.load(Path::new("")).context("--rules")?;
            (config.rules, config.dut) = (Some(rules), DutKind::Nftables);
        }
        for (file, wanted) in [(&config.model.file, "model"), (&config.router, "ROUTER.toml")] {
            file.iter().try_for_each(|file| refuse_input(file, wanted))?;
        }
        if self.interfaces.apply(&mut config.external) {
            config.dut = DutKind::External;
        }
        if let Some(Dut { kind, program }) = &self.dut {
            config.dut = *kind;
            config.program = program.clone().or(config.program.take());
        }
        Ok(())
    }
}
