//! ERROR_SPEC: why a message was refused, where, and what was confirmed (RFC 2205, A.5 and appendix B).

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::message::bytes::{Contents, c_type_of, put_address, put_object};
use crate::message::class;
use crate::message::malformed::Malformed;

const IN_PLACE: u8 = 0x01;
const NOT_GUILTY: u8 = 0x02;

/// An error code with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode {
    /// The error code of RFC 2205, appendix B.
    pub code: u8,
    /// The error value, whose meaning depends on the code.
    pub value: u16,
}

impl ErrorCode {
    /// Confirmation, in a ResvConf.
    pub const CONFIRMATION: ErrorCode = ErrorCode { code: 0, value: 0 };
    /// Admission Control failure: the requested bandwidth is unavailable.
    pub const BANDWIDTH_UNAVAILABLE: ErrorCode = ErrorCode { code: 1, value: 2 };
    /// No path information for this Resv message.
    pub const NO_PATH: ErrorCode = ErrorCode { code: 3, value: 0 };
    /// No sender information for this Resv message.
    pub const NO_SENDER: ErrorCode = ErrorCode { code: 4, value: 0 };
    /// Conflicting reservation style.
    pub const CONFLICTING_STYLE: ErrorCode = ErrorCode { code: 5, value: 0 };
    /// RSVP System error: a limit of this router is reached.
    pub const SYSTEM_LIMIT: ErrorCode = ErrorCode { code: 23, value: 0 };
    /// Routing Problem: bad EXPLICIT_ROUTE object (RFC 3209, 7.3).
    pub const BAD_EXPLICIT_ROUTE: ErrorCode = ErrorCode { code: 24, value: 1 };
    /// Routing Problem: bad strict node.
    pub const BAD_STRICT_NODE: ErrorCode = ErrorCode { code: 24, value: 2 };
    /// Routing Problem: bad loose node.
    pub const BAD_LOOSE_NODE: ErrorCode = ErrorCode { code: 24, value: 3 };
    /// Routing Problem: bad initial subobject.
    pub const BAD_INITIAL_SUBOBJECT: ErrorCode = ErrorCode { code: 24, value: 4 };
    /// Routing Problem: no route available toward the destination.
    pub const NO_ROUTE: ErrorCode = ErrorCode { code: 24, value: 5 };

    /// Whether it is an Admission Control failure of any kind.
    pub fn is_admission_failure(self) -> bool {
        self.code == 1
    }
}

impl core::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = match self.code {
            0 => "confirmation",
            1 => "admission control failure",
            2 => "policy control failure",
            3 => "no path information",
            4 => "no sender information",
            5 => "conflicting reservation style",
            6 => "unknown reservation style",
            7 => "conflicting destination ports",
            8 => "conflicting sender ports",
            12 => "service preempted",
            13 => "unknown object class",
            14 => "unknown C-Type",
            21 => "traffic control error",
            22 => "traffic control system error",
            23 => "RSVP system error",
            24 => "routing problem",
            _ => "unknown error code",
        };
        write!(f, "{name} ({}, {})", self.code, self.value)
    }
}

/// ERROR_SPEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSpec {
    /// The node that found the error.
    pub node: IpAddr,
    /// InPlace: an older reservation is still there.
    pub is_in_place: bool,
    /// NotGuilty: the flowspec that failed was larger than that of the receiver of this message.
    pub is_not_guilty: bool,
    /// What it is.
    pub error: ErrorCode,
}

impl ErrorSpec {
    /// An error at `node`, without flags.
    pub fn new(node: IpAddr, error: ErrorCode) -> ErrorSpec {
        ErrorSpec { node, is_in_place: false, is_not_guilty: false, error }
    }

    pub(crate) fn read(mut contents: Contents<'_>) -> Result<ErrorSpec, Malformed> {
        let node = contents.address(contents.is_v6()?)?;
        let [flags, code] = contents.take()?;
        let value = contents.half()?;
        contents.end()?;
        let is_in_place = flags & IN_PLACE != 0;
        let is_not_guilty = flags & NOT_GUILTY != 0;
        Ok(ErrorSpec { node, is_in_place, is_not_guilty, error: ErrorCode { code, value } })
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let in_place = if self.is_in_place { IN_PLACE } else { 0 };
        let not_guilty = if self.is_not_guilty { NOT_GUILTY } else { 0 };
        put_object(to, class::ERROR_SPEC, c_type_of(self.node), |to| {
            put_address(to, self.node);
            to.extend([in_place | not_guilty, self.error.code]);
            to.extend(self.error.value.to_be_bytes());
        });
    }
}
