//! The tables that a router may look its routes up in, by name.
//!
//! ```
//! use nilometer_router::{Engine, Fib, NextHop, Prefix};
//!
//! let engine: Engine = "lines".parse()?;
//! let mut table = engine.table::<u32>(100_000)?;
//! table.insert("198.18.0.0/15".parse()?, NextHop(7))?;
//! let mut reader = table.reader().expect("there are 64 places");
//! let mut next_hops = [None; 2];
//! reader.look_up(&[0xc612_0001, 0x0a00_0001], &mut next_hops);
//! assert_eq!(next_hops, [Some(NextHop(7)), None]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The writer owns the table; its readers can be sent to the data threads. To change the engine of a
//! running router, make a table of the other, [`ServingFib::load`] it, and exchange the readers between
//! two batches.

use alloc::boxed::Box;
use core::str::FromStr;

use crate::direct::Direct;
use crate::fib::{Full, ServingFib};
use crate::ipv6_fib::Ipv6Fib;
use crate::prefix::Address;
use crate::slots::{Layout, Lines, Poptrie, Ranges, SlotFib};
use crate::tree_bitmap::TreeBitmap;

/// Most words of any table.
const WORDS_MAX: u64 = 1 << 27;

nilometer_wire::named! {
    /// A kind of table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Engine {
        /// Routes packed into lines of the cache, up to 254 next hops: the fast one. Those of IPv4 by /18
        /// ([`Lines`]), those of IPv6 by parcels that are as small as there are routes in them
        /// ([`Ipv6Fib`]).
        Lines = "lines",
        /// As `Lines`, with answers of two bytes, for up to 65,534 next hops.
        WideLines = "wide_lines",
        /// An answer for each /24 of IPv4, in the manner of DIR-24-8, up to 32,767 next hops: ten times the
        /// memory ([`Direct`]).
        Direct = "direct",
        /// IPv4 routes packed by /18 into tries of six bits a step ([`Poptrie`]), up to 65,534 next hops.
        Poptrie = "poptrie",
        /// IPv4 routes packed by /18 into sorted ranges, in the manner of DXR ([`Ranges`]), up to 65,534 next
        /// hops.
        Dxr = "dxr",
        /// Tree Bitmap with a stride of 4, for both families and all 65,536 next hops: the one with cheap
        /// updates ([`TreeBitmap`]).
        TreeBitmap = "tree_bitmap",
    }
}

impl Engine {
    /// The numbers below this are next hops that its answers can name; others are refused as [`Full`].
    pub fn next_hops_max(self) -> usize {
        match self {
            Engine::Lines => usize::from(<Lines<1> as Layout<u32>>::LEAF_MAX),
            Engine::WideLines => usize::from(<Lines<2> as Layout<u32>>::LEAF_MAX),
            Engine::TreeBitmap => 1 << 16,
            Engine::Direct => Direct::NEXT_HOPS_MAX,
            Engine::Poptrie => usize::from(<Poptrie as Layout<u32>>::LEAF_MAX),
            Engine::Dxr => usize::from(<Ranges as Layout<u32>>::LEAF_MAX),
        }
    }

    /// An empty table with room for `prefixes_max` prefixes of any lengths, and for as much again
    /// that is replaced and not yet passed by all readers.
    ///
    /// # Errors
    /// When the engine does not know the family, or the roots alone do not fit.
    pub fn table<A: Routed>(
        self,
        prefixes_max: usize,
    ) -> Result<Box<dyn ServingFib<A>>, EngineFault> {
        A::table(self, prefixes_max)
    }
}

impl FromStr for Engine {
    type Err = EngineFault;

    fn from_str(text: &str) -> Result<Engine, EngineFault> {
        Engine::from_name(text).ok_or(EngineFault::Unknown)
    }
}

/// Why there is no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineFault {
    /// No engine has this name.
    #[error("no lookup engine of this name; there are {}", Engine::ALL.map(Engine::name).join(" "))]
    Unknown,
    /// The engine has no table for this family.
    #[error("{0} does not look up IPv6 addresses")]
    Family(Engine),
    /// The table cannot be made that large.
    #[error("{}", Full)]
    Full,
}

impl From<Full> for EngineFault {
    fn from(_: Full) -> EngineFault {
        EngineFault::Full
    }
}

/// A family of addresses, and the engines that look them up.
pub trait Routed: Address {
    /// Those engines; the first is the one for the fast path.
    const ENGINES: &'static [Engine];

    /// See [`Engine::table`].
    ///
    /// # Errors
    /// As there.
    fn table(engine: Engine, prefixes_max: usize)
    -> Result<Box<dyn ServingFib<Self>>, EngineFault>;
}

/// Words of eight bytes: at the worst each prefix has a path of its own.
fn tree_bitmap_words<A: Address>(prefixes: usize) -> u32 {
    (65_536 + prefixes as u64 * u64::from(A::BITS) / 4).min(WORDS_MAX) as u32
}

/// Words of four bytes: roots, and at the worst a block of sixteen for each prefix, twice over.
fn slot_words(prefixes: usize) -> u32 {
    (1_000_000 + 32 * prefixes as u64).min(WORDS_MAX) as u32
}

/// Words of four bytes: 65,536 at the front, and for each prefix at the worst 52 of parcels that are divided
/// for it (256 words fourteen times over, for 70 prefixes) and ten of a block, twice over; or, without the
/// first, sixteen.
fn parcel_words(prefixes: usize) -> u32 {
    (1_000_000 + 72 * prefixes as u64).min(WORDS_MAX) as u32
}

impl Routed for u32 {
    const ENGINES: &'static [Engine] = &Engine::ALL;

    fn table(engine: Engine, prefixes: usize) -> Result<Box<dyn ServingFib<u32>>, EngineFault> {
        Ok(match engine {
            Engine::Lines => Box::new(SlotFib::<u32, Lines<1>>::new(slot_words(prefixes))?),
            Engine::WideLines => Box::new(SlotFib::<u32, Lines<2>>::new(slot_words(prefixes))?),
            Engine::Direct => Box::new(Direct::new(2 * prefixes)),
            Engine::Poptrie => Box::new(SlotFib::<u32, Poptrie>::new(slot_words(prefixes))?),
            Engine::Dxr => Box::new(SlotFib::<u32, Ranges>::new(slot_words(prefixes))?),
            Engine::TreeBitmap => {
                Box::new(TreeBitmap::<u32>::new(tree_bitmap_words::<u32>(prefixes))?)
            }
        })
    }
}

impl Routed for u128 {
    const ENGINES: &'static [Engine] = &[Engine::Lines, Engine::WideLines, Engine::TreeBitmap];

    fn table(engine: Engine, prefixes: usize) -> Result<Box<dyn ServingFib<u128>>, EngineFault> {
        Ok(match engine {
            Engine::Lines => Box::new(Ipv6Fib::<1>::new(parcel_words(prefixes))?),
            Engine::WideLines => Box::new(Ipv6Fib::<2>::new(parcel_words(prefixes))?),
            Engine::TreeBitmap => {
                Box::new(TreeBitmap::<u128>::new(tree_bitmap_words::<u128>(prefixes))?)
            }
            _ => return Err(EngineFault::Family(engine)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::NextHop;
    use crate::prefix::Prefix;

    /// Names parse to the same engine, and every engine refuses exactly beyond its stated limits.
    fn hold<A: Routed>(prefix: &str)
    where
        Prefix<A>: FromStr<Err: core::fmt::Debug>,
    {
        for engine in Engine::ALL {
            assert_eq!(engine.name().parse(), Ok(engine));
            let made = engine.table::<A>(1_000);
            if !A::ENGINES.contains(&engine) {
                assert_eq!(made.err(), Some(EngineFault::Family(engine)));
                continue;
            }
            let mut table = made.expect("room");
            let prefix: Prefix<A> = prefix.parse().expect("a prefix");
            let last = NextHop((engine.next_hops_max() - 1) as u16);
            assert_eq!(table.load(&mut core::iter::once((prefix, last))), Ok(()), "{engine}");
            let mut found = [None];
            let mut reader = table.reader().expect("a place");
            reader.look_up(&[prefix.address()], &mut found);
            assert_eq!(found, [Some(last)], "{engine}");
            if let Some(above) = last.0.checked_add(1) {
                assert_eq!(table.insert(prefix, NextHop(above)), Err(Full), "{engine}");
            }
            assert_eq!(table.remove(prefix), Ok(Some(last)), "{engine}");
        }
        assert_eq!("linear".parse::<Engine>(), Err(EngineFault::Unknown));
    }

    #[test]
    fn engines_have_their_names_and_limits() {
        let most = Engine::ALL.map(|engine| (engine.name(), engine.next_hops_max()));
        let expected = [
            ("lines", 254),
            ("wide_lines", 65_534),
            ("direct", 32_767),
            ("poptrie", 65_535),
            ("dxr", 65_535),
            ("tree_bitmap", 65_536),
        ];
        assert_eq!(most, expected);
        hold::<u32>("198.18.0.0/15");
        hold::<u128>("fd00::/8");
    }
}
