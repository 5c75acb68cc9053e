//! Senders: the source of the video, and the sources of cross traffic.

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use nilometer_router::multicast::Protocol;
use nilometer_stat::Rng;
use nilometer_wire::memory::{Memory, Place};
use nilometer_wire::{Node, Port, Rate, Span, Time, build};

use super::VideoPlan;
use super::clip::{Clip, HEADERS_BYTES};
use super::layers::layer_of;

/// From a packet of a frame to the next at least.
const PACKET_GAP: Span = Span::from_nanos(100_000);
/// Bytes of cross traffic in a packet.
const CROSS_BYTES: usize = 1_000;
/// The purpose of the random stream of its gaps.
const GAPS: u32 = 0x6372_6f73;
const MAC_SOURCE: [u8; 6] = [2, 0, 0, 1, 0, 1];

/// Puts an IP packet into the memory as a frame.
pub(super) fn framed<M: Memory>(packet: &[u8], to: [u8; 6], memory: &mut M) -> Option<Place> {
    let mut frame = build::ethernet(packet);
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&MAC_SOURCE);
    let place = memory.take(frame.len() as u16)?;
    memory.frame_mut(place).copy_from_slice(&frame);
    Some(place)
}

/// Packets of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) packets: u64,
    /// For which the memory had no room.
    pub(super) no_room: u64,
}

/// The source of the video: the packets of a frame at its time, to one group or each to that of its layer.
pub(super) struct VideoSource<'a> {
    clip: &'a Clip,
    from: SocketAddrV4,
    /// One for all, or one for each layer, whose packets are then numbered behind their end.
    groups: Vec<SocketAddrV4>,
    numbers: Vec<u32>,
    begins: Time,
    frames: u32,
    /// Over how much of its time the packets of a frame are sent.
    spread: Span,
    next_frame: u32,
    waiting: VecDeque<(usize, Vec<u8>)>,
    next_packet: Time,
    gap: Span,
    is_due: bool,
    pub(super) sent: Sent,
}

impl<'a> VideoSource<'a> {
    pub(super) fn new(
        clip: &'a Clip,
        (from, groups): (SocketAddrV4, &[SocketAddrV4]),
        (begins, plan): (Time, &VideoPlan),
    ) -> VideoSource<'a> {
        VideoSource {
            clip,
            from,
            groups: groups.to_vec(),
            numbers: vec![0; groups.len()],
            begins,
            frames: plan.frames,
            spread: Span::from_secs_f64(clip.frame_time().as_secs_f64() * plan.pacing),
            next_frame: 0,
            waiting: VecDeque::new(),
            next_packet: Time::ZERO,
            gap: PACKET_GAP,
            is_due: false,
            sent: Sent::default(),
        }
    }

    fn frame_due(&self) -> Option<Time> {
        let at = self.begins + self.clip.frame_time() * u64::from(self.next_frame);
        (self.next_frame < self.frames).then_some(at)
    }

    /// A packet's payload on the wire: the packet alone, or with its number in its layer.
    fn payload(&mut self, layer: usize, mut packet: Vec<u8>) -> Vec<u8> {
        if self.groups.len() > 1 {
            packet.extend(self.numbers[layer].to_be_bytes());
            self.numbers[layer] += 1;
        }
        packet
    }
}

impl<M: Memory> Node<Place, M> for VideoSource<'_> {
    fn receive(&mut self, _: Time, _: Port, frame: &Place, memory: &mut M) {
        memory.give(*frame); // What routers ask of all hosts.
    }

    fn handle_timeout(&mut self, now: Time, _: &mut M) {
        while let Some(due) = self.frame_due().filter(|due| *due <= now) {
            let layered = self.groups.len() > 1;
            let packets = self
                .clip
                .packets(self.next_frame)
                .map(|(label, packet)| (if layered { layer_of(label.subband) } else { 0 }, packet));
            self.waiting.extend(packets);
            self.gap = (self.spread / (self.waiting.len().max(1) as u64)).max(PACKET_GAP);
            self.next_packet = self.next_packet.max(due);
            self.next_frame += 1;
        }
        self.is_due = !self.waiting.is_empty() && self.next_packet <= now;
    }

    fn poll_transmit(&mut self, _: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let (layer, packet) = self.waiting.pop_front()?;
        // (By the real clock late packets are made up for.)
        self.next_packet += self.gap;
        let payload = self.payload(layer, packet);
        let to = self.groups[layer];
        let packet = build::udp(self.from.into(), to.into(), &payload);
        self.sent.packets += 1;
        let Some(place) = framed(&packet, u32::from(*to.ip()).group_mac(), memory) else {
            self.sent.no_room += 1;
            return None;
        };
        *frame = place;
        Some(Port(0))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let packet = (!self.waiting.is_empty()).then_some(self.next_packet);
        self.frame_due().into_iter().chain(packet).min()
    }
}

/// A stream of cross traffic.
#[derive(Clone, Debug)]
struct Stream {
    from: SocketAddrV4,
    due: Time,
    rng: Rng,
}

/// Streams of cross traffic to one receiver, each as fast as its link while the burst lasts.
pub(super) struct CrossSource {
    streams: Vec<Stream>,
    to: SocketAddrV4,
    router: [u8; 6],
    until: Time,
    gap: Span,
    /// Streams whose packet is due.
    ready: VecDeque<usize>,
    pub(super) sent: Sent,
}

impl CrossSource {
    pub(super) fn new(
        (from, to): (&[SocketAddrV4], SocketAddrV4),
        (router, link): ([u8; 6], Rate),
        (begins, until): (Time, Time),
        seed: u64,
    ) -> CrossSource {
        let streams = from.iter().enumerate().map(|(number, from)| Stream {
            from: *from,
            due: begins,
            rng: Rng::new(seed, GAPS, number as u64 + u64::from(to.ip().octets()[2]) * 256),
        });
        CrossSource {
            streams: streams.collect(),
            to,
            router,
            until,
            gap: link.span_of((CROSS_BYTES + HEADERS_BYTES) as u64),
            ready: VecDeque::new(),
            sent: Sent::default(),
        }
    }
}

impl<M: Memory> Node<Place, M> for CrossSource {
    fn receive(&mut self, _: Time, _: Port, frame: &Place, memory: &mut M) {
        memory.give(*frame);
    }

    fn handle_timeout(&mut self, now: Time, _: &mut M) {
        for (number, stream) in self.streams.iter_mut().enumerate() {
            if stream.due <= now && stream.due < self.until {
                self.ready.push_back(number);
                // From half of the gap to half as much again.
                let share = 0.5 + stream.rng.unit();
                stream.due += Span::from_secs_f64(self.gap.as_secs_f64() * share);
            }
        }
    }

    fn poll_transmit(&mut self, _: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        let stream = &self.streams[self.ready.pop_front()?];
        let packet = build::udp(stream.from.into(), self.to.into(), &[0; CROSS_BYTES]);
        self.sent.packets += 1;
        let Some(place) = framed(&packet, self.router, memory) else {
            self.sent.no_room += 1;
            return None;
        };
        *frame = place;
        Some(Port(0))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.streams.iter().map(|stream| stream.due).filter(|due| *due < self.until).min()
    }
}
