//! Neighbour discovery on a port: resolves neighbours, answers, and advertises the router if configured to.
//!
//! The port's own addresses are tested for duplicates before they are used (RFC 4862, 5.4) and answered for
//! with the router and override flags set (RFC 4861, 7.2.4), to the soliciting node or, on
//! [`Discovery::announce`], to all. Router advertisements are off until [`Discovery::advertise`]; from
//! those of others only the link-layer address is learnt, since a router's own settings do not come from
//! its neighbours (6.2.7). Redirects are not followed (8.1) and not sent.

use alloc::collections::VecDeque;

use nilometer_wire::Time;

use super::advertising::{Advertiser, Advertising, AdvertisingError};
use super::discovery::{ALL_NODES, Envelope, Malformed, Message, group_mac, solicited_node};
use super::duplicate::{Candidates, DetectionOutcome, Step};
use super::ledger::Ignored;
use super::own::{Own, OwnError};
use super::settings::{Settings, SettingsError};
use super::states::Answer;
use super::table::{Solicit, Table};
use super::{Family, Mac};

/// Most answers that wait to be sent.
const ANSWERS_MAX: usize = 64;

/// A port's neighbours in IPv6, and its neighbour discovery state machine.
#[derive(Debug)]
pub struct Discovery<B> {
    /// The neighbours.
    pub table: Table<u128, B>,
    answers: VecDeque<(Envelope, Message)>,
    candidates: Candidates,
    probes: u8,
    advertiser: Option<Advertiser>,
    seed: u64,
}

impl<B: Copy> Discovery<B> {
    /// A port without neighbours. Addresses added later are probed `probes` times before they are used
    /// (DupAddrDetectTransmits; the RFC's default is 1, 0 takes them at once); those in `own` are used at
    /// once.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(settings: Settings, own: Own<u128>, probes: u8) -> Result<Self, SettingsError> {
        Ok(Discovery {
            table: Table::new(settings, own)?,
            answers: VecDeque::new(),
            candidates: Candidates::default(),
            probes,
            advertiser: None,
            seed: settings.seed,
        })
    }

    /// Gives the port an address, with a prefix of `length` bits around it on the link, once no node
    /// has objected; [`Discovery::poll_verdict`] gives the result.
    ///
    /// # Errors
    /// [`OwnError`], and nothing has changed.
    pub fn add_address(&mut self, now: Time, address: u128, length: u32) -> Result<(), OwnError> {
        if self.probes == 0 || self.table.own.has(address) {
            self.table.add_address(address, length)?;
            self.table.own.want(address, length)?;
            self.candidates.say(address, true);
            return Ok(());
        }
        if !address.is_host() {
            return Err(OwnError::NotHost);
        }
        self.table.own.want(address, length)?;
        self.candidates.add(now, address, length, self.probes)
    }

    /// Takes an address from the port, or ends its trial; whether there was one.
    pub fn remove_address(&mut self, address: u128) -> bool {
        self.table.own.unwant(address);
        self.candidates.remove(address) | self.table.remove_address(address)
    }

    /// Restarts duplicate detection for an address, as when the link has been down; static neighbours
    /// stay.
    ///
    /// # Errors
    /// As of [`Discovery::add_address`].
    pub fn try_again(&mut self, now: Time, address: u128, length: u32) -> Result<(), OwnError> {
        if self.probes > 0 {
            self.candidates.remove(address);
            self.table.remove_address(address);
        }
        self.add_address(now, address, length)
    }

    /// Whether `address` is the port's or on trial to be.
    pub fn claims(&self, address: u128) -> bool {
        self.table.own.has(address) || self.candidates.has(address)
    }

    /// Sends all nodes an unsolicited advertisement of an address of ours (7.2.6), as when it has become ours.
    pub fn announce(&mut self, address: u128) {
        let mac = self.table.own.mac();
        let answer =
            Answer { mac: Some(mac), is_solicited: false, overrides: true, is_router: true };
        let envelope = Envelope {
            frame_to: group_mac(ALL_NODES),
            frame_from: mac,
            source: address,
            destination: ALL_NODES,
        };
        self.answer(envelope, Message::Advertisement { target: address, answer });
    }

    /// The next address whose duplicate detection has ended.
    pub fn poll_verdict(&mut self) -> Option<DetectionOutcome> {
        self.candidates.poll_verdict()
    }

    /// Advertises the router from now on, first at once.
    ///
    /// # Errors
    /// What is wrong, and nothing has changed.
    pub fn advertise(&mut self, now: Time, what: Advertising) -> Result<(), AdvertisingError> {
        what.check()?;
        self.link_local().ok_or(AdvertisingError::NoLinkLocal)?;
        self.advertiser = Some(Advertiser::new(now, what, self.seed));
        Ok(())
    }

    /// Stops advertising; a last advertisement with a lifetime of 0 announces it (6.2.5).
    pub fn cease(&mut self) {
        if let Some(mut advertiser) = self.advertiser.take() {
            advertiser.what.lifetime_s = 0;
            self.answer_advertisement(advertiser.what);
        }
    }

    fn link_local(&self) -> Option<u128> {
        let addresses = self.table.own.addresses().iter().map(|&(address, _)| address);
        addresses.into_iter().find(|address| address.is_link_local())
    }

    /// A frame with an ICMPv6 message of types 133 to 136 has arrived.
    pub fn receive(&mut self, now: Time, frame: &[u8]) {
        let (envelope, message) = match Message::read(frame) {
            Ok(read) => read,
            Err(Malformed::Kind) => return self.table.ledger.ignore(Ignored::NotOurs),
            Err(_) => return self.table.ledger.ignore(Ignored::Malformed),
        };
        if envelope.frame_from == self.table.own.mac() {
            return self.table.ledger.ignore(Ignored::Conflict);
        }
        match message {
            Message::Solicitation { target, mac } => self.solicited(now, &envelope, target, mac),
            Message::Advertisement { target, .. } if self.candidates.has(target) => {
                self.table.ledger.ignore(Ignored::Conflict);
                self.object(target);
            }
            Message::Advertisement { target, answer } => {
                // Refusals are counted by the table.
                let _ = self.table.answered(now, target, answer);
            }
            Message::RouterSolicitation { mac } => {
                self.learn_from(now, envelope.source, mac, false);
                match &mut self.advertiser {
                    Some(advertiser) => advertiser.solicit(now),
                    None => self.table.ledger.ignore(Ignored::NotOurs),
                }
            }
            Message::RouterAdvertisement(advertisement) => {
                self.learn_from(now, envelope.source, advertisement.mac, true);
            }
        }
    }

    /// Another has an address that is on trial here, or tries it, too.
    fn object(&mut self, address: u128) {
        self.candidates.object(address);
        self.table.own.lose(address);
    }

    fn learn_from(&mut self, now: Time, source: u128, mac: Option<Mac>, is_router: bool) {
        if let Some(mac) = mac
            && self.table.note_address(now, source, mac, true).is_ok()
        {
            self.table.note_router(source, is_router);
        }
    }

    /// A node solicits `target` (7.2.3; RFC 4862, 5.4.3).
    fn solicited(&mut self, now: Time, envelope: &Envelope, target: u128, mac: Option<Mac>) {
        if self.candidates.has(target) {
            if envelope.source == 0 {
                self.table.ledger.ignore(Ignored::Conflict);
                self.object(target);
            }
            return;
        }
        if !self.table.own.has(target) {
            return self.table.ledger.ignore(Ignored::NotOurs);
        }
        let is_trial = envelope.source == 0;
        if let Some(mac) = mac
            && let Err(why) = self.table.note_address(now, envelope.source, mac, true)
            && !matches!(why, Ignored::Locked | Ignored::TableFull)
        {
            return;
        }
        if !is_trial && mac.is_none() && self.table.own.check(envelope.source).is_err() {
            return self.table.ledger.ignore(Ignored::OffLink);
        }
        let to = if is_trial { ALL_NODES } else { envelope.source };
        let frame_to = match mac {
            _ if is_trial => group_mac(ALL_NODES),
            Some(mac) => mac,
            None => envelope.frame_from,
        };
        let own_mac = self.table.own.mac();
        let answer = Answer {
            mac: Some(own_mac),
            is_solicited: !is_trial,
            overrides: true,
            is_router: true,
        };
        let envelope = Envelope { frame_to, frame_from: own_mac, source: target, destination: to };
        self.answer(envelope, Message::Advertisement { target, answer });
    }

    fn answer(&mut self, envelope: Envelope, message: Message) {
        if self.answers.len() == ANSWERS_MAX {
            return self.table.ledger.ignore(Ignored::AnswersFull);
        }
        self.table.ledger.answers += 1;
        self.answers.push_back((envelope, message));
    }

    fn answer_advertisement(&mut self, what: Advertising) {
        let Some(source) = self.link_local() else { return };
        let mac = self.table.own.mac();
        let envelope = Envelope {
            frame_to: group_mac(ALL_NODES),
            frame_from: mac,
            source,
            destination: ALL_NODES,
        };
        self.answer(envelope, Message::RouterAdvertisement(what.message(mac)));
    }

    /// Writes the next frame to be sent and returns its length; to be called after every other call until
    /// there is none.
    ///
    /// # Panics
    /// If the buffer is shorter than [`super::FRAME_BYTES_MAX`].
    pub fn poll_transmit(&mut self, frame: &mut [u8]) -> Option<usize> {
        assert!(frame.len() >= super::FRAME_BYTES_MAX, "a buffer for any frame");
        if let Some((envelope, message)) = self.answers.pop_front() {
            return Some(message.write(&envelope, frame));
        }
        while let Some(Solicit { address, to }) = self.table.poll_solicit() {
            // Without an address of our own a solicitation would have no source to reply to.
            let Some(source) = self.table.own.source_for(address) else { continue };
            let destination = if to.is_some() { address } else { solicited_node(address) };
            let frame_to = to.unwrap_or(group_mac(destination));
            let mac = self.table.own.mac();
            let envelope = Envelope { frame_to, frame_from: mac, source, destination };
            let message = Message::Solicitation { target: address, mac: Some(mac) };
            return Some(message.write(&envelope, frame));
        }
        None
    }

    /// The moment of [`Discovery::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.table.handle_timeout(now);
        while let Some(step) = self.candidates.step(now, self.table.settings.retransmit) {
            match step {
                Step::Probe(target) => self.probe(target),
                Step::Take(address, length) => {
                    let is_ours = self.table.add_address(address, length).is_ok();
                    self.candidates.say(address, is_ours);
                }
            }
        }
        if let Some(advertiser) = &mut self.advertiser
            && advertiser.is_due(now)
        {
            let what = advertiser.what;
            self.answer_advertisement(what);
        }
    }

    /// Solicits an address on trial, from the unspecified address (RFC 4862, 5.4.2).
    fn probe(&mut self, target: u128) {
        let destination = solicited_node(target);
        let frame_from = self.table.own.mac();
        let frame_to = group_mac(destination);
        let envelope = Envelope { frame_to, frame_from, source: 0, destination };
        self.answer(envelope, Message::Solicitation { target, mac: None });
    }

    /// When [`Discovery::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let advertiser = self.advertiser.as_ref().map(Advertiser::poll_timeout);
        let moments = [self.table.poll_timeout(), self.candidates.poll_timeout(), advertiser];
        moments.into_iter().flatten().min()
    }
}
