//! A browser that draws a page, if one is installed, and says what it complains of.

use std::path::Path;
use std::process::Command;

/// The browser's name, where there is one.
pub fn find() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// Draws a page with a script that writes what it sees into the title; gives the title. Fails where
/// the browser complains of anything, or asks for anything beyond the page.
pub fn title(browser: &str, dir: &Path, [name, page]: [&str; 2], scheme: u8, size: &str) -> String {
    let file = dir.join(format!("{name}.html"));
    std::fs::write(&file, page).expect("the scratch directory can be written");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--enable-logging=stderr", "--v=0"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--window-size={size}"))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("Chromium runs");
    let log = String::from_utf8_lossy(&output.stderr);
    let complaint = |line: &&str| {
        line.contains("CONSOLE") || line.contains("Refused") || line.contains("net_error")
    };
    assert_eq!(log.lines().find(complaint), None, "{name} {size}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    title.unwrap_or("no title").to_owned()
}
