//! Section 5.2 of the DER through three routers: plain queueing, active dropping and layered multicast.

use std::path::Path;
use std::process::Command;

use nilometer_lab::wave_video::result::{BurstResult, ReceiverResult, VideoComparison};
use nilometer_lab::wave_video::{Clip, Contender, VideoPlan, run};
use nilometer_sim::quantity;
use nilometer_video::frame::raw_frames;
use nilometer_video::{FrameSize, SyntheticClip};
use nilometer_wire::Rate;

use crate::common::Room;

const FRAMES_PER_1000_S: u32 = 12_000;
/// 50 ms, in which the scheduler is queried once, and a frame.
const REACTION_MS: f64 = 50.0 + 1_000.0 / 12.0;

fn synthetic() -> Clip {
    let clip = SyntheticClip::new(FrameSize::QCIF, 5);
    let frames = (0..96).map(|number| clip.frame(number)).collect();
    Clip::new(frames, FRAMES_PER_1000_S).expect("a clip")
}

/// The paper's Foreman, where the folder of data is.
fn foreman() -> Option<Clip> {
    let folder = std::env::var_os("NILOMETER_DATA")?;
    let path = Path::new(&folder).join("video/derived/foreman_qcif_100f.yuv.xz");
    let unpacked = Command::new("xz").arg("-dc").arg(path).output().ok()?;
    let frames: Vec<_> = raw_frames(FrameSize::QCIF, &unpacked.stdout).ok()?.collect();
    (!frames.is_empty()).then(|| Clip::new(frames, FRAMES_PER_1000_S).expect("a clip"))
}

/// The result of `seconds` with a burst.
fn played(clip: &Clip, link: Option<Rate>, seconds: f64, burst_s: [f64; 2]) -> VideoComparison {
    let plan = VideoPlan { link, ..VideoPlan::new(clip, seconds, burst_s, 1).expect("a plan") };
    VideoComparison::of("clip", clip, &plan, &run(clip, &plan).expect("a run"))
}

fn seen(result: &VideoComparison, contender: Contender, receiver: usize) -> &ReceiverResult {
    &result.contenders[contender as usize].receivers[receiver]
}

fn burst(result: &VideoComparison, contender: Contender, receiver: usize) -> &BurstResult {
    &seen(result, contender, receiver).burst
}

/// Every frame is the original, and no packet of the video is missing.
fn assert_whole(result: &VideoComparison, contender: Contender, receiver: usize) {
    let seen = seen(result, contender, receiver);
    assert!(seen.psnr_db_by_frame.iter().all(Option::is_none), "{contender:?} {}", seen.receiver);
    assert_eq!(seen.psnr_db_by_frame.len(), result.frames as usize);
    assert_eq!(seen.used_packets, result.contenders[contender as usize].sent_packets);
    assert_eq!(seen.dropped_by_plugin, 0);
}

#[test]
fn where_the_share_suffices_every_receiver_has_the_original() {
    let clip = synthetic();
    let ample = Rate::new(4 * clip.rate().bits_per_second());
    let result = played(&clip, ample, 8.0, [2.0, 6.0]);
    for contender in Contender::ALL {
        (0..3).for_each(|receiver| assert_whole(&result, contender, receiver));
        assert!(seen(&result, contender, 1).cross_packets > 100, "there was cross traffic");
        assert_eq!(seen(&result, contender, 0).dropped_by_queues, 0);
    }
    // The same clip, with links that do not suffice at D2 and D3.
    let result = played(&clip, None, 8.0, [2.0, 6.0]);
    for contender in Contender::ALL {
        assert_whole(&result, contender, 0);
        for receiver in [1, 2] {
            assert!(burst(&result, contender, receiver).identical_frames < 12, "{contender:?}");
        }
    }
}

/// Wherever in the time of a frame the burst begins, and however the packets of a frame are spread over its time.
#[test]
fn active_dropping_settles_within_50_ms_and_a_frame() {
    let Some(clip) = foreman() else {
        println!("skipped: Foreman is not there (NILOMETER_DATA), or xz is not");
        return;
    };
    for (from, pacing) in [(2.0, 0.75), (2.02, 0.75), (2.04, 0.75), (2.071, 0.75), (2.02, 0.0)] {
        let plan = VideoPlan::new(&clip, 7.0, [from, 6.0], 1).expect("a plan");
        let plan = VideoPlan { pacing, ..plan };
        let runs = run(&clip, &plan).expect("a run");
        let result = VideoComparison::of("clip", &clip, &plan, &runs);
        for receiver in [1, 2] {
            let settled = burst(&result, Contender::Active, receiver).reaction_ms;
            let settled = settled.expect("it settles");
            println!("D{} from {from} s, pacing {pacing}: {settled:.1} ms", receiver + 1);
            assert!(settled <= REACTION_MS, "D{} from {from} s: {settled} ms", receiver + 1);
            let plain = burst(&result, Contender::Plain, receiver);
            assert!(plain.reaction_ms.is_none(), "plain queueing never settles: {plain:?}");
            let layers = &seen(&result, Contender::Layered, receiver).layers;
            let left = layers.iter().find(|(_, to)| *to < 7).expect("a layer is left");
            assert!(left.0 > from + 1.0, "layers are left by seconds: {layers:?}");
        }
    }
}

/// Layered multicast is compared at the same share, although its layers are groups of their own.
#[test]
fn no_contender_has_more_than_the_videos_share() {
    let clip = synthetic();
    let result = played(&clip, None, 14.0, [2.0, 12.0]);
    for contender in Contender::ALL {
        for receiver in [1, 2] {
            let seen = seen(&result, contender, receiver);
            let share = seen.share_bits_per_second as f64;
            let got = seen.late_burst_bits_per_second;
            assert!(got < 1.03 * share, "{contender:?} {}: {got} of {share}", seen.receiver);
            let least = if contender == Contender::Layered { 0.3 } else { 0.85 };
            assert!(got > least * share, "{contender:?} {}: {got} of {share}", seen.receiver);
        }
    }
    let layers = &seen(&result, Contender::Layered, 2).layers;
    assert!(layers.len() > 1 && layers[0].1 == 7, "D3 leaves layers: {layers:?}");
    assert_eq!(seen(&result, Contender::Layered, 0).layers.len(), 1, "D1 leaves none");
}

/// The figures of SPECIFICATION.md.
#[test]
fn active_dropping_is_the_best_of_three_with_foreman() {
    let Some(clip) = foreman() else {
        println!("skipped: Foreman is not there (NILOMETER_DATA), or xz is not");
        return;
    };
    println!("Foreman needs {}", clip.rate());
    let result = played(&clip, None, 30.0, [4.0, 24.0]);
    for receiver in [1, 2] {
        let [plain, active, layered] = Contender::ALL.map(|it| burst(&result, it, receiver));
        println!("D{}: plain {plain:?}\n active {active:?}\n layered {layered:?}", receiver + 1);
        let psnr = |burst: &BurstResult| burst.psnr_db.expect("something differs");
        assert!(psnr(active) > psnr(plain) + 5.0, "plain queueing");
        assert!(psnr(active) > psnr(layered) + 2.0, "layered multicast");
        assert!(active.disturbed_frames <= 2 && plain.disturbed_frames > plain.frames * 3 / 4);
        assert!(layered.disturbed_frames > 20, "seconds of it are disturbed");
        // Figure 8: in the burst the lowest sub-bands always arrive with active dropping, and the
        // highest do not.
        let rows = &seen(&result, Contender::Active, receiver).subbands_by_8_frames;
        for row in &rows[7..35] {
            assert!(row[..3].iter().all(|times| *times == 8) && row[32] == 0, "{row:?}");
        }
        let rows = &seen(&result, Contender::Plain, receiver).subbands_by_8_frames;
        assert!(rows[7..35].iter().all(|row| row[..3].iter().any(|times| *times < 8)));
    }
    assert_whole(&result, Contender::Active, 0);
}

/// The paper's links as they were. Where our packets of a clip fit into the share, nothing is lost.
#[test]
fn links_of_3_megabits_are_the_papers() {
    let Some(clip) = foreman() else {
        println!("skipped: Foreman is not there (NILOMETER_DATA), or xz is not");
        return;
    };
    let link = quantity::rate("3 Mb/s").expect("a rate");
    let result = played(&clip, Some(link), 20.0, [4.0, 16.0]);
    for receiver in [1, 2] {
        let [plain, active, layered] = Contender::ALL.map(|it| burst(&result, it, receiver));
        println!("D{}: plain {plain:?}\n active {active:?}\n layered {layered:?}", receiver + 1);
        let share = seen(&result, Contender::Active, receiver).share_bits_per_second;
        assert_eq!(share, 3_000_000 / (receiver as u64 + 1));
        let infinite = |burst: &BurstResult| burst.psnr_db.unwrap_or(f64::INFINITY);
        assert!(infinite(active) >= infinite(plain) && infinite(active) >= infinite(layered));
    }
}

#[test]
fn the_command_writes_figures_and_a_page_and_a_seed_repeats_them() {
    let room = Room::new("video-compare");
    let words =
        ["video", "compare", "--seconds", "4", "--burst-from", "1", "--burst-to", "3", "--json"];
    let result = room.counted(&[&words[..], &["--out", "one"]].concat());
    assert_eq!(result["format"], "nilometer-video-compare/1");
    assert_eq!((&result["clip"], &result["frames"]), (&"a made clip".into(), &48.into()));
    let contenders = result["contenders"].as_array().expect("contenders");
    let names: Vec<&str> = contenders.iter().filter_map(|it| it["contender"].as_str()).collect();
    assert_eq!(names, ["plain", "active", "layered"]);
    for contender in contenders {
        for (streams, seen) in contender["receivers"].as_array().expect("three").iter().enumerate()
        {
            assert_eq!(seen["cross_streams"], streams);
            assert_eq!(seen["psnr_db_by_frame"].as_array().map(Vec::len), Some(48));
            let rows = seen["subbands_by_8_frames"].as_array().expect("rows");
            assert!(
                rows.len() == 6 && rows.iter().all(|row| row.as_array().map(Vec::len) == Some(33))
            );
        }
    }
    let kept: serde_json::Value =
        serde_json::from_str(&room.read("one/result.json")).expect("JSON");
    assert_eq!(kept, result);
    assert_eq!(room.counted(&words), result, "the same seed");
    let page = room.read("one/report.html");
    for part in ["psnr-D1", "psnr-D3", "subbands-plain-D2", "subbands-layered-D3"] {
        assert!(page.contains(&format!("<figure id=\"{part}\"")), "{part}");
    }
    assert_eq!(page.matches("<img src=\"data:image/png;base64,").count(), 7);
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing is fetched");
    let refused = room.refused(&["video", "compare", "--burst-from", "9", "--burst-to", "3"]);
    assert!(refused.contains("burst"), "{refused}");
    let refused = room.refused(&["video", "compare", "missing.yuv"]);
    assert!(refused.contains("missing.yuv"), "{refused}");
}
