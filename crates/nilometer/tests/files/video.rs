//! `nilometer video`: a clip into packets and back, with all sub-bands and with fewer, and what is refused.

use crate::common;
use common::{Room, text};

/// Bytes of a frame of 176x144, of the container's header, of a packet's length and of the end mark.
const FRAME: usize = 38_016;
const HEADER: usize = 32;
const LENGTH: usize = 2;
const END: usize = 6;

/// A room with a synthetic clip of six frames, and its packets.
fn room(name: &str) -> Room {
    let room = Room::new(name);
    room.done(&["video", "synthetic", "--frames", "6", "--seed", "4", "-o", "in.yuv"]);
    room.done(&["video", "encode", "in.yuv", "--size", "176x144", "-o", "in.wv"]);
    room
}

/// Where each packet of a container begins and ends.
fn packets(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut at, mut found) = (HEADER, Vec::new());
    loop {
        let length = usize::from(u16::from_be_bytes([file[at], file[at + 1]]));
        if length == 0 {
            assert_eq!(at + END, file.len());
            return found;
        }
        found.push(at + LENGTH..at + LENGTH + length);
        at += LENGTH + length;
    }
}

#[test]
fn a_clip_becomes_packets_and_comes_back_to_the_last_bit() {
    let room = room("video");
    let words = ["video", "encode", "in.yuv", "--size", "176x144", "--json", "--force"];
    let result = room.counted(&[&words[..], &["-o", "in.wv"]].concat());
    let sum = |list: &str| {
        let list = result[list].as_array().expect("a list");
        assert_eq!(list.len(), 33);
        list.iter().map(|number| number.as_u64().expect("a number")).sum::<u64>()
    };
    assert_eq!((&result["frames"], &result["subbands"]), (&6.into(), &33.into()));
    assert_eq!(result["packets"], sum("packets_by_subband"));
    assert_eq!(result["bytes"], sum("bytes_by_subband"));
    assert_eq!(result["bits_per_second"], 8.0 * sum("bytes_by_subband") as f64 * 12.0 / 6.0);
    assert_eq!((&result["quantiser_step"], &result["raw_bytes"]), (&1.into(), &(6 * FRAME).into()));
    let file = room.read_bytes("in.wv");
    let found = packets(&file);
    assert_eq!(found.len() as u64, sum("packets_by_subband"));
    assert!(found.iter().all(|packet| packet.len() <= 1_400));

    let decoded = room.counted(&["video", "decode", "in.wv", "-o", "out.yuv", "--json"]);
    assert_eq!(room.read_bytes("out.yuv"), room.read_bytes("in.yuv"));
    for name in ["packets", "bytes", "bits_per_second", "bytes_by_subband", "frames"] {
        assert_eq!(decoded[name], result[name], "{name}");
    }
    assert_eq!((&decoded["used"], &decoded["frames_whole"]), (&result["packets"], &6.into()));

    let words = ["video", "psnr", "in.yuv", "out.yuv", "--size", "176x144"];
    let same = room.counted(&[&words[..], &["--json"]].concat());
    for planes in ["luma", "all_planes"] {
        let ratio = &same[planes];
        assert!(ratio["psnr_db"].is_null() && ratio["mean_psnr_db"].is_null(), "{same}");
        assert_eq!((&ratio["psnr"], &ratio["identical_frames"]), (&"infinite".into(), &6.into()));
        let by_frame = ratio["psnr_db_by_frame"].as_array().expect("a list");
        assert!(by_frame.len() == 6 && by_frame.iter().all(serde_json::Value::is_null));
    }
    assert!(room.done(&words).contains("infinite"));
}

#[test]
fn options_are_kept_in_the_file() {
    let room = Room::new("video-options");
    let made = ["video", "synthetic", "--frames", "2", "--size", "97x35", "-o", "in.yuv"];
    assert!(room.done(&made).contains("97x35"));
    let words = ["video", "encode", "in.yuv", "--size", "97x35", "-o", "in.wv", "--json"];
    let options = ["--fps", "29.97", "--levels", "2", "--payload-bytes", "200"];
    let result = room.counted(&[&words[..], &options].concat());
    assert_eq!((&result["subbands"], &result["frames_per_second"]), (&15.into(), &29.97.into()));
    assert!(packets(&room.read_bytes("in.wv")).iter().all(|packet| packet.len() <= 200));
    let decoded = room.counted(&["video", "decode", "in.wv", "-o", "out.yuv", "--json"]);
    assert_eq!((&decoded["levels"], &decoded["size"]), (&2.into(), &"97x35".into()));
    assert_eq!(room.read_bytes("out.yuv"), room.read_bytes("in.yuv"));
    let table = room.done(&[&words[..7], &["--force"]].concat());
    assert!(table.lines().any(|line| line.contains("32") && line.contains("Y HH1")), "{table}");
}

#[test]
fn fewer_subbands_cost_less_and_are_worse() {
    let room = room("video-fewer");
    let mut last = (f64::INFINITY, f64::INFINITY);
    for keep in ["33", "32", "24", "12", "3", "1"] {
        let name = format!("{keep}.yuv");
        let words = ["video", "decode", "in.wv", "--json", "--keep-bands", keep, "-o", &name];
        let result = room.counted(&words);
        let number = |name: &str| result[name].as_u64().expect("a number");
        assert_eq!(number("packets"), number("used") + number("above"));
        assert_eq!(room.read_bytes(&name).len(), 6 * FRAME);
        let words = ["video", "psnr", "in.yuv", &name, "--size", "176x144", "--json"];
        let ratio = room.counted(&words)["all_planes"]["psnr_db"].as_f64();
        let now =
            (ratio.unwrap_or(f64::INFINITY), result["bits_per_second"].as_f64().expect("a rate"));
        assert!(now.0 < last.0 || keep == "33", "{keep}: {now:?} after {last:?}");
        assert!(now.1 < last.1, "{keep}: {now:?} after {last:?}");
        last = now;
    }
}

#[test]
fn damaged_packets_are_counted_and_warned_of() {
    let room = room("video-damaged");
    let mut file = room.read_bytes("in.wv");
    let found = packets(&file);
    file[found[5].start + 30] ^= 1;
    file[found[9].start] = b'X';
    room.write("damaged.wv", &file);
    let output = room.run(&["video", "decode", "damaged.wv", "-o", "out.yuv", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let stderr = text(&output.stderr);
    let place = format!("the first, at byte {}: the checksum is wrong", found[5].start - LENGTH);
    assert!(stderr.contains(&format!("2 of {} packets", found.len())), "{stderr}");
    assert!(stderr.contains(&place) && stderr.lines().count() == 1, "{stderr}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&result["refused"], &result["frames_partial"]), (&2.into(), &1.into()));
    assert_eq!(result["used"], found.len() - 2);
    // A frame whose packets never arrived exists all the same, as its end mark shows.
    let without = packets(&file).into_iter().filter(|packet| file[packet.start + 7] != 5);
    let mut lost = file[..HEADER].to_vec();
    without.for_each(|packet| lost.extend(&file[packet.start - LENGTH..packet.end]));
    lost.extend([0, 0, 0, 0, 0, 6]);
    room.write("lost.wv", &lost);
    let result = room.counted(&["video", "decode", "lost.wv", "-o", "lost.yuv", "--json"]);
    assert_eq!((&result["frames"], &result["frames_empty"]), (&6.into(), &1.into()));
}

#[test]
fn bad_clips_and_containers_are_refused_in_one_line() {
    let room = room("video-refused");
    room.write("empty.yuv", []);
    room.write("odd.yuv", vec![0; 2 * FRAME + 1]);
    room.write("short.yuv", vec![0; FRAME]);
    let encode = |input, size, more: &[&str]| {
        let words = ["video", "encode", input, "--size", size, "-o", "new.wv"];
        room.refused(&[&words[..], more].concat())
    };
    let expected = [
        (encode("none.yuv", "176x144", &[]), "none.yuv: No such file"),
        (encode("empty.yuv", "176x144", &[]), "empty.yuv: is empty"),
        (encode("odd.yuv", "176x144", &[]), "1 bytes remain after 2 frames of 176x144"),
        (encode("in.yuv", "176", &[]), "a size is WIDTHxHEIGHT"),
        (encode("in.yuv", "9999x9999", &[]), "9999x9999: a side has 1 to 4096 samples"),
        (encode("in.yuv", "176x144", &["--levels", "0"]), "--levels"),
        (encode("in.yuv", "176x144", &["--levels", "7"]), "--levels"),
        (encode("in.yuv", "176x144", &["--payload-bytes", "20"]), "--payload-bytes 20: 84 to"),
        (encode("in.yuv", "176x144", &["--fps", "0"]), "0.001 to 1000 frames"),
    ];
    for (line, part) in expected {
        assert!(line.contains(part), "{line}");
    }
    let psnr = ["video", "psnr", "in.yuv", "short.yuv", "--size", "176x144"];
    let line = room.refused(&psnr);
    assert!(line.contains("in.yuv has more frames than short.yuv, which has 1"), "{line}");

    let file = room.read_bytes("in.wv");
    let mut many = file.clone();
    many[file.len() - 4..].copy_from_slice(&[0, 0, 0, 5]);
    let mut far = file.clone();
    far[file.len() - 4..].copy_from_slice(&[0, 0, 0xff, 0xff]);
    let changed = |at: usize, byte| {
        let mut changed = file.clone();
        changed[at] = byte;
        changed
    };
    for (bytes, part) in [
        (vec![], "begins with WAVEVID1"),
        (file[..HEADER].to_vec(), "at byte 32: the file was cut"),
        (file[..file.len() - 1].to_vec(), "the file was cut"),
        (changed(0, b'w'), "begins with WAVEVID1"),
        (changed(9, 1), "the header is damaged"),
        (changed(HEADER + 1, 19), "at byte 32: a packet cannot have 19 bytes"),
        ([&file[..], b"x"].concat(), "after the end mark"),
        (many, "has 5 frames by its end mark"),
        (far, "frame 65535 is too far ahead"),
    ] {
        room.write("bad.wv", bytes);
        let line = room.refused(&["video", "decode", "bad.wv", "-o", "new.yuv"]);
        assert!(line.contains("bad.wv") && line.contains(part), "{line}");
    }
    let line = room.refused(&["video", "decode", "in.wv", "-o", "new.yuv", "--keep-bands", "34"]);
    assert!(line.contains("has 33 sub-bands"), "{line}");
}

#[test]
fn nothing_but_packets_of_ours_is_replaced() {
    let room = room("video-kept");
    room.write("mine", "a diary");
    let encode = ["video", "encode", "in.yuv", "--size", "176x144", "--force", "-o"];
    for name in ["mine", "in.yuv"] {
        room.refused(&[&encode[..], &[name]].concat());
    }
    let line = room.refused(&["video", "encode", "in.yuv", "--size", "176x144", "-o", "in.wv"]);
    assert!(line.contains("--force"), "{line}");
    for name in ["mine", "in.yuv", "in.wv"] {
        let line = room.refused(&["video", "decode", "in.wv", "-o", name]);
        assert!(line.contains("exists already"), "{line}");
        room.refused(&["video", "synthetic", "-o", name]);
    }
}
