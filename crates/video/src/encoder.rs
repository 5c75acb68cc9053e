//! The encoder: a frame into the packets of its sub-bands, from the lowest frequency to the highest.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use thiserror::Error;

use crate::entropy::{self, RUN_MAX};
use crate::frame::{Frame, FrameSize, PLANES};
use crate::packet::{LABEL_BYTES, Label, PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX, PACKET_BYTES_MIN};
use crate::subband::{Layout, Levels};
use crate::transform::Plane;

/// Taken off every sample before the transform, so that grey is zero.
pub(crate) const GREY: i32 = 128;
/// Limits of a packet that can be given.
pub const PACKET_BYTES: RangeInclusive<usize> = PACKET_BYTES_MIN..=PACKET_BYTES_MAX;

/// The settings of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderSettings {
    /// The size of all frames.
    pub size: FrameSize,
    /// How often they are split.
    pub levels: Levels,
    /// Bytes of a packet at most, with its label: the payload of a datagram.
    pub packet_bytes_max: usize,
}

/// Why there is no encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncoderError {
    /// Packets too small or too large.
    #[error("packets of {0} bytes: {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX} are possible")]
    PacketBytes(usize),
}

impl EncoderSettings {
    /// The paper's 33 sub-bands, in packets for Ethernet.
    pub fn new(size: FrameSize) -> EncoderSettings {
        EncoderSettings { size, levels: Levels::PAPER, packet_bytes_max: PACKET_BYTES_DEFAULT }
    }
}

/// Frames into packets.
#[derive(Clone, Debug)]
pub struct Encoder {
    layout: Layout,
    packet_bytes_max: usize,
    planes: [Plane; PLANES],
    run: Vec<i32>,
    frame: u32,
}

impl Encoder {
    /// An encoder whose first frame has the number 0.
    ///
    /// # Errors
    /// Where the size of packets is beyond its limits.
    pub fn new(settings: EncoderSettings) -> Result<Encoder, EncoderError> {
        let EncoderSettings { size, levels, packet_bytes_max } = settings;
        if !PACKET_BYTES.contains(&packet_bytes_max) {
            return Err(EncoderError::PacketBytes(packet_bytes_max));
        }
        Ok(Encoder {
            layout: Layout::new(size, levels),
            packet_bytes_max,
            planes: [0, 1, 2].map(|plane| Plane::new(size.plane(plane))),
            run: Vec::new(),
            frame: 0,
        })
    }

    /// Passes the packets of the next frame to `send`, each with its label.
    ///
    /// # Panics
    /// If the frame's size is not that of the settings.
    pub fn encode(&mut self, frame: &Frame, send: &mut dyn FnMut(Label, Vec<u8>)) {
        assert_eq!(frame.size(), self.layout.size(), "all frames have one size");
        for (number, plane) in self.planes.iter_mut().enumerate() {
            let samples = frame.plane(number).iter();
            for (value, sample) in plane.values_mut().iter_mut().zip(samples) {
                *value = i32::from(*sample) - GREY;
            }
            plane.forward(self.layout.levels().of_plane(number));
        }
        for subband in 0..self.layout.levels().subbands() {
            self.encode_subband(subband, send);
        }
        self.frame = self.frame.wrapping_add(1);
    }

    fn encode_subband(&mut self, subband: u8, send: &mut dyn FnMut(Label, Vec<u8>)) {
        let band = self.layout.subbands()[usize::from(subband)];
        let plane = &self.planes[band.plane];
        let (mut first, all) = (0, band.coefficients());
        while first < all {
            let places = (first..all.min(first + RUN_MAX)).map(|at| band.place(at, plane.width()));
            self.run.clear();
            self.run.extend(places.map(|place| plane.values()[place]));
            let bytes_max = self.packet_bytes_max - LABEL_BYTES;
            let (coded, count) =
                entropy::encode(&self.run, first % band.width, band.width, bytes_max);
            let label = Label {
                subband,
                levels: self.layout.levels(),
                frame: self.frame,
                size: self.layout.size(),
                first: first as u32,
                count: count as u16,
            };
            send(label, label.packet(&coded));
            first += count;
        }
    }
}
