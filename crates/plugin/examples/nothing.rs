//! A plugin that lets every packet pass unseen: what a call costs by itself.
#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin};

/// Does nothing.
pub struct Nothing;

impl Plugin for Nothing {
    const NAME: &'static str = "nothing";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 0;

    fn new(_: &str) -> Result<Nothing, String> {
        Ok(Nothing)
    }

    fn process(&mut self, _: &mut Packet<'_>, _: &mut Context<'_>) -> Decision {
        Decision::Forward
    }
}

nilometer_plugin::export_plugin!(Nothing);
