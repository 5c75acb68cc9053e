//! A port's own addresses and the prefixes on its link.

use alloc::vec::Vec;
use core::fmt;

use super::{Family, Mac, Reason, is_station};
use crate::prefix::Prefix;

/// Most addresses of one family on one port.
pub const ADDRESSES_MAX: usize = 64;

/// Why a port cannot have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnError {
    /// It is not one host's, or stands for the prefix.
    NotHost,
    /// The prefix is longer than an address.
    Length,
    /// The port has [`ADDRESSES_MAX`] already.
    Full,
    /// The link-layer address is not one station's.
    Mac,
}

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnError::NotHost => "not an address that one host can have",
            OwnError::Length => "the prefix is longer than an address",
            OwnError::Full => "a port has 64 addresses of a family at most",
            OwnError::Mac => "not a link-layer address that one station can have",
        })
    }
}

impl core::error::Error for OwnError {}

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
}

impl<A: Family> Own<A> {
    /// A port with a link-layer address and no other.
    ///
    /// # Errors
    /// [`OwnError::Mac`].
    pub fn new(mac: Mac) -> Result<Own<A>, OwnError> {
        is_station(mac).then_some(Own { mac, addresses: Vec::new() }).ok_or(OwnError::Mac)
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
            return Ok(());
        }
        if self.addresses.len() == ADDRESSES_MAX {
            return Err(OwnError::Full);
        }
        self.addresses.push((address, prefix));
        Ok(())
    }

    /// Takes `address` away; whether it was there.
    pub fn remove(&mut self, address: A) -> bool {
        let before = self.addresses.len();
        self.addresses.retain(|there| there.0 != address);
        self.addresses.len() < before
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

    /// The address from which to ask for `address`: one with the longest prefix around it, else the
    /// first.
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
}
