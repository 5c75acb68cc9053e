//! Malformed messages: what is wrong with received bytes, and at which offset.

use thiserror::Error;

/// What is wrong with a message; offsets are bytes from the beginning of the RSVP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Fewer bytes than a common header, or more than a message may have.
    #[error("{0} bytes are not an RSVP message")]
    Length(usize),
    /// A version other than 1.
    #[error("RSVP version {0} is not known here, only 1")]
    Version(u8),
    /// The length of the common header differs from the bytes that arrived.
    #[error("the common header claims {claimed} bytes, {arrived} arrived")]
    Claimed {
        /// RSVP Length.
        claimed: usize,
        /// What there is.
        arrived: usize,
    },
    /// The checksum is wrong.
    #[error("the RSVP checksum is wrong")]
    Checksum,
    /// A message type that is not known here.
    #[error("message type {0} is not known here")]
    Type(u8),
    /// A length of an object that is no multiple of 4, below 4, or beyond the message.
    #[error("the object at byte {at} claims {bytes} bytes")]
    ObjectLength {
        /// Where the object begins.
        at: usize,
        /// The length that it claims.
        bytes: usize,
    },
    /// An object whose contents are shorter or longer than its class permits.
    #[error("the object of class {class}, C-Type {c_type} at byte {at} has a wrong length")]
    ObjectContents {
        /// Where the object begins.
        at: usize,
        /// Its Class-Num.
        class: u8,
        /// Its C-Type.
        c_type: u8,
    },
    /// An object of an unknown class whose number requires that the message be rejected (RFC 2205, 3.10).
    #[error("the object class {class} (C-Type {c_type}) at byte {at} is not known here")]
    UnknownClass {
        /// Where the object begins.
        at: usize,
        /// Its Class-Num.
        class: u8,
        /// Its C-Type.
        c_type: u8,
    },
    /// A known class with a C-Type that is not known here.
    #[error("C-Type {c_type} of class {class} at byte {at} is not known here")]
    UnknownCType {
        /// Where the object begins.
        at: usize,
        /// Its Class-Num.
        class: u8,
        /// Its C-Type.
        c_type: u8,
    },
    /// A value that its object may not have.
    #[error("the object at byte {at}: {what}")]
    Value {
        /// Where the object begins.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// An object that the message type needs is missing.
    #[error("a message of type {message_type} lacks its {object}")]
    Missing {
        /// The message type.
        message_type: u8,
        /// Which object.
        object: &'static str,
    },
    /// An object where the message's order has no place for it.
    #[error("the {object} at byte {at} stands where the message has no place for it")]
    Misplaced {
        /// Where the object begins.
        at: usize,
        /// Which object.
        object: &'static str,
    },
    /// More objects, filters or hops than are read.
    #[error("more than {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Addresses of two IP versions in one message.
    #[error("the {object} at byte {at} is of another IP version than the session")]
    MixedVersions {
        /// Where the object begins.
        at: usize,
        /// Which object.
        object: &'static str,
    },
}

impl Malformed {
    /// The error code and value by which a PathErr or ResvErr reports it (RFC 2205, appendix B), where one does.
    pub fn report(&self) -> Option<(u8, u16)> {
        let value = |class: u8, c_type: u8| u16::from_be_bytes([class, c_type]);
        match *self {
            Malformed::UnknownClass { class, c_type, .. } => Some((13, value(class, c_type))),
            Malformed::UnknownCType { class, c_type, .. } => Some((14, value(class, c_type))),
            _ => None,
        }
    }
}
