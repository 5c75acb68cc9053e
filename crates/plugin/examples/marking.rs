//! A plugin that changes the header: every packet gets the DSCP of its configuration.
#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin};

/// Marks packets.
pub struct Marking {
    dscp: u8,
}

impl Plugin for Marking {
    const NAME: &'static str = "marking";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 20;

    fn new(configuration: &str) -> Result<Marking, String> {
        let dscp = configuration.parse().ok().filter(|dscp| *dscp < 64);
        let dscp = dscp.ok_or_else(|| format!("`{configuration}` is not a DSCP from 0 to 63"))?;
        Ok(Marking { dscp })
    }

    fn process(&mut self, packet: &mut Packet<'_>, _: &mut Context<'_>) -> Decision {
        match packet.set_dscp(self.dscp) {
            Ok(()) => Decision::Forward,
            Err(_) => Decision::Drop,
        }
    }
}

nilometer_plugin::export_plugin!(Marking);
