//! Targets of the shell: captures, archives, text, tables and documents as they lie in files.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use nilometer_files::document;
use nilometer_files::harpoon;
use nilometer_files::input::capture::{Capture, Ending, FRAME_MAX_BYTES};
use nilometer_files::input::pcap::Pcap;
use nilometer_files::input::pcapng::Pcapng;
use nilometer_files::input::records::{FlowOptions, read_flows};
use nilometer_files::input::window::Window;
use nilometer_lab::simulate::template::Template;
use nilometer_lab::trial::config::LabConfig;
use nilometer_routerd::config::RouterConfig;

use super::pure::Target;

/// All targets here.
pub const TARGETS: [Target; 6] = [
    ("pcap", of_pcap),
    ("pcapng", of_pcapng),
    ("file", of_file),
    ("harpoon", of_harpoon),
    ("model", of_model),
    ("config", of_config),
];

/// Every packet of a capture, and an ending that says why there is no more.
fn walk(mut capture: Capture<&[u8]>, bytes: usize) {
    let (mut packets, mut captured) = (0, 0);
    while let Some(packet) = capture.next_packet().expect("memory can be read") {
        assert!(packet.original_bytes as usize >= packet.frame.len());
        assert!(packet.frame.len() <= FRAME_MAX_BYTES as usize);
        packets += 1;
        captured += packet.frame.len();
    }
    assert!(captured <= bytes && packets * 12 <= bytes, "{packets} packets of {bytes} bytes");
    match capture.ending() {
        Ending::Whole => {}
        Ending::Cut { offset } | Ending::Damaged { offset, .. } => assert!(*offset <= bytes as u64),
    }
    capture.link_types();
}

/// A pcap file.
pub fn of_pcap(bytes: &[u8]) {
    if let Ok(pcap) = Pcap::new(Window::new(bytes)) {
        walk(Capture::Pcap(pcap), bytes.len());
    }
}

/// A pcapng file.
pub fn of_pcapng(bytes: &[u8]) {
    if let Ok(pcapng) = Pcapng::new(Window::new(bytes)) {
        walk(Capture::Pcapng(Box::new(pcapng)), bytes.len());
    }
}

/// A file without a name in any folder, by the name that its descriptor has.
fn file_of(bytes: &[u8]) -> Option<(File, PathBuf)> {
    let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut file = File::from(file);
    file.write_all(bytes).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Some((file, path))
}

/// Any file that `flows` may be given: what it is, is told by its first bytes.
pub fn of_file(bytes: &[u8]) {
    let (_file, path) = file_of(bytes).expect("a file in memory");
    let mut given = 0;
    let options = FlowOptions { repairs: true, for_model: true, ..FlowOptions::default() };
    let summary = read_flows(&[path], &options, &mut |_| {}, &mut |flow| {
        assert!(flow.end_ns >= flow.start_ns);
        given += 1;
        Ok(())
    });
    match summary {
        Ok(summary) => {
            assert_eq!(summary.flows_after_repair, Some(given));
            let others = [summary.not_ip, summary.malformed, summary.snapped, summary.other_link];
            assert!(others.iter().sum::<u64>() <= summary.packets);
        }
        Err(error) => one_line(&error),
    }
}

fn one_line(error: &anyhow::Error) {
    let message = format!("{error:#}");
    assert!(!message.trim_end().contains('\n'), "{message:?}");
}

/// Harpoon's XML.
pub fn of_harpoon(bytes: &[u8]) {
    let (_file, path) = file_of(bytes).expect("a file in memory");
    match harpoon::read(&[path]) {
        Ok(read) => {
            let clients = nilometer_lab::trial::config::default_clients();
            let servers = nilometer_lab::trial::config::default_servers();
            if let Ok(Ok(model)) =
                read.stated(60.0, (clients, servers)).map(|by_hand| by_hand.model())
            {
                assert!(model.check().is_ok());
            }
        }
        Err(error) => one_line(&error),
    }
}

/// A model's file: what is read and sound is written and read again as the same.
pub fn of_model(bytes: &[u8]) {
    let (_file, path) = file_of(bytes).expect("a file in memory");
    match nilometer_files::document::model::read_model(&path) {
        Ok(model) => {
            let text = document::json_text(&model).expect("JSON");
            let again = serde_json::from_str(&text).expect("what was written");
            assert_eq!(model, again);
        }
        Err(error) => one_line(&error),
    }
}

/// Configurations of the lab and of the router, and scenarios of the simulator.
pub fn of_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lab = toml::from_str::<LabConfig>(&text).ok().map(|config| config.check());
    let router = toml::from_str::<RouterConfig>(&text).ok().map(|config| config.check());
    let scenario = Template::read("fuzz", &text).and_then(|scenario| scenario.kind());
    for refused in [lab, router, Some(scenario.map(|_| ()))].into_iter().flatten() {
        if let Err(error) = refused {
            one_line(&error);
        }
    }
}
