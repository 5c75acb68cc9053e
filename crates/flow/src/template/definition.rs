//! Templates as they are encoded: RFC 3954, sections 5.2 and 6.1; RFC 7011, section 3.4.
//!
//! The two dialects differ in three places. IPFIX marks a field of an enterprise with the top bit of
//! its number and four bytes more. Options templates say how many scope fields come first, version 9
//! in bytes and IPFIX in fields. And IPFIX can withdraw a template: one without fields, by its own
//! identifier or by that of the set for all of them (section 8.1).

use alloc::vec::Vec;

use super::message::Dialect;
use crate::bytes::{be16, be32};

/// The length of a variable-length field: every record gives the length itself (RFC 7011, section 7).
/// Some exporters of version 9 send it, too.
pub(super) const VARIABLE: u16 = u16::MAX;

/// The number of the enterprise of a field that only names a scope of version 9 (RFC 3954, section
/// 6.1), which is no element at all.
pub(super) const SCOPE_OF_NETFLOW9: u32 = u32::MAX;

/// One field: what it is and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// IANA's number for IPFIX, or a number of the enterprise's own.
    pub(super) element: u16,
    /// The private enterprise number, 0 for IANA's elements.
    pub(super) enterprise: u32,
    /// Bytes, or [`VARIABLE`].
    pub(super) length: u16,
}

/// The content of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    /// Does it describe options, which are about the exporter rather than about traffic?
    pub(super) is_options: bool,
    /// The fields in their order, scope first.
    pub(super) fields: Vec<Field>,
}

/// One entry of a set of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A template.
    Template(u16, Definition),
    /// A template with more fields than the limit.
    TooManyFields(u16),
    /// This template is withdrawn.
    Withdrawn(u16),
    /// All templates of this kind are withdrawn.
    AllWithdrawn,
}

/// The entries of a set of templates. After the last one, or when no more can be read,
/// [`Entries::left`] returns what is left over.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    dialect: Dialect,
    is_options: bool,
    fields_max: usize,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    pub(super) fn new(
        dialect: Dialect,
        is_options: bool,
        fields_max: usize,
        body: &'a [u8],
    ) -> Entries<'a> {
        Entries { dialect, is_options, fields_max, rest: body }
    }

    /// Bytes that do not belong to an entry.
    pub(super) fn left(&self) -> &'a [u8] {
        self.rest
    }

    /// The entry at the beginning of what is left, and its length.
    fn read(&self) -> Option<(Entry, usize)> {
        let rest = self.rest;
        let id = rest.get(..2).map(|id| be16(id, 0))?;
        let count = rest.get(2..4).map(|count| usize::from(be16(count, 0)))?;
        if self.dialect == Dialect::Ipfix && count == 0 {
            return self.withdrawal(id).map(|entry| (entry, 4));
        }
        if id < 256 {
            return None;
        }
        let (scopes, fields, head_bytes) = match (self.is_options, self.dialect) {
            (false, _) => (0, count, 4),
            (true, Dialect::Ipfix) => {
                let scopes = rest.get(4..6).map(|scopes| usize::from(be16(scopes, 0)))?;
                (scopes, count, 6)
            }
            (true, Dialect::NetFlow9) => {
                let options = rest.get(4..6).map(|options| usize::from(be16(options, 0)))?;
                if count % 4 != 0 || options % 4 != 0 {
                    return None;
                }
                (count / 4, (count + options) / 4, 6)
            }
        };
        // A template without fields describes nothing.
        if fields == 0 || scopes > fields {
            return None;
        }
        let mut definition = Definition { is_options: self.is_options, fields: Vec::new() };
        let mut at = head_bytes;
        for index in 0..fields {
            let (field, bytes) = self.field(rest.get(at..)?, index < scopes)?;
            at += bytes;
            if index < self.fields_max {
                definition.fields.push(field);
            }
        }
        let entry = match fields <= self.fields_max {
            true => Entry::Template(id, definition),
            false => Entry::TooManyFields(id),
        };
        Some((entry, at))
    }

    fn withdrawal(&self, id: u16) -> Option<Entry> {
        match (id, self.is_options) {
            (256.., _) => Some(Entry::Withdrawn(id)),
            (2, false) | (3, true) => Some(Entry::AllWithdrawn),
            _ => None,
        }
    }

    fn field(&self, bytes: &[u8], is_scope: bool) -> Option<(Field, usize)> {
        let head = bytes.get(..4)?;
        let (number, length) = (be16(head, 0), be16(head, 2));
        match self.dialect {
            Dialect::Ipfix if number & 0x8000 != 0 => {
                let enterprise = bytes.get(4..8).map(|number| be32(number, 0))?;
                Some((Field { element: number & 0x7fff, enterprise, length }, 8))
            }
            Dialect::NetFlow9 if is_scope && number <= 5 => {
                Some((Field { element: number, enterprise: SCOPE_OF_NETFLOW9, length }, 4))
            }
            _ => Some((Field { element: number, enterprise: 0, length }, 4)),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let (entry, bytes) = self.read()?;
        self.rest = &self.rest[bytes..];
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, is_options: bool, words: &[u16]) -> (Vec<Entry>, usize) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut entries = Entries::new(dialect, is_options, 3, &body);
        let found = entries.by_ref().collect();
        (found, entries.left().len())
    }

    fn template(id: u16, is_options: bool, fields: &[(u16, u32, u16)]) -> Entry {
        let field = |&(element, enterprise, length): &(u16, u32, u16)| Field {
            element,
            enterprise,
            length,
        };
        let fields = fields.iter().map(field).collect();
        Entry::Template(id, Definition { is_options, fields })
    }

    #[test]
    fn fields_have_their_enterprise_and_their_number_is_limited() {
        for dialect in [Dialect::NetFlow9, Dialect::Ipfix] {
            let two = template(256, false, &[(8, 0, 4), (2, 0, VARIABLE)]);
            let three = [257, 3, 1, 1, 2, 2, 3, 3];
            let words = [&[256, 2, 8, 4, 2, 65_535][..], &three].concat();
            let third = template(257, false, &[(1, 0, 1), (2, 0, 2), (3, 0, 3)]);
            assert_eq!(read(dialect, false, &words), ([two, third].into(), 0));
            let four = [258, 4, 1, 1, 2, 2, 3, 3, 4, 4];
            assert_eq!(read(dialect, false, &four), ([Entry::TooManyFields(258)].into(), 0));
            // Numbers below 256 are sets of their own, and what is cut is no template.
            assert_eq!(read(dialect, false, &[255, 1, 8, 4]), (Vec::new(), 8));
            assert_eq!(read(dialect, false, &[256, 2, 8, 4, 2]), (Vec::new(), 10));
        }
        let marked = [256, 1, 0x8005, 2, 0, 29_305];
        let of_enterprise = template(256, false, &[(5, 29_305, 2)]);
        assert_eq!(read(Dialect::Ipfix, false, &marked), ([of_enterprise].into(), 0));
        let as_it_is = template(256, false, &[(0x8005, 0, 2)]);
        assert_eq!(read(Dialect::NetFlow9, false, &marked), ([as_it_is].into(), 4));
    }

    /// Version 9 counts them in bytes and has kinds of scope of its own, up to 5; IPFIX counts fields.
    #[test]
    fn scopes_are_counted_as_each_dialect_does() {
        let nine = |words: &[u16]| read(Dialect::NetFlow9, true, words);
        for (kind, enterprise) in [(1, SCOPE_OF_NETFLOW9), (5, SCOPE_OF_NETFLOW9), (6, 0)] {
            let both = template(300, true, &[(kind, enterprise, 2), (1, 0, 4)]);
            assert_eq!(nine(&[300, 4, 4, kind, 2, 1, 4]), ([both].into(), 0));
        }
        let scope = |at: u16| (at, SCOPE_OF_NETFLOW9, at);
        let all = template(300, true, &[scope(1), scope(2), scope(3)]);
        assert_eq!(nine(&[300, 12, 0, 1, 1, 2, 2, 3, 3]), ([all].into(), 0));
        let one = template(300, true, &[scope(1), (2, 0, 2), (3, 0, 3)]);
        assert_eq!(nine(&[300, 4, 8, 1, 1, 2, 2, 3, 3]), ([one].into(), 0));
        let none = template(300, true, &[(1, 0, 1)]);
        assert_eq!(nine(&[300, 0, 4, 1, 1]), ([none].into(), 0));
        for odd in [[300, 3, 4, 1, 1, 2, 2], [300, 4, 5, 1, 1, 2, 2], [300, 0, 0, 1, 1, 2, 2]] {
            assert_eq!(nine(&odd), (Vec::new(), 14));
        }
        let ten = |words: &[u16]| read(Dialect::Ipfix, true, words);
        let both = template(300, true, &[(1, 0, 2), (2, 0, 4)]);
        assert_eq!(ten(&[300, 2, 1, 1, 2, 2, 4]), ([both.clone()].into(), 0));
        assert_eq!(ten(&[300, 2, 2, 1, 2, 2, 4]), ([both].into(), 0));
        assert_eq!(ten(&[300, 2, 3, 1, 2, 2, 4]), (Vec::new(), 14), "more scopes than fields");
    }

    #[test]
    fn ipfix_alone_withdraws_templates() {
        for (id, is_options, entry) in [
            (256, false, Some(Entry::Withdrawn(256))),
            (65_535, true, Some(Entry::Withdrawn(65_535))),
            (2, false, Some(Entry::AllWithdrawn)),
            (3, true, Some(Entry::AllWithdrawn)),
            (2, true, None),
            (3, false, None),
            (255, false, None),
        ] {
            let left = if entry.is_some() { 0 } else { 4 };
            let found = (entry.into_iter().collect(), left);
            assert_eq!(read(Dialect::Ipfix, is_options, &[id, 0]), found, "{id}");
            assert_eq!(read(Dialect::NetFlow9, is_options, &[id, 0]), (Vec::new(), 4));
        }
    }
}
