//! The outcome of a run of one contender, under either clock.

use nilometer_video::Frame;
use nilometer_wire::Time;

use super::punctual::ThreadPunctuality;
use super::viewer::FrameSeen;

/// What one receiver got.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewerOutcome {
    /// Frame by frame.
    pub frames: Vec<FrameSeen>,
    /// The requested frame.
    pub picture: Option<Frame>,
    /// Packets of the video that came, and that were used.
    pub video_packets: u64,
    /// Those that were used for a frame.
    pub used_packets: u64,
    /// Bytes of the video received in the second half of the burst, as its link counts them.
    pub late_burst_bytes: u64,
    /// Packets of cross traffic that came.
    pub cross_packets: u64,
    /// When the number of joined layers changed, since the first frame was sent; empty but for layered multicast.
    pub subscriptions: Vec<(Time, usize)>,
    /// Packets that its router dropped in queues, of cross traffic too, and in the plugin.
    pub dropped_by_queues: u64,
    /// Those that the plugin dropped.
    pub dropped_by_plugin: u64,
}

/// What became of one contender.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Packets of the video that were sent.
    pub sent_packets: u64,
    /// Of each receiver.
    pub viewers: Vec<ViewerOutcome>,
    /// How punctual each thread was; none in virtual time.
    pub threads: Vec<ThreadPunctuality>,
}
