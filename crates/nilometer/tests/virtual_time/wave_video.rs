//! Wave Video through a router whose link is shared (DER, 5.2): plain queueing against active dropping.
//!
//! The paper's receivers differ in how many streams of cross traffic share their link with the video: none at D1, one at
//! D2, two at D3. Here each is a run of the router's pipeline in virtual time, from a ROUTER.toml, with a link on which
//! a fair share is 1.5/2.6 of the video's rate at D2 and 1.0/2.6 at D3, as for Foreman there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use nilometer_router::memory::Memory;
use nilometer_router::pipeline::Router;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::machine::Machine;
use nilometer_video::frame::raw_frames;
use nilometer_video::{
    Coverage, Distortion, Encoder, EncoderSettings, Frame, FrameSize, Levels, Receiver,
    SyntheticClip,
};
use nilometer_wire::memory::HeapMemory;
use nilometer_wire::{Span, Time, build};

const FRAMES: u32 = 96;
const FRAMES_A_SECOND: u64 = 12;
const SUBBANDS: usize = 33;
/// Frames during which the cross traffic is on.
const BURST: std::ops::Range<u32> = 24..48;
const STEP: Span = Span::from_nanos(100_000);
const VIDEO: &str = "198.19.0.2:5004";
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];

/// The frames of a clip, and the packets of each.
struct Clip {
    frames: Vec<Frame>,
    packets: Vec<Vec<Vec<u8>>>,
}

impl Clip {
    fn synthetic() -> Clip {
        let clip = SyntheticClip::new(FrameSize::QCIF, 5);
        Clip::of((0..FRAMES).map(|number| clip.frame(number)).collect())
    }

    /// The paper's Foreman, where the folder of data is.
    fn foreman() -> Option<Clip> {
        let folder = std::env::var_os("NILOMETER_DATA")?;
        let path = Path::new(&folder).join("video/derived/foreman_qcif_100f.yuv.xz");
        let unpacked = Command::new("xz").arg("-dc").arg(path).output().ok()?;
        let frames = raw_frames(FrameSize::QCIF, &unpacked.stdout).ok()?;
        let frames: Vec<Frame> = frames.take(FRAMES as usize).collect();
        (frames.len() == FRAMES as usize).then(|| Clip::of(frames))
    }

    fn of(frames: Vec<Frame>) -> Clip {
        let mut encoder = Encoder::new(EncoderSettings::new(FrameSize::QCIF)).expect("settings");
        let packets = frames.iter().map(|frame| {
            let mut packets = Vec::new();
            encoder.encode(frame, &mut |_, packet| packets.push(packet));
            packets
        });
        let packets = packets.collect();
        Clip { frames, packets }
    }

    /// Bits per second on the link: with UDP, IP and Ethernet.
    fn rate_bps(&self) -> u64 {
        let bytes: usize = self.packets.iter().flatten().map(|packet| packet.len() + 42).sum();
        bytes as u64 * 8 * FRAMES_A_SECOND / u64::from(FRAMES)
    }
}

/// What a receiver has of a clip.
struct Received {
    /// Of each frame in dB; nothing where not a bit is wrong.
    psnr_db: Vec<Option<f64>>,
    /// Of each frame, which sub-bands complete.
    whole: Vec<[bool; SUBBANDS]>,
    dropped_by_queues: u64,
    dropped_by_plugin: u64,
}

fn router(link_bps: u64, is_active: bool) -> Router {
    let plugin = "[[plugin]]\nname = \"scale\"\nclass = \"wave-video\"\n\
                  [[filter]]\naction = \"active\"\nplugins = [\"scale\"]\noutputs = [\"p1\"]\n\
                  protocol = \"udp\"\ndestination_ports = \"5004\"\n";
    let text = format!(
        "[fabric]\nqueueing = \"off\"\n{}[[port]]\ninterface = \"p0\"\naddresses = [\"198.18.0.1/24\"]\n\
         [[port]]\ninterface = \"p1\"\naddresses = [\"198.19.0.1/24\"]\nrate = \"{link_bps} b/s\"\n\
         burst_bytes = 3000\nqueue = {{ discipline = \"drr\", buffer_packets = 200, drop_from = \"front\", hashing = \"mixed\" }}\n\
         [[neighbour]]\ninterface = \"p1\"\naddress = \"198.19.0.2\"\nmac = \"02:00:00:00:00:02\"\n",
        if is_active { plugin } else { "" }
    );
    let config: RouterConfig = toml::from_str(&text).expect("a router");
    let machine = Machine::without_devices(&config, &MACS.map(|mac| (mac, 1_500)));
    machine.expect("a router").router
}

/// The clip as it arrives at a receiver, `cross` streams of which share its link during the burst.
fn play(clip: &Clip, link_bps: u64, cross: u16, is_active: bool) -> Received {
    let mut router = router(link_bps, is_active);
    let (mut memory, mut now) = (HeapMemory::new(4_096), Time::ZERO);
    let mut receiver = Receiver::new(FrameSize::QCIF, Levels::PAPER, SUBBANDS as u8);
    let (mut psnr_db, mut whole) = (Vec::new(), Vec::new());
    let mut show = |frame: &Frame, coverage: &[Coverage]| {
        let original = &clip.frames[psnr_db.len()];
        psnr_db.push(Distortion::luma(original, frame).psnr_db());
        whole.push(std::array::from_fn(|subband| coverage[subband] == Coverage::Whole));
    };
    let frame_time = Span::from_nanos(1_000_000_000 / FRAMES_A_SECOND);
    let mut crossing = vec![Time::ZERO; usize::from(cross)];
    let cross_gap = Span::from_nanos(1_042 * 8 * 1_000_000_000 / link_bps);
    let [from, to]: [SocketAddr; 2] =
        ["198.18.0.2:5004", VIDEO].map(|end| end.parse().expect("it"));
    let mut waiting: std::collections::VecDeque<&Vec<u8>> = std::collections::VecDeque::new();
    let mut next_frame = 0;
    let end = Time::ZERO + Span::from_nanos(frame_time.as_nanos() * u64::from(FRAMES + 24));
    let number_at = |now: Time| (now.as_nanos() / frame_time.as_nanos()) as u32;
    while now < end {
        let mut arrivals = Vec::new();
        if next_frame < FRAMES && number_at(now) >= next_frame {
            waiting.extend(&clip.packets[next_frame as usize]);
            next_frame += 1;
        }
        // The source's own link is fast: two packets in 100 us.
        for packet in waiting.drain(..waiting.len().min(2)) {
            arrivals.push(build::udp(from, to, packet));
        }
        for (stream, due) in crossing.iter_mut().enumerate() {
            *due = (*due).max(now);
            while BURST.contains(&number_at(now)) && *due < now + STEP {
                let source = SocketAddr::new(from.ip(), 9_000 + stream as u16);
                arrivals.push(build::udp(source, SocketAddr::new(to.ip(), 9), &[0; 1_000]));
                *due += cross_gap;
            }
        }
        let places: Vec<_> = arrivals
            .iter()
            .map(|packet| {
                let mut frame = build::ethernet(packet);
                frame[..6].copy_from_slice(&MACS[0]);
                let place = memory.take(frame.len() as u16).expect("a buffer");
                memory.frame_mut(place).copy_from_slice(&frame);
                place
            })
            .collect();
        router.receive(now, 0, &places, &mut memory, &mut ());
        now += STEP;
        router.advance(now, &mut memory, &mut ());
        for port in 0..2 {
            while let Some(place) = router.transmit(now, port, &mut memory) {
                let frame = memory.frame(place);
                if port == 1 && frame[12..14] == [8, 0] && frame[36..38] == 5_004u16.to_be_bytes() {
                    // (The receiver counts late packets.)
                    let _ = receiver.receive(&frame[42..], &mut show);
                }
                memory.give(place);
            }
        }
    }
    receiver.finish(FRAMES, &mut show).expect("frames");
    assert!(router.balances());
    let plugin = router.plugins().states().next();
    assert!(plugin.as_ref().is_none_or(|state| state.fault.is_none()));
    Received {
        psnr_db,
        whole,
        dropped_by_queues: router.fabric().dropped_packets(),
        dropped_by_plugin: plugin.map_or(0, |state| state.counters.dropped),
    }
}

/// The mean over frames, of those that differ; a frame without a fault counts as 60 dB.
fn mean_db(received: &Received, frames: std::ops::Range<u32>) -> f64 {
    let some = &received.psnr_db[frames.start as usize..frames.end as usize];
    some.iter().map(|db| db.unwrap_or(60.0).min(60.0)).sum::<f64>() / some.len() as f64
}

/// Of the frames, how many have all sub-bands below this one.
fn with_all_below(received: &Received, frames: std::ops::Range<u32>, subband: usize) -> usize {
    let some = &received.whole[frames.start as usize..frames.end as usize];
    some.iter().filter(|whole| whole[..subband].iter().all(|it| *it)).count()
}

/// The link of D2 and D3: a fair share beside one stream is 1.5/2.6 of the video's rate.
fn link_bps(clip: &Clip) -> u64 {
    (clip.rate_bps() as f64 * 2.0 * 1.5 / 2.6) as u64
}

/// D1.
#[test]
fn where_nothing_shares_the_link_nothing_is_lost() {
    let clip = Clip::synthetic();
    for is_active in [false, true] {
        let received = play(&clip, link_bps(&clip), 0, is_active);
        assert!(received.psnr_db.iter().all(Option::is_none), "{:?}", received.psnr_db);
        assert_eq!((received.dropped_by_queues, received.dropped_by_plugin), (0, 0));
    }
}

/// D2 and D3.
#[test]
fn active_dropping_keeps_foreman_five_decibels_better() {
    match Clip::foreman() {
        Some(clip) => compare(&clip, 5.0),
        None => println!("skipped: Foreman is not there (NILOMETER_DATA), or xz is not"),
    }
}

/// Compares active dropping with plain queueing: it must be better by at least `better_db`.
fn compare(clip: &Clip, better_db: f64) {
    let link_bps = link_bps(clip);
    for cross in [1, 2] {
        let [plain, active] = [false, true].map(|is_active| play(clip, link_bps, cross, is_active));
        // Within 50 ms and a frame of its beginning the stream fits, and from then on only the highest are missing.
        let settled = BURST.start + 2..BURST.end;
        let frames = settled.len();
        let (with, without) = (mean_db(&active, settled.clone()), mean_db(&plain, settled.clone()));
        println!("{cross} streams of cross traffic: {with:.1} dB active, {without:.1} dB plain");
        assert!(with > without + better_db, "{cross}: {with} dB against {without} dB");
        assert_eq!(with_all_below(&active, settled.clone(), 3), frames, "the lowest always come");
        for whole in &active.whole[settled.start as usize..settled.end as usize] {
            let first_missing = whole.iter().position(|it| !it).unwrap_or(SUBBANDS);
            let later = whole[first_missing..].iter().filter(|it| **it).count();
            assert_eq!(later, 0, "{cross}: none above one that is missing: {whole:?}");
        }
        assert!(with_all_below(&plain, settled, 3) < frames / 2, "losses fall on all sub-bands");
        // After the burst, once its backlog has left the queue, the picture is whole again.
        let after = BURST.end as usize + 36..;
        assert!(active.psnr_db[after].iter().all(Option::is_none), "{:?}", active.psnr_db);
        assert!(active.psnr_db[..BURST.start as usize].iter().all(Option::is_none));
        assert!(active.dropped_by_plugin > 100);
    }
}
