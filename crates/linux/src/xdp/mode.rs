//! Where in a frame's way the program of a port may run, and where it is refused.
//!
//! The program runs in the driver (*native*) or, slower, behind it (*generic*). Behind it, a host
//! on a veth whose segmentation offload is on would deliver packets of 64 KiB. Generic mode is
//! therefore refused unless this end's offloads are off; the other end's cannot be queried, so
//! frames longer than the MTU are refused and counted, too.

use anyhow::{Context, Result, bail};

use super::super::interface::Interface;
use super::super::offload;
use super::program::{Attachment, Link, Program};

/// Where the program may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, or not at all.
    #[default]
    Native,
    /// Behind the driver; refused where segmentation offloads are on.
    Generic,
    /// In the driver, and behind it where the driver refuses.
    NativeOrGeneric,
    /// On a veth at the traffic control hook, and in the driver of any other interface: where a
    /// frame is copied the least. Where the kernel has no such hook, in the driver as well.
    Fitting,
}

/// Attaches the program where the mode permits; also returns why it could not run in the preferred place.
pub(super) fn attach(
    program: &Program,
    interface: &Interface,
    mode: XdpMode,
) -> Result<(Link, String)> {
    let mut why = String::new();
    if mode != XdpMode::Generic {
        match program.attach(interface.index(), Attachment::Native) {
            Ok(link) => return Ok((link, why)),
            Err(error) => {
                let mtu = interface.mtu_bytes();
                let hint = match error.raw_os_error() {
                    Some(libc::ERANGE) => format!(
                        " (an MTU of {mtu} bytes is too much for a frame in one page; a veth \
                         takes up to about 3500)"
                    ),
                    Some(libc::EBUSY | libc::EEXIST) => " (it has another XDP program)".to_owned(),
                    _ => String::new(),
                };
                let refusal = format!("the driver refuses native XDP: {error}{hint}");
                if matches!(mode, XdpMode::Native | XdpMode::Fitting) {
                    bail!("{refusal}");
                }
                why = format!(" ({refusal})");
            }
        }
    }
    let offloads = offload::offloads(interface.name())?;
    let on = offloads.iter().find(|offload| offload.on && offload.name.contains("segmentation"));
    if let Some(offload) = on {
        bail!(
            "generic XDP would be handed unsegmented packets: switch {} and the other offloads of \
             both ends off{why}",
            offload.name
        );
    }
    let link = program
        .attach(interface.index(), Attachment::Generic)
        .with_context(|| format!("the kernel refuses generic XDP{why}"))?;
    Ok((link, why))
}
