//! Nagle's algorithm (RFC 896) and the application's control over small segments: hold or release.
//!
//! Nagle's algorithm (RFC 896) holds a small segment while anything is under way. Applications can
//! switch it off, or do the reverse: keep small segments back until they release them (`TCP_CORK`),
//! or until the next write or acknowledgement (`MSG_MORE`). Nothing is held for ever: if nothing is
//! under way the persist timer lets it go, as Linux does.

/// Why a small segment may have to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nagle {
    is_nagle: bool,
    is_corked: bool,
    /// Until the next write or acknowledgement.
    has_more: bool,
    /// What there is now goes.
    is_pushed: bool,
}

impl Nagle {
    pub const fn new(is_nagle: bool) -> Nagle {
        Nagle { is_nagle, is_corked: false, has_more: false, is_pushed: false }
    }

    /// Whether a small segment waits.
    #[inline]
    pub const fn keeps(&self, is_under_way: bool) -> bool {
        !self.is_pushed && (self.is_corked || self.has_more || (self.is_nagle && is_under_way))
    }

    pub const fn on_write(&mut self, has_more: bool) {
        self.has_more = has_more;
        self.is_pushed = false;
    }

    #[inline]
    pub const fn on_ack(&mut self) {
        self.has_more = false;
    }

    /// Whether small segments wait for acknowledgements. Switching it off releases what is held back.
    pub const fn set_nagle(&mut self, is_on: bool) {
        self.is_nagle = is_on;
        self.is_pushed |= !is_on;
    }

    /// Whether small segments wait until this is taken back.
    pub const fn set_cork(&mut self, is_on: bool) {
        self.is_corked = is_on;
        self.is_pushed |= !is_on;
    }
}
