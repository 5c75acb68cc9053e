//! Optional tools and data of the tests: a browser to open reports in, and public captures.

use std::env;
use std::path::{Path, PathBuf};

use super::{Finding, Purpose};

/// The names under which Chromium is installed, the first found is taken.
pub const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Looks for all of them.
pub fn examine() -> Vec<Finding> {
    vec![browser(), captures(env::var_os("NILOMETER_DATA").map(PathBuf::from).as_deref())]
}

fn browser() -> Finding {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = BROWSERS.into_iter().find_map(|name| {
        env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    });
    if let Some(file) = found {
        return Finding::ok("chromium", Purpose::Tests, file.display().to_string());
    }
    Finding::ok("chromium", Purpose::Tests, format!("none of {} in PATH", BROWSERS.join(", ")))
        .missing(
            "tests that open a report in a browser are skipped",
            "install Chromium (Debian: `apt-get install chromium`)",
        )
}

fn captures(folder: Option<&Path>) -> Finding {
    let finding = |found: String| Finding::ok("public captures", Purpose::Tests, found);
    let consequence = "tests on captures that are not ours to ship are skipped";
    let remedy = "set NILOMETER_DATA to the folder that holds them";
    match folder {
        Some(folder) if folder.is_dir() => finding(folder.display().to_string()),
        Some(folder) => {
            let found = format!("NILOMETER_DATA is {}, which is not a folder", folder.display());
            finding(found).missing(consequence, remedy)
        }
        None => finding("NILOMETER_DATA is not set".to_owned()).missing(consequence, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn captures_are_a_folder_or_missing() {
        assert_eq!(captures(None).state, State::Missing);
        assert_eq!(captures(Some(Path::new(file!()).join("x").as_path())).state, State::Missing);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(captures(Some(here)).state, State::Ok);
    }
}
