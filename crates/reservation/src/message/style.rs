//! Reservation styles: which senders share a reservation (RFC 2205, 1.3 and A.7).

use alloc::vec::Vec;

use crate::message::bytes::{Contents, put_object};
use crate::message::class;
use crate::message::malformed::Malformed;

nilometer_wire::named! {
    /// A reservation style.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Style {
        /// FF: a reservation for each sender.
        FixedFilter = "fixed_filter",
        /// SE: one reservation that listed senders share.
        SharedExplicit = "shared_explicit",
        /// WF: one reservation that all senders share.
        WildcardFilter = "wildcard_filter",
    }
}

impl Style {
    const fn option_vector(self) -> u8 {
        match self {
            Style::FixedFilter => 0b01_010,
            Style::SharedExplicit => 0b10_010,
            Style::WildcardFilter => 0b10_001,
        }
    }

    pub(crate) fn read(mut contents: Contents<'_>) -> Result<Style, Malformed> {
        if contents.c_type != 1 {
            return Err(contents.unknown_c_type());
        }
        let [_flags, _, _, vector] = contents.take()?;
        contents.end()?;
        let known = Style::ALL.into_iter().find(|style| style.option_vector() == vector & 0x1f);
        known.ok_or_else(|| contents.value("an unknown reservation style"))
    }

    pub(crate) fn write(self, to: &mut Vec<u8>) {
        put_object(to, class::STYLE, 1, |to| to.extend([0, 0, 0, self.option_vector()]));
    }
}
