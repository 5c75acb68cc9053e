//! The ARP speaker of a port: resolves neighbours and answers for the port's own addresses.
//!
//! Received packets are handled by RFC 826: a host that requests one of our addresses becomes known; a
//! host that requests another's or announces itself only updates an existing entry (Linux's
//! `arp_accept = 0`), so that an unsolicited announcement cannot create an entry. A claim on an
//! address of ours is counted as a conflict and defended by one announcement in ten seconds (RFC 5227,
//! 2.4 b). Addresses outside the port's prefixes, group addresses and group link-layer addresses are
//! refused. The port may answer for configured prefixes of others (proxy ARP, RFC 1027); by default
//! for none.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use super::arp::{ArpOperation, ArpPacket};
use super::ledger::Ignored;
use super::own::{ADDRESSES_MAX, Own, OwnError};
use super::settings::{Settings, SettingsError};
use super::states::Answer;
use super::table::{Solicit, Table};
use super::{BROADCAST, Mac, is_unicast};
use crate::prefix::Prefix;

/// Most answers and announcements that wait to be sent.
const ANSWERS_MAX: usize = 64;
/// From one defence of an address to the next (RFC 5227, DEFEND_INTERVAL).
const DEFEND: Span = Span::from_secs(10);

/// A port's neighbours in IPv4, and its ARP state machine.
#[derive(Debug)]
pub struct Arp<B> {
    /// The neighbours.
    pub table: Table<u32, B>,
    answers: VecDeque<ArpPacket>,
    proxied: Vec<Prefix<u32>>,
    defended: Option<Time>,
}

impl<B: Copy> Arp<B> {
    /// A port without neighbours.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(settings: Settings, own: Own<u32>) -> Result<Arp<B>, SettingsError> {
        let table = Table::new(settings, own)?;
        Ok(Arp { table, answers: VecDeque::new(), proxied: Vec::new(), defended: None })
    }

    /// Answers for addresses of `prefix` on behalf of others (RFC 1027).
    ///
    /// # Errors
    /// [`OwnError::Full`] after 64.
    pub fn add_proxied(&mut self, prefix: Prefix<u32>) -> Result<(), OwnError> {
        if self.proxied.len() == ADDRESSES_MAX {
            return Err(OwnError::Full);
        }
        self.proxied.push(prefix);
        Ok(())
    }

    /// Announces an address of ours (RFC 5227, 2.3), as when the link comes up.
    pub fn announce(&mut self, address: u32) {
        let mac = self.table.own.mac();
        self.answer(ArpPacket {
            frame_to: BROADCAST,
            frame_from: mac,
            operation: ArpOperation::Request,
            sender_mac: mac,
            sender: address,
            target_mac: [0; 6],
            target: address,
        });
    }

    /// An ARP frame has arrived.
    pub fn receive(&mut self, now: Time, frame: &[u8]) {
        let Some(packet) = ArpPacket::read(frame) else {
            return self.table.ledger.ignore(Ignored::Malformed);
        };
        let own = &self.table.own;
        if packet.frame_to != own.mac() && packet.frame_to != BROADCAST {
            return self.table.ledger.ignore(Ignored::NotOurs);
        }
        let is_for_us = own.has(packet.target);
        // Refusals are counted by the table; only the sender's claim decides what follows.
        let is_believed = match (packet.sender, packet.operation) {
            (0, ArpOperation::Request) => self.is_other_station(packet.sender_mac),
            (_, ArpOperation::Request) => self
                .table
                .note_address(now, packet.sender, packet.sender_mac, is_for_us)
                .map_or_else(|why| self.is_answered_anyway(now, &packet, why), |()| true),
            (_, ArpOperation::Reply) => {
                let answer = Answer {
                    mac: Some(packet.sender_mac),
                    is_solicited: packet.frame_to == self.table.own.mac() && is_for_us,
                    overrides: true,
                    is_router: false,
                };
                if let Err(why) = self.table.answered(now, packet.sender, answer) {
                    self.is_answered_anyway(now, &packet, why);
                }
                return;
            }
        };
        let is_proxied = || self.proxied.iter().any(|prefix| prefix.contains(packet.target));
        if is_believed && (is_for_us || packet.sender != packet.target && is_proxied()) {
            self.reply(&packet);
        }
    }

    /// Whether a request is answered although its sender was not learnt; conflicts are defended.
    fn is_answered_anyway(&mut self, now: Time, packet: &ArpPacket, why: Ignored) -> bool {
        match why {
            Ignored::Conflict => {
                let is_due = self.defended.is_none_or(|last| now >= last + DEFEND);
                let is_claim = self.table.own.has(packet.sender);
                if is_due && is_claim && self.is_other_station(packet.sender_mac) {
                    self.defended = Some(now);
                    self.announce(packet.sender);
                }
                false
            }
            Ignored::Unknown | Ignored::Locked | Ignored::TableFull => true,
            _ => false,
        }
    }

    fn is_other_station(&self, mac: Mac) -> bool {
        is_unicast(mac) && mac != self.table.own.mac()
    }

    fn reply(&mut self, request: &ArpPacket) {
        let mac = self.table.own.mac();
        self.answer(ArpPacket {
            frame_to: request.sender_mac,
            frame_from: mac,
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender: request.target,
            target_mac: request.sender_mac,
            target: request.sender,
        });
    }

    fn answer(&mut self, packet: ArpPacket) {
        if self.answers.len() == ANSWERS_MAX {
            return self.table.ledger.ignore(Ignored::AnswersFull);
        }
        self.table.ledger.answers += 1;
        self.answers.push_back(packet);
    }

    /// Writes the next frame to be sent and returns its length; to be called after every other call
    /// until there is none.
    ///
    /// # Panics
    /// If the buffer is shorter than [`super::FRAME_BYTES_MAX`].
    pub fn poll_transmit(&mut self, frame: &mut [u8]) -> Option<usize> {
        assert!(frame.len() >= super::FRAME_BYTES_MAX, "a buffer for any frame");
        if let Some(packet) = self.answers.pop_front() {
            return Some(packet.write(frame));
        }
        while let Some(Solicit { address, to }) = self.table.poll_solicit() {
            // Without an address of our own a request would have no source to reply to.
            let Some(sender) = self.table.own.source_for(address) else { continue };
            let mac = self.table.own.mac();
            let request = ArpPacket {
                frame_to: to.unwrap_or(BROADCAST),
                frame_from: mac,
                operation: ArpOperation::Request,
                sender_mac: mac,
                sender,
                target_mac: [0; 6],
                target: address,
            };
            return Some(request.write(frame));
        }
        None
    }

    /// The moment of [`Arp::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.table.handle_timeout(now);
    }

    /// When [`Arp::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.table.poll_timeout()
    }
}
