//! A port's own addresses and the prefixes on its link.

use alloc::vec::Vec;

use super::{Family, Mac, Reason, is_unicast};
use crate::prefix::Prefix;

/// Most addresses of one family on one port.
pub const ADDRESSES_MAX: usize = 64;
/// Leading bits of an address that are tested first.
const BEGINNING_BITS: u32 = 8;

/// Why a port cannot have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnError {
    /// It is not one host's, or stands for the prefix.
    #[error("not an address that one host can have")]
    NotHost,
    /// The prefix is longer than an address.
    #[error("the prefix is longer than an address")]
    Length,
    /// The port has [`ADDRESSES_MAX`] already.
    #[error("a port has 64 addresses of a family at most")]
    Full,
    /// The link-layer address is not one station's.
    #[error("not a link-layer address that one station can have")]
    Mac,
}

/// The link-local address that a port makes itself of its link-layer address (RFC 2464, 4 and 5).
pub fn link_local(mac: Mac) -> u128 {
    let [a, b, c, d, e, f] = mac;
    let interface = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    0xfe80 << 112 | u128::from(interface)
}

/// What a port calls its own.
#[derive(Clone, Debug)]
pub struct Own<A> {
    mac: Mac,
    addresses: Vec<(A, Prefix<A>)>,
    /// Addresses that are to be the port's, whether they are yet or not.
    wanted: Vec<Wanted<A>>,
    /// A bit for each value of the first eight bits of an address that is within a prefix.
    beginnings: [u64; 4],
}

#[derive(Clone, Debug)]
struct Wanted<A> {
    address: A,
    prefix: Prefix<A>,
    /// Another node has the address; the prefix is on the link all the same.
    is_lost: bool,
}

impl<A: Family> Own<A> {
    /// A port with a link-layer address and no other.
    ///
    /// # Errors
    /// [`OwnError::Mac`].
    pub fn new(mac: Mac) -> Result<Own<A>, OwnError> {
        let own = Own { mac, addresses: Vec::new(), wanted: Vec::new(), beginnings: [0; 4] };
        is_unicast(mac).then_some(own).ok_or(OwnError::Mac)
    }

    /// The port's link-layer address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Adds `address`, with the prefix of `length` bits around it on the link; one that is there
    /// already gets the new length.
    ///
    /// # Errors
    /// [`OwnError`], and nothing has changed.
    pub fn add(&mut self, address: A, length: u32) -> Result<(), OwnError> {
        let prefix = Prefix::new(address, length).ok_or(OwnError::Length)?;
        if !address.is_host() || address.is_edge_of(prefix) {
            return Err(OwnError::NotHost);
        }
        if let Some(there) = self.addresses.iter_mut().find(|there| there.0 == address) {
            there.1 = prefix;
        } else if self.addresses.len() == ADDRESSES_MAX {
            return Err(OwnError::Full);
        } else {
            self.addresses.push((address, prefix));
        }
        self.begin();
        Ok(())
    }

    /// Takes `address` away; whether it was there.
    pub fn remove(&mut self, address: A) -> bool {
        let before = self.addresses.len();
        self.addresses.retain(|there| there.0 != address);
        self.begin();
        self.addresses.len() < before
    }

    /// Notes that `address` is to be the port's, with the prefix of `length` bits around it on the link,
    /// once duplicate detection has passed.
    pub(super) fn want(&mut self, address: A, length: u32) -> Result<(), OwnError> {
        let prefix = Prefix::new(address, length).ok_or(OwnError::Length)?;
        self.unwant(address);
        if self.wanted.len() == ADDRESSES_MAX {
            return Err(OwnError::Full);
        }
        self.wanted.push(Wanted { address, prefix, is_lost: false });
        Ok(())
    }

    /// `address` is not to be the port's any more.
    pub(super) fn unwant(&mut self, address: A) {
        self.wanted.retain(|there| there.address != address);
    }

    /// Duplicate detection of `address` has failed.
    pub(super) fn lose(&mut self, address: A) {
        for there in self.wanted.iter_mut().filter(|there| there.address == address) {
            there.is_lost = true;
        }
    }

    /// Notes how addresses within the prefixes begin.
    fn begin(&mut self) {
        self.beginnings = [0; 4];
        for (_, prefix) in &self.addresses {
            let first = prefix.address().bits(0, BEGINNING_BITS) as usize;
            let open = BEGINNING_BITS - prefix.length().min(BEGINNING_BITS);
            for beginning in first..first + (1 << open) {
                self.beginnings[beginning / 64] |= 1 << (beginning % 64);
            }
        }
    }

    /// Whether `address` begins as one within a prefix does: no to nearly all that are within none, at
    /// the cost of one bit.
    #[inline(always)]
    pub(crate) fn begins(&self, address: A) -> bool {
        let beginning = address.bits(0, BEGINNING_BITS) as usize;
        self.beginnings[beginning / 64 % 4] >> (beginning % 64) & 1 == 1
    }

    /// The addresses and the prefixes around them.
    pub fn addresses(&self) -> &[(A, Prefix<A>)] {
        &self.addresses
    }

    /// Whether `address` is the port's.
    pub fn has(&self, address: A) -> bool {
        self.addresses.iter().any(|there| there.0 == address)
    }

    /// Whether `address` is on the link.
    pub fn is_on_link(&self, address: A) -> bool {
        address.is_link_local() || self.addresses.iter().any(|there| there.1.contains(address))
    }

    /// The source address for a request for `address`: one with the longest prefix around it, else
    /// the first.
    pub fn source_for(&self, address: A) -> Option<A> {
        let around = self.addresses.iter().filter(|there| there.1.contains(address));
        let nearest = around.max_by_key(|there| there.1.length());
        nearest.or(self.addresses.first()).map(|there| there.0)
    }

    /// Whether a neighbour can have `address`.
    ///
    /// # Errors
    /// Why not: [`Reason::NotHost`], [`Reason::Own`] or [`Reason::OffLink`].
    pub fn check(&self, address: A) -> Result<(), Reason> {
        if !address.is_host() || self.addresses.iter().any(|there| address.is_edge_of(there.1)) {
            Err(Reason::NotHost)
        } else if self.has(address) {
            Err(Reason::Own)
        } else if !self.is_on_link(address) {
            Err(Reason::OffLink)
        } else {
            Ok(())
        }
    }

    /// Whether a neighbour that is set by hand can have `address`: it may be on the prefix of an address
    /// that is not the port's yet.
    ///
    /// # Errors
    /// As of [`Own::check`].
    pub fn check_given(&self, address: A) -> Result<(), Reason> {
        match self.check(address) {
            _ if self.wanted.iter().any(|there| there.address == address && !there.is_lost) => {
                Err(Reason::Own)
            }
            Err(Reason::OffLink)
                if self.wanted.iter().any(|there| there.prefix.contains(address)) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn own_prefixes_are_screened_by_the_first_octet() {
        let mut rng = Rng::new(11, u32::from_be_bytes(*b"ownb"), 0);
        for _ in 0..200 {
            let mut own = Own::<u32>::new([2, 0, 0, 0, 0, 1]).expect("a station");
            let mut addresses = Vec::new();
            for _ in 0..rng.below(6) {
                let (address, length) = (rng.next_u64() as u32, 4 + rng.below(28) as u32);
                if own.add(address, length).is_ok() {
                    addresses.push(address);
                }
            }
            if let Some(gone) = addresses.pop().filter(|_| rng.below(2) == 0) {
                assert!(own.remove(gone));
            }
            for beginning in 0..256u32 {
                let may = own.addresses().iter().any(|(_, prefix)| {
                    let common = prefix.length().min(8);
                    (prefix.address() >> 24 ^ beginning) >> (8 - common) == 0
                });
                let address = beginning << 24 | rng.next_u64() as u32 & 0x00ff_ffff;
                assert_eq!(own.begins(address), may);
                assert!(may || !own.addresses().iter().any(|there| there.1.contains(address)));
            }
        }
    }
}
