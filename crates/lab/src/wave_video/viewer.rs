//! A receiver of the video: it joins groups by IGMP, rebuilds the clip from the packets that
//! arrive, and compares it with the original.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use nilometer_router::header::{AnyKey, ETHERNET_BYTES, Header, protocol};
use nilometer_video::{Counts, Coverage, Distortion, Frame, Levels, PacketError, Receiver};
use nilometer_wire::checksum::internet_checksum;
use nilometer_wire::memory::{Memory, Place};
use nilometer_wire::{Node, Port, Time};

use super::clip::Clip;
use super::layered::LayeredReceiver;
use super::layers::VIDEO_PORT;
use super::sources::framed;

/// IGMPv3: a query, a report, and the kinds of its records (RFC 3376, 4).
const QUERY: u8 = 0x11;
const REPORT: u8 = 0x22;
const IS_EXCLUDE: u8 = 2;
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;
/// All routers that speak IGMPv3, 224.0.0.22, and its link-layer address.
const ROUTERS: [u8; 4] = [224, 0, 0, 22];
const ROUTERS_MAC: [u8; 6] = [1, 0, 0x5e, 0, 0, 22];
const UDP_BYTES: usize = 8;
/// Bytes of the number behind a layered packet.
const NUMBER_BYTES: usize = 4;

/// A frame as it was shown.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameSeen {
    /// PSNR of its luma in dB; nothing where it is the original.
    pub psnr_db: Option<f64>,
    /// Which of its sub-bands complete.
    pub whole: Vec<bool>,
}

impl FrameSeen {
    /// Whether the lowest sub-bands came, and none above one that did not.
    pub fn is_undisturbed(&self) -> bool {
        let first_missing = self.whole.iter().position(|whole| !whole);
        first_missing
            .is_none_or(|first| first >= 3 && self.whole[first..].iter().all(|whole| !whole))
    }
}

/// A receiver, D1 to D3.
pub(super) struct Viewer<'a> {
    clip: &'a Clip,
    own: Ipv4Addr,
    groups: Vec<SocketAddrV4>,
    receiver: Receiver,
    /// Of layered multicast.
    layered: Option<LayeredReceiver>,
    /// Layers that are joined as the router knows it.
    joined: usize,
    /// The frame that is kept as a picture.
    pictured: u32,
    pub(super) frames: Vec<FrameSeen>,
    pub(super) picture: Option<Frame>,
    /// When the number of layers changed, and to what.
    pub(super) subscriptions: Vec<(Time, usize)>,
    pub(super) video_packets: u64,
    /// Bytes of the video by arrival time, to compare with a share.
    pub(super) video_bytes: Vec<(Time, u32)>,
    pub(super) cross_packets: u64,
    reports: VecDeque<Vec<u8>>,
    has_begun: bool,
    pub(super) no_room: u64,
}

impl<'a> Viewer<'a> {
    pub(super) fn new(
        clip: &'a Clip,
        (own, groups): (Ipv4Addr, &[SocketAddrV4]),
        layered: Option<LayeredReceiver>,
        pictured: u32,
    ) -> Viewer<'a> {
        Viewer {
            receiver: Receiver::new(clip.size(), Levels::PAPER, Levels::PAPER.subbands()),
            clip,
            own,
            groups: groups.to_vec(),
            layered,
            joined: 0,
            pictured,
            frames: Vec::new(),
            picture: None,
            subscriptions: Vec::new(),
            video_packets: 0,
            video_bytes: Vec::new(),
            cross_packets: 0,
            reports: VecDeque::new(),
            has_begun: false,
            no_room: 0,
        }
    }

    /// Ends reception; the counts are of the first `frames` frames.
    ///
    /// # Errors
    /// Where nothing arrived of too many frames in a row.
    pub(super) fn finish(&mut self, frames: u32) -> Result<Counts, PacketError> {
        let empty = Receiver::new(self.clip.size(), Levels::PAPER, 1);
        let receiver = std::mem::replace(&mut self.receiver, empty);
        let (clip, pictured) = (self.clip, self.pictured);
        let mut show = shown(clip, pictured, &mut self.frames, &mut self.picture);
        receiver.finish(frames, &mut show)
    }

    /// A datagram of the video, sent to a group.
    fn take_video(&mut self, now: Time, group: u32, payload: &[u8]) {
        let mut packet = payload;
        if let Some(layered) = &mut self.layered {
            let layer = self.groups.iter().position(|it| u32::from(*it.ip()) == group);
            let (Some(layer), Some((of_video, number))) =
                (layer, payload.split_last_chunk::<NUMBER_BYTES>())
            else {
                return;
            };
            layered.receive(now, layer, u32::from_be_bytes(*number));
            if layer >= layered.subscribed() {
                return;
            }
            packet = of_video;
        }
        self.video_packets += 1;
        self.video_bytes.push((now, payload.len() as u32));
        let (clip, pictured) = (self.clip, self.pictured);
        let mut show = shown(clip, pictured, &mut self.frames, &mut self.picture);
        // (What became of each packet, the receiver counts.)
        let _ = self.receiver.receive(packet, &mut show);
    }

    /// Joins and leaves groups as the subscription changed.
    fn follow_subscription(&mut self, now: Time) {
        let wanted = self.layered.as_ref().map_or(self.groups.len(), LayeredReceiver::subscribed);
        let group = |layer: usize| u32::from(*self.groups[layer].ip());
        let joins = (self.joined..wanted).map(|layer| (TO_EXCLUDE, group(layer)));
        let leaves = (wanted..self.joined).map(|layer| (TO_INCLUDE, group(layer)));
        let records: Vec<(u8, u32)> = joins.chain(leaves).collect();
        if !records.is_empty() {
            self.reports.push_back(report(self.own, &records));
            self.joined = wanted;
            self.subscriptions.push((now, wanted));
        }
    }

    /// Reports the joined groups, in answer to a router's query.
    fn answer(&mut self) {
        let joined = self.groups[..self.joined].iter();
        let records: Vec<_> = joined.map(|group| (IS_EXCLUDE, u32::from(*group.ip()))).collect();
        if !records.is_empty() {
            self.reports.push_back(report(self.own, &records));
        }
    }
}

/// Compares frames with the original, and keeps one of them.
fn shown<'a>(
    clip: &'a Clip,
    pictured: u32,
    frames: &'a mut Vec<FrameSeen>,
    picture: &'a mut Option<Frame>,
) -> impl FnMut(&Frame, &[Coverage]) + 'a {
    move |frame, coverage| {
        let number = frames.len() as u32;
        if number == pictured {
            *picture = Some(frame.clone());
        }
        frames.push(FrameSeen {
            psnr_db: Distortion::luma(clip.frame(number), frame).psnr_db(),
            whole: coverage.iter().map(|it| *it == Coverage::Whole).collect(),
        });
    }
}

/// An IGMPv3 report with a record, without sources, for each group: an IPv4 packet with a router alert.
fn report(own: Ipv4Addr, records: &[(u8, u32)]) -> Vec<u8> {
    let mut igmp = vec![REPORT, 0, 0, 0, 0, 0];
    igmp.extend((records.len() as u16).to_be_bytes());
    for (kind, group) in records {
        igmp.extend([*kind, 0, 0, 0]);
        igmp.extend(group.to_be_bytes());
    }
    let sum = internet_checksum(&[&igmp]);
    igmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x46, 0xc0];
    packet.extend(((24 + igmp.len()) as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 1, protocol::IGMP, 0, 0]);
    packet.extend(own.octets());
    packet.extend(ROUTERS);
    packet.extend([0x94, 4, 0, 0]);
    let sum = internet_checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(igmp);
    packet
}

impl<M: Memory> Node<Place, M> for Viewer<'_> {
    fn receive(&mut self, now: Time, _: Port, frame: &Place, memory: &mut M) {
        let bytes = memory.frame(*frame).to_vec();
        memory.give(*frame);
        let Ok(header) = Header::read(&bytes) else { return };
        let AnyKey::V4(key) = header.key else { return };
        let end = ETHERNET_BYTES + usize::from(header.ip_bytes);
        let transport = ETHERNET_BYTES + usize::from(header.transport_at);
        let Some(transport) = bytes.get(transport..end) else { return };
        match (key.protocol, key.destination_port) {
            (protocol::UDP, VIDEO_PORT) => {
                self.take_video(now, key.destination, transport.get(UDP_BYTES..).unwrap_or(&[]));
            }
            (protocol::UDP, _) => self.cross_packets += 1,
            (protocol::IGMP, _) if transport.first() == Some(&QUERY) => self.answer(),
            _ => {}
        }
        self.follow_subscription(now);
    }

    fn handle_timeout(&mut self, now: Time, _: &mut M) {
        self.has_begun = true;
        if let Some(layered) = &mut self.layered {
            layered.handle_timeout(now);
        }
        self.follow_subscription(now);
    }

    fn poll_transmit(&mut self, _: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        let packet = self.reports.pop_front()?;
        let Some(place) = framed(&packet, ROUTERS_MAC, memory) else {
            self.no_room += 1;
            return None;
        };
        *frame = place;
        Some(Port(0))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let begins = (!self.has_begun).then_some(Time::ZERO);
        let layered = self.layered.as_ref().and_then(LayeredReceiver::poll_timeout);
        begins.into_iter().chain(layered).min()
    }
}
