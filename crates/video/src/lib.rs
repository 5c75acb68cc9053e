//! Wave Video: a lossless wavelet codec whose packets a router may drop sub-band by sub-band.
//!
//! The Dynamically Extensible Router shows what an active network is good for by a video (DER, section 5): its
//! frames are split into sub-bands of frequency, each sub-band travels in packets of its own, and a router whose
//! link is congested drops those of the highest frequencies first. The picture loses detail and stays whole.
//! Here is that codec, without the router's part of it.
//!
//! ```text
//!   Frame ──transform──► 33 sub-bands ──entropy──► packets ··network·· receiver ──decoder──► Frame
//!                        (subband)                 (packet)                                  (psnr)
//! ```
//!
//! - A [`Frame`] is a picture in I420. [`transform`] splits each plane reversibly, in integers, and [`subband`]
//!   defines which rectangle of the result is which sub-band, and explains why there are 33 of them.
//! - [`entropy`] codes the coefficients of one packet and of no other: the loss of a packet harms nothing but itself.
//!   There is no quantiser (its step is 1), so all packets together are the frame to the last bit.
//! - A [`packet`] begins with a label of twenty bytes at fixed places, which is all that a router has to read.
//! - The [`Encoder`] makes the packets of a frame; the [`Receiver`] passes packets that arrive to the [`Decoder`],
//!   which rebuilds the frame from what there is; [`psnr`] measures how much was lost.
//! - A [`container`] is a file of packets. [`synthetic`] makes a clip where none is at hand.
//!
//! All input is untrusted: sizes, numbers and lengths have limits, and a value beyond one is an error. Memory is
//! that of a few frames of the given size, whatever arrives.
#![no_std]

extern crate alloc;

pub mod container;
pub mod decoder;
pub mod encoder;
pub mod entropy;
pub mod frame;
pub mod packet;
pub mod psnr;
pub mod receiver;
pub mod subband;
pub mod synthetic;
pub mod transform;

pub use container::Container;
pub use decoder::{Coverage, Decoder};
pub use encoder::{Encoder, EncoderSettings};
pub use frame::{Frame, FrameSize};
pub use packet::{Label, PacketError};
pub use psnr::Distortion;
pub use receiver::{Counts, Receiver};
pub use subband::{Layout, Levels};
pub use synthetic::SyntheticClip;
