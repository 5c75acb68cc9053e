//! The DSCP of packets set, all to one or each by a table.

use alloc::format;
use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

const REMARKED: usize = 0;
const KEPT: usize = 1;

/// Code points (RFC 2474, 3).
const DSCPS: usize = 64;

/// Remarks packets.
///
/// Settings: `dscp=N` for all, or `map=A:B,C:D` for those that have the DSCP A, C; others are kept. If both are
/// given, the map takes precedence where it has an entry.
pub struct Remarker {
    to: [u8; DSCPS],
}

impl Plugin for Remarker {
    const NAME: &'static str = "remarker";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 20;
    const COUNTERS: &'static [&'static str] = &["remarked", "kept"];

    fn new(configuration: &str) -> Result<Remarker, String> {
        let mut settings = Settings::parse(configuration)?;
        let mut to = core::array::from_fn(|dscp| dscp as u8);
        let all = settings.text("dscp").map(dscp).transpose()?;
        let map = settings.text("map");
        settings.finish()?;
        if all.is_none() && map.is_none() {
            return Err("neither `dscp=` nor `map=` is given".into());
        }
        if let Some(all) = all {
            to.fill(all);
        }
        for entry in map.unwrap_or_default().split(',').filter(|entry| !entry.is_empty()) {
            let Some((from, new)) = entry.split_once(':') else {
                return Err(format!("`{entry}` is not `from:to`"));
            };
            to[usize::from(dscp(from)?)] = dscp(new)?;
        }
        Ok(Remarker { to })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        let Some(old) = packet.dscp() else { return Decision::Forward };
        let new = self.to[usize::from(old)];
        let is_remarked = new != old && packet.set_dscp(new).is_ok();
        context.count(if is_remarked { REMARKED } else { KEPT }, 1);
        Decision::Forward
    }
}

/// Reads a code point.
///
/// # Errors
/// If it is not one.
pub(crate) fn dscp(text: &str) -> Result<u8, String> {
    let read = text.parse().ok().filter(|dscp| usize::from(*dscp) < DSCPS);
    read.ok_or_else(|| format!("`{text}` is not a DSCP from 0 to 63"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, refused, udp};

    #[test]
    fn packets_are_remarked_by_the_map_and_else_all_alike() {
        let mut bench = Bench::<Remarker>::new("dscp=0 map=46:10");
        for (source, at) in [("10.0.0.1:1", 1), ("[fd00::1]:1", 0)] {
            let destination = if at == 1 { "10.0.0.2:2" } else { "[fd00::2]:2" };
            let mut packet = udp(source, destination, 10);
            nilometer_plugin::Packet::new(&mut packet, 38).set_dscp(46).expect("seen");
            let before = packet.clone();
            bench.forwarded(&mut packet);
            assert_eq!(nilometer_plugin::Packet::new(&mut packet, 38).dscp(), Some(10));
            let mut again = before;
            nilometer_plugin::Packet::new(&mut again, 38).set_dscp(1).expect("seen");
            bench.forwarded(&mut again);
            assert_eq!(nilometer_plugin::Packet::new(&mut again, 38).dscp(), Some(0));
        }
        assert_eq!(bench.counters(), [4, 0]);
    }

    #[test]
    fn without_an_entry_a_packet_is_kept() {
        let mut bench = Bench::<Remarker>::new("map=46:10");
        let mut packet = udp("10.0.0.1:1", "10.0.0.2:2", 10);
        let before = packet.clone();
        bench.forwarded(&mut packet);
        assert_eq!((packet, bench.counters()), (before, &[0, 1][..]));
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(refused::<Remarker>(""), "neither `dscp=` nor `map=` is given");
        assert_eq!(refused::<Remarker>("dscp=64"), "`64` is not a DSCP from 0 to 63");
        assert_eq!(refused::<Remarker>("map=1"), "`1` is not `from:to`");
        assert_eq!(refused::<Remarker>("dscp=1 tos=2"), "there is no setting `tos`");
    }
}
