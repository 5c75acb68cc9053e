//! An interface's own kernel parameters, `/proc/sys/net/{ipv4,ipv6}/{conf,neigh}/NAME`, which a move to another namespace
//! resets to that namespace's defaults.

use std::fs;

use crate::system_file::system_text;

/// Where they are.
const FOLDERS: [&str; 4] = ["ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"];
/// Which the kernel does not let anyone write back.
const NOT_KEPT: [&str; 1] = ["stable_secret"];

/// A parameter: its folder, its file there, and what was in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    folder: &'static str,
    file: String,
    value: String,
}

impl Setting {
    fn path(&self, name: &str) -> String {
        format!("/proc/sys/net/{}/{name}/{}", self.folder, self.file)
    }
}

/// All that can be read of an interface of the calling thread's namespace.
pub(super) fn read(name: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let Ok(entries) = fs::read_dir(format!("/proc/sys/net/{folder}/{name}")) else { continue };
        for entry in entries.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            if NOT_KEPT.contains(&file.as_str()) {
                continue;
            }
            if let Ok(value) = system_text(entry.path()) {
                found.push(Setting { folder, file, value: value.trim_end().to_owned() });
            }
        }
    }
    found
}

/// Writes those settings of the interface `name` that have changed; returns the files that could
/// not be written.
pub(super) fn write(settings: &[Setting], name: &str) -> Vec<String> {
    let differs = |setting: &&Setting| {
        system_text(setting.path(name)).is_ok_and(|now| now.trim_end() != setting.value)
    };
    let failed = |setting: &Setting| {
        let (file, value) = (setting.path(name), &setting.value);
        let error = fs::write(&file, value).err()?;
        Some(format!("cannot set {file} to {value} again: {error}"))
    };
    settings.iter().filter(differs).filter_map(failed).collect()
}
