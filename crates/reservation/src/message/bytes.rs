//! Big-endian fields of an object: read within its contents, and written.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::message::malformed::Malformed;

/// The contents of one object and where it begins in the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents<'a> {
    pub(crate) at: usize,
    pub(crate) class: u8,
    pub(crate) c_type: u8,
    rest: &'a [u8],
}

impl<'a> Contents<'a> {
    pub(crate) fn new(at: usize, class: u8, c_type: u8, rest: &'a [u8]) -> Contents<'a> {
        Contents { at, class, c_type, rest }
    }

    /// The error of an object whose contents have a wrong length.
    pub(crate) fn wrong_length(&self) -> Malformed {
        Malformed::ObjectContents { at: self.at, class: self.class, c_type: self.c_type }
    }

    /// The error of a C-Type that is not known here.
    pub(crate) fn unknown_c_type(&self) -> Malformed {
        Malformed::UnknownCType { at: self.at, class: self.class, c_type: self.c_type }
    }

    /// The error of a value that may not be.
    pub(crate) fn value(&self, what: &'static str) -> Malformed {
        Malformed::Value { at: self.at, what }
    }

    /// The next `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.wrong_length())?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next `count` bytes, as contents of their own.
    pub(crate) fn split(&mut self, count: usize) -> Result<Contents<'a>, Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.wrong_length())?;
        self.rest = rest;
        Ok(Contents { rest: taken, ..*self })
    }

    pub(crate) fn half(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    pub(crate) fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    /// An IEEE 754 number that is not negative and is a number.
    pub(crate) fn float(&mut self) -> Result<f32, Malformed> {
        let number = f32::from_bits(self.word()?);
        let is_one = number >= 0.0;
        if is_one { Ok(number) } else { Err(self.value("a negative number or none")) }
    }

    /// An address of version 4 or 6.
    pub(crate) fn address(&mut self, is_v6: bool) -> Result<IpAddr, Malformed> {
        Ok(match is_v6 {
            false => IpAddr::V4(Ipv4Addr::from(self.take::<4>()?)),
            true => IpAddr::V6(Ipv6Addr::from(self.take::<16>()?)),
        })
    }

    /// The address's version by a C-Type of 1 for IPv4 and 2 for IPv6, as most classes have it.
    pub(crate) fn is_v6(&self) -> Result<bool, Malformed> {
        match self.c_type {
            1 => Ok(false),
            2 => Ok(true),
            _ => Err(self.unknown_c_type()),
        }
    }

    /// What is left, as text; `None` if it is not UTF-8.
    pub(crate) fn text(&self) -> Option<String> {
        core::str::from_utf8(self.rest).ok().map(String::from)
    }

    /// Checks that only the zeros that fill the last word are left.
    pub(crate) fn padding(&self) -> Result<(), Malformed> {
        match self.rest.len() < 4 && self.rest.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(self.wrong_length()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong_length()) }
    }
}

/// The bytes of an address.
pub(crate) fn put_address(to: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => to.extend(address.octets()),
        IpAddr::V6(address) => to.extend(address.octets()),
    }
}

/// The C-Type of most classes: 1 with IPv4, 2 with IPv6.
pub(crate) fn c_type_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 1 } else { 2 }
}

/// Writes one object: its header and what `contents` writes, which is a multiple of four bytes.
pub(crate) fn put_object(
    to: &mut Vec<u8>,
    class: u8,
    c_type: u8,
    contents: impl FnOnce(&mut Vec<u8>),
) {
    let begin = to.len();
    to.extend([0, 0, class, c_type]);
    contents(to);
    let bytes = to.len() - begin;
    assert!(bytes.is_multiple_of(4), "objects are words");
    let bytes = u16::try_from(bytes).expect("limits keep objects short");
    to[begin..begin + 2].copy_from_slice(&bytes.to_be_bytes());
}
