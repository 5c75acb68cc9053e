//! A plugin that counts packets and bytes, and answers `total` with both.
#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin};

const PACKETS: usize = 0;
const BYTES: usize = 1;

/// Counts.
pub struct Counting;

impl Plugin for Counting {
    const NAME: &'static str = "counting";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 0;
    const COUNTERS: &'static [&'static str] = &["packets", "bytes"];

    fn new(_: &str) -> Result<Counting, String> {
        Ok(Counting)
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        context.count(BYTES, packet.ip_bytes().into());
        Decision::Forward
    }

    fn message(&mut self, message: &str, context: &mut Context<'_>) -> Result<String, String> {
        match message {
            "total" => Ok(format!(
                "{} packets, {} bytes",
                context.counted(PACKETS),
                context.counted(BYTES)
            )),
            _ => Err(format!("`{message}` is not a message; `total` is one")),
        }
    }
}

nilometer_plugin::export_plugin!(Counting);
