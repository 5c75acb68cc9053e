//! Redirects: when a sender is informed of the router that it should have used.
//!
//! RFC 1812, 5.2.7.2: only when the packet leaves by the port it came from, its sender and the next
//! hop are on one network, and it carries no source route; and only for the host, never for a whole
//! network. The message is [`Problem::Redirect`], from the router's address on that network. The
//! packet is forwarded all the same. A router that runs a routing protocol does not heed redirects
//! itself (5.2.7.2), so there is nothing here that reads one.

use super::icmp::Problem;

/// What the pipeline knows of the way a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Redirects are enabled here; a setting of the port (on by default, as 5.2.7.2 requires).
    pub is_wanted: bool,
    /// The port of arrival.
    pub arrives_by: u16,
    /// The port by which it leaves.
    pub leaves_by: u16,
    /// The sender's address.
    pub source: u32,
    /// The next hop: a router, or the destination itself.
    pub next_hop: u32,
    /// The network of the port, as address and mask.
    pub network: (u32, u32),
    /// It carries a source route.
    pub has_source_route: bool,
}

impl Turn {
    /// The redirect to send, if one is due.
    #[inline]
    pub fn redirect(&self) -> Option<Problem> {
        if !self.is_wanted || self.arrives_by != self.leaves_by || self.has_source_route {
            return None;
        }
        let (network, mask) = self.network;
        let is_on_network = |address: u32| (address ^ network) & mask == 0;
        (is_on_network(self.source) && is_on_network(self.next_hop))
            .then_some(Problem::Redirect { gateway: self.next_hop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_due_only_on_one_network_by_one_port() {
        let turn = Turn {
            is_wanted: true,
            arrives_by: 3,
            leaves_by: 3,
            source: 0xc612_0005,
            next_hop: 0xc612_0006,
            network: (0xc612_0001, 0xffff_ff00),
            has_source_route: false,
        };
        assert_eq!(turn.redirect(), Some(Problem::Redirect { gateway: 0xc612_0006 }));
        let others = [
            Turn { is_wanted: false, ..turn },
            Turn { leaves_by: 4, ..turn },
            Turn { source: 0xc612_0105, ..turn },
            Turn { next_hop: 0xc612_0106, ..turn },
            Turn { has_source_route: true, ..turn },
        ];
        for other in others {
            assert_eq!(other.redirect(), None, "{other:?}");
        }
    }
}
