//! Devices made of the kernel of the device's namespace, beyond plain forwarding.

use anyhow::{Context, Result, bail};
use nilometer_linux::testbed::{PROGRAM_INTERFACES, Testbed};
use nilometer_linux::xdp_object::{AttachedXdp, XdpObject};
use nilometer_linux::{bridge, nftables};

use super::rules::Rules;

/// Joins the device's ports by a bridge; their links may still be down.
///
/// # Errors
/// When the kernel has none.
pub fn make_bridge(testbed: &Testbed) -> Result<()> {
    let device = testbed.device().context("a wire is no bridge")?;
    bridge::join(device, &PROGRAM_INTERFACES, &[]).context("dut bridge")
}

/// Attaches a user's XDP programs to the device's ports.
///
/// # Errors
/// When the object has none, or the kernel does not take them.
pub fn attach_programs(testbed: &Testbed, object: &XdpObject) -> Result<AttachedXdp> {
    let device = testbed.device().context("a wire has no ports")?;
    let ports = testbed.device_ports();
    let [client, server] = &ports[..] else { bail!("dut xdp: a device has two ports") };
    object.attach(device, [&client.interface, &server.interface]).context("dut xdp")
}

/// Puts a packet filter in front of the device's forwarding: these rules, or the built-in ones.
///
/// # Errors
/// When nft is missing, or rejects the rules.
pub fn make_packet_filter(testbed: &Testbed, rules: Option<&Rules>) -> Result<()> {
    let device = testbed.device().context("a wire has no packet filter")?;
    let rules = rules.cloned().unwrap_or_else(Rules::built_in);
    let from = rules.path().display().to_string();
    nftables::load(device, rules.text(), &from).context("dut nftables")
}
