//! Options of neighbour discovery: link-layer addresses, prefixes, the MTU (RFC 4861, 4.6).

use super::Mac;
use super::frame::Ink;

/// Most prefixes of a router advertisement that are written or read; further ones are skipped.
pub const PREFIXES_MAX: usize = 4;

const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
/// Flags of a prefix: hosts may make addresses of it, and it is on the link.
const AUTONOMOUS: u8 = 0x40;
const ON_LINK: u8 = 0x80;

/// A prefix that a router advertises (4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLinkPrefix {
    /// Its first address.
    pub prefix: u128,
    /// Its length in bits, at most 128.
    pub length: u8,
    /// L: addresses of it are on the link.
    pub is_on_link: bool,
    /// A: hosts may make themselves addresses of it (RFC 4862).
    pub is_autonomous: bool,
    /// How long it is on the link, in seconds; all ones is for ever.
    pub valid_s: u32,
    /// How long addresses made of it are preferred, in seconds; at most `valid_s`.
    pub preferred_s: u32,
}

/// The options of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) source_mac: Option<Mac>,
    pub(super) target_mac: Option<Mac>,
    pub(super) mtu: Option<u32>,
    pub(super) prefixes: [Option<OnLinkPrefix>; PREFIXES_MAX],
}

impl Options {
    /// Reads them; nothing if one is of no length, is cut or of another length than its kind has.
    /// Unknown ones are skipped, and of two of a kind the first counts.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Options> {
        let mut options = Options::default();
        while let Some(&[kind, eights]) = bytes.first_chunk::<2>() {
            let length = usize::from(eights) * 8;
            let option = bytes.get(..length).filter(|option| !option.is_empty())?;
            match kind {
                SOURCE_MAC => _ = options.source_mac.get_or_insert(mac(option)?),
                TARGET_MAC => _ = options.target_mac.get_or_insert(mac(option)?),
                MTU => {
                    let body: &[u8; 8] = option.try_into().ok()?;
                    let mtu = u32::from_be_bytes([body[4], body[5], body[6], body[7]]);
                    options.mtu.get_or_insert(mtu);
                }
                PREFIX => {
                    let prefix = OnLinkPrefix::read(option)?;
                    if let Some(free) = options.prefixes.iter_mut().find(|there| there.is_none()) {
                        *free = Some(prefix);
                    }
                }
                _ => {}
            }
            bytes = &bytes[length..];
        }
        bytes.is_empty().then_some(options)
    }

    pub(super) fn write(&self, ink: &mut Ink<'_>) {
        for (kind, mac) in [(SOURCE_MAC, self.source_mac), (TARGET_MAC, self.target_mac)] {
            if let Some(mac) = mac {
                ink.put(&[kind, 1]);
                ink.put(&mac);
            }
        }
        if let Some(mtu) = self.mtu {
            ink.put(&[MTU, 1, 0, 0]);
            ink.put(&mtu.to_be_bytes());
        }
        for prefix in self.prefixes.iter().flatten() {
            prefix.write(ink);
        }
    }
}

/// A link-layer address option is 8 bytes for Ethernet (RFC 2464, 6).
fn mac(option: &[u8]) -> Option<Mac> {
    let body: &[u8; 8] = option.try_into().ok()?;
    Some([body[2], body[3], body[4], body[5], body[6], body[7]])
}

impl OnLinkPrefix {
    fn read(option: &[u8]) -> Option<OnLinkPrefix> {
        let body: &[u8; 32] = option.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|i| body[at + i]));
        let prefix = OnLinkPrefix {
            prefix: u128::from_be_bytes(core::array::from_fn(|i| body[16 + i])),
            length: body[2],
            is_on_link: body[3] & ON_LINK != 0,
            is_autonomous: body[3] & AUTONOMOUS != 0,
            valid_s: word(4),
            preferred_s: word(8),
        };
        (prefix.length <= 128).then_some(prefix)
    }

    fn write(&self, ink: &mut Ink<'_>) {
        let flags =
            (u8::from(self.is_on_link) * ON_LINK) | (u8::from(self.is_autonomous) * AUTONOMOUS);
        ink.put(&[PREFIX, 4, self.length, flags]);
        ink.put(&self.valid_s.to_be_bytes());
        ink.put(&self.preferred_s.to_be_bytes());
        ink.put(&[0; 4]);
        ink.put(&self.prefix.to_be_bytes());
    }
}
