//! The flows of a stream: addresses and ports drawn without order (RFC 4814), the same for the same seed.
//!
//! RFC 4814, section 4: devices spread flows by hashes of their headers, so that addresses and ports in rising order
//! measure the hash and not the device. Source ports are drawn from 1024 to 65535, destination ports from 1 to
//! 49151 (its section 4.5), addresses from all of a network but its first and its last.

use core::net::Ipv4Addr;

use nilometer_stat::Rng;

const PURPOSE_FLOW: u32 = 0x5354_0103;

/// The most flows of a stream.
pub const FLOWS_MAX: u32 = 65_536;

/// A network of IPv4 addresses: its first address and the length of its prefix, 30 at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first address.
    pub address: Ipv4Addr,
    /// How many bits all its addresses share.
    pub length: u8,
}

impl Network {
    fn draw(&self, rng: &mut Rng) -> Ipv4Addr {
        let size = 1u64 << (32 - self.length.min(30));
        let host = 1 + rng.below(size - 2);
        Ipv4Addr::from(u32::from(self.address).wrapping_add(host as u32))
    }
}

/// The addresses and ports of a UDP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAddresses {
    /// The sender's address.
    pub source: Ipv4Addr,
    /// The receiver's.
    pub destination: Ipv4Addr,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's.
    pub destination_port: u16,
}

/// The flows of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Where their sources are.
    pub from: Network,
    /// Where their destinations are.
    pub to: Network,
    /// What they are drawn by.
    pub seed: u64,
}

impl Flows {
    /// The addresses of a flow by its number.
    pub fn of(&self, flow: u32) -> FlowAddresses {
        let mut rng = Rng::new(self.seed, PURPOSE_FLOW, flow.into());
        FlowAddresses {
            source: self.from.draw(&mut rng),
            destination: self.to.draw(&mut rng),
            source_port: 1_024 + rng.below(65_536 - 1_024) as u16,
            destination_port: 1 + rng.below(49_151) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_stay_within_their_networks_and_repeat() {
        let network = |address: [u8; 4], length| Network { address: address.into(), length };
        let (from, to) = (network([198, 18, 0, 0], 16), network([198, 19, 0, 0], 17));
        let flows = Flows { from, to, seed: 7 };
        let mut before = None;
        for flow in 0..5_000 {
            let one = flows.of(flow);
            assert_eq!(one, flows.of(flow));
            assert_ne!(Some(one), before, "{flow}");
            let (source, destination) = (one.source.octets(), one.destination.octets());
            assert_eq!([source[0], source[1]], [198, 18]);
            assert!(destination[0] == 198 && destination[1] == 19 && destination[2] < 128);
            assert!(one.source_port >= 1_024 && (1..=49_151).contains(&one.destination_port));
            for address in [source, destination] {
                assert_ne!([address[2], address[3]], [0, 0]);
            }
            before = Some(one);
        }
        assert_ne!(Flows { seed: 8, ..flows }.of(0), flows.of(0));
        // The smallest network has two addresses for hosts.
        let small = Flows { to: network([10, 0, 0, 0], 30), ..flows };
        assert!((0..100).all(|flow| [1, 2].contains(&small.of(flow).destination.octets()[3])));
    }
}
