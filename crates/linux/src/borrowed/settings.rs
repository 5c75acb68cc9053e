//! An interface's own kernel parameters, `/proc/sys/net/{ipv4,ipv6}/conf/NAME`, which a move to another namespace
//! sets back to that namespace's defaults.

use std::fs;

use crate::system_file::system_text;

/// Where they are.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];
/// Those that act when they are written, or that the kernel does not let anyone write back.
const NOT_KEPT: [&str; 2] = ["stable_secret", "mtu"];

/// A parameter: its file and what was in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    file: String,
    value: String,
}

/// All that can be read of an interface of the calling thread's namespace.
pub(super) fn read(name: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    for family in FAMILIES {
        let folder = format!("/proc/sys/net/{family}/conf/{name}");
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            if NOT_KEPT.contains(&file_name.as_str()) {
                continue;
            }
            let file = format!("{folder}/{file_name}");
            if let Ok(value) = system_text(&file) {
                found.push(Setting { value: value.trim_end().to_owned(), file });
            }
        }
    }
    found
}

/// Writes those that are not what they were; the files that could not be written.
pub(super) fn write(settings: &[Setting]) -> Vec<String> {
    let differs = |setting: &&Setting| {
        system_text(&setting.file).is_ok_and(|now| now.trim_end() != setting.value)
    };
    let failed = |setting: &Setting| {
        let error = fs::write(&setting.file, &setting.value).err()?;
        Some(format!("cannot set {} to {} again: {error}", setting.file, setting.value))
    };
    settings.iter().filter(differs).filter_map(failed).collect()
}
