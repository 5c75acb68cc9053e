//! When a router advertises itself, and with which contents (RFC 4861, 6.2).

use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use super::Mac;
use super::discovery::RouterAdvertisement;
use super::options::{OnLinkPrefix, PREFIXES_MAX};

/// The first advertisements follow sooner: at most this apart (MAX_INITIAL_RTR_ADVERT_INTERVAL).
const INITIAL_INTERVAL: Span = Span::from_secs(16);
/// How many they are (MAX_INITIAL_RTR_ADVERTISEMENTS).
const INITIAL: u8 = 3;
/// Between two advertisements to all (MIN_DELAY_BETWEEN_RAS).
const APART: Span = Span::from_secs(3);
/// An answer waits for up to this (MAX_RA_DELAY_TIME).
const ANSWER_DELAY: Span = Span::from_nanos(500_000_000);
/// The purpose of the random delays.
const PURPOSE: u32 = 0x7261;

/// What a router advertises of itself and its link (6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertising {
    /// Least time between unsolicited advertisements, from 3 s to 3/4 of `interval_max`.
    pub interval_min: Span,
    /// Most time between them, from 4 to 1,800 s.
    pub interval_max: Span,
    /// For how many seconds it is a default router: 0, or from `interval_max` to 9,000.
    pub lifetime_s: u16,
    /// The hop limit for hosts; 0 if unspecified.
    pub hop_limit: u8,
    /// M: addresses by DHCPv6.
    pub is_managed: bool,
    /// O: other settings by DHCPv6.
    pub is_other: bool,
    /// The link's MTU in bytes, if advertised.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: [Option<OnLinkPrefix>; PREFIXES_MAX],
}

/// What is wrong with the settings of advertisements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdvertisingError {
    /// `interval_min` or `interval_max` is out of range.
    #[error(
        "interval_max is not from 4 to 1,800 s, or interval_min not from 3 s to three quarters \
         of it"
    )]
    Interval,
    /// `lifetime_s` is out of range.
    #[error("lifetime_s is not 0 nor from interval_max to 9,000")]
    Lifetime,
    /// A prefix is longer than 128 bits, is link-local or is preferred for longer than it is valid.
    #[error("a prefix is too long, link-local or preferred too long")]
    Prefix,
    /// The port has no link-local address to advertise from (6.1.2).
    #[error("the port has no link-local address")]
    NoLinkLocal,
}

impl Default for Advertising {
    /// The defaults of 6.2.1, and no prefix.
    fn default() -> Advertising {
        Advertising {
            interval_min: Span::from_secs(200),
            interval_max: Span::from_secs(600),
            lifetime_s: 1_800,
            hop_limit: 64,
            is_managed: false,
            is_other: false,
            mtu: None,
            prefixes: [None; PREFIXES_MAX],
        }
    }
}

impl Advertising {
    /// Whether everything is in the ranges of 6.2.1.
    ///
    /// # Errors
    /// What is not.
    pub fn check(&self) -> Result<(), AdvertisingError> {
        let most = Span::from_secs(4)..=Span::from_secs(1_800);
        let least = Span::from_secs(3)..=self.interval_max * 3 / 4;
        if !most.contains(&self.interval_max) || !least.contains(&self.interval_min) {
            return Err(AdvertisingError::Interval);
        }
        let lifetime = Span::from_secs(u64::from(self.lifetime_s));
        let lifetimes = self.interval_max..=Span::from_secs(9_000);
        if self.lifetime_s != 0 && !lifetimes.contains(&lifetime) {
            return Err(AdvertisingError::Lifetime);
        }
        let is_sound = |prefix: &OnLinkPrefix| {
            let is_link_local = prefix.prefix >> 118 == 0xfe80 >> 6;
            prefix.length <= 128 && !is_link_local && prefix.preferred_s <= prefix.valid_s
        };
        let all_sound = self.prefixes.iter().flatten().all(is_sound);
        all_sound.then_some(()).ok_or(AdvertisingError::Prefix)
    }

    /// The message, from a router with this link-layer address.
    pub(super) fn message(&self, mac: Mac) -> RouterAdvertisement {
        RouterAdvertisement {
            hop_limit: self.hop_limit,
            is_managed: self.is_managed,
            is_other: self.is_other,
            lifetime_s: self.lifetime_s,
            reachable_ms: 0,
            retransmit_ms: 0,
            mac: Some(mac),
            mtu: self.mtu,
            prefixes: self.prefixes,
        }
    }
}

/// When the next advertisement is due.
#[derive(Debug)]
pub(super) struct Advertiser {
    pub(super) what: Advertising,
    rng: Rng,
    initial_left: u8,
    due: Time,
    last: Option<Time>,
}

impl Advertiser {
    /// The first is due now.
    pub(super) fn new(now: Time, what: Advertising, seed: u64) -> Advertiser {
        let rng = Rng::new(seed, PURPOSE, 0);
        Advertiser { what, rng, initial_left: INITIAL, due: now, last: None }
    }

    pub(super) fn poll_timeout(&self) -> Time {
        self.due
    }

    /// A host has solicited: advertise soon, but not within 3 s of the last (6.2.6).
    pub(super) fn solicit(&mut self, now: Time) {
        let soon = now + ANSWER_DELAY * self.rng.below(1 << 20) / (1 << 20);
        let allowed = self.last.map_or(soon, |last| soon.max(last + APART));
        self.due = self.due.min(allowed);
    }

    /// Whether one is to be sent now; then the next is drawn (6.2.4).
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        if now < self.due {
            return false;
        }
        self.last = Some(now);
        let range = (self.what.interval_max - self.what.interval_min).0;
        let mut interval = self.what.interval_min + Span(self.rng.below(range + 1));
        self.initial_left = self.initial_left.saturating_sub(1);
        if self.initial_left > 0 {
            interval = interval.min(INITIAL_INTERVAL);
        }
        self.due = now + interval;
        true
    }
}
