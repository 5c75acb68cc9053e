//! A plugin of the Nilometer router: counts packets, and drops those of one DSCP.
//!
//! `nilometer plugin build` makes a module of WebAssembly of it, `cargo test` tests it natively.
#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

const PACKETS: usize = 0;
const DROPPED: usize = 1;

/// An instance. What it has to remember between packets stands here.
pub struct Template {
    drop_dscp: Option<u8>,
}

impl Plugin for Template {
    const NAME: &'static str = "template-name";
    const VERSION: &'static str = "0.1.0";
    /// Bytes of a packet that are copied in, and back if they were changed: an IPv4 header.
    const SEEN_BYTES: u16 = 20;
    const COUNTERS: &'static [&'static str] = &["packets", "dropped"];

    /// Settings: `drop_dscp=N`.
    fn new(configuration: &str) -> Result<Template, String> {
        let mut settings = Settings::parse(configuration)?;
        let drop_dscp = settings.optional("drop_dscp")?;
        settings.finish()?;
        Ok(Template { drop_dscp })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        if self.drop_dscp.is_some() && packet.dscp() == self.drop_dscp {
            context.count(DROPPED, 1);
            return Decision::Drop;
        }
        Decision::Forward
    }
}

nilometer_plugin::export_plugin!(Template);

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_plugin::context::PortNumbers;
    use nilometer_plugin::{Running, Services};

    struct Nobody;

    impl Services for Nobody {
        fn emit(&mut self, _: &[u8]) -> bool {
            true
        }

        fn log(&mut self, _: &str) {}

        fn share_bps(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn one_dscp_is_dropped() {
        let mut running = Running::<Template>::new("drop_dscp=46", 1).expect("settings");
        let mut decide = |dscp: u8| {
            let mut bytes = [0x45, dscp << 2, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let mut packet = Packet::new(&mut bytes, 20);
            running.process(0, PortNumbers::default(), &mut packet, &mut Nobody)
        };
        assert_eq!(decide(46), Decision::Drop);
        assert_eq!(decide(0), Decision::Forward);
        assert_eq!(running.counters(), [2, 1]);
    }
}
