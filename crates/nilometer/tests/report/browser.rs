//! A browser that draws a page, if one is installed, and its error messages.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The browser's name, where there is one.
pub fn find() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// A browser that contacts only the one file or server, with what it is to do.
fn run(browser: &str, dir: &Path, words: &[&str], url: &str) -> Output {
    Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--enable-logging=stderr", "--v=0"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg("--virtual-time-budget=2000")
        .args(words)
        .arg(url)
        .output()
        .expect("Chromium runs")
}

/// The title of a page after its scripts have run, and the browser's first error.
pub fn titled(
    browser: &str,
    dir: &Path,
    [name, page]: [&str; 2],
    scheme: u8,
    size: &str,
) -> (String, Option<String>) {
    let file = dir.join(format!("{name}.html"));
    std::fs::write(&file, page).expect("the scratch directory can be written");
    let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
    let words = [&scheme, &format!("--window-size={size}"), "--dump-dom"];
    let output = run(browser, dir, &words, &format!("file://{}", file.display()));
    let log = String::from_utf8_lossy(&output.stderr);
    let complaint = |line: &&str| {
        line.contains("CONSOLE") || line.contains("Refused") || line.contains("net_error")
    };
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    (title.unwrap_or("no title").to_owned(), log.lines().find(complaint).map(str::to_owned))
}

/// Draws a page with a script that writes its findings into the title; returns the title. Fails
/// where the browser reports an error, or requests anything beyond the page.
pub fn title(browser: &str, dir: &Path, [name, page]: [&str; 2], scheme: u8, size: &str) -> String {
    let (title, complaint) = titled(browser, dir, [name, page], scheme, size);
    assert_eq!(complaint, None, "{name} {size}");
    title
}

/// A picture of a page that a server on 127.0.0.1 delivers with these header lines: its bytes.
pub fn picture(browser: &str, dir: &Path, page: &str, header: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    let over = AtomicBool::new(false);
    let file = dir.join("picture.png");
    let _ = std::fs::remove_file(&file);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{header}Connection: \
         close\r\n\r\n{page}",
        page.len()
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                let mut stream = stream.expect("a connection");
                // A browser may open a connection that it does not use.
                let answer = &answer;
                scope.spawn(move || {
                    if stream.read(&mut [0; 4_096]).is_ok_and(|bytes| bytes > 0) {
                        let _ = stream.write_all(answer.as_bytes());
                    }
                });
            }
        });
        let shot = format!("--screenshot={}", file.display());
        // A picture is of the whole page: without the last word a busy machine takes it half-drawn.
        let stages = "--run-all-compositor-stages-before-draw";
        let words = ["--window-size=1200,2400", "--hide-scrollbars", &shot, stages];
        let output = run(browser, dir, &words, &format!("http://{address}/"));
        over.store(true, Relaxed);
        let _ = TcpStream::connect(address);
        let stderr = String::from_utf8_lossy(&output.stderr);
        std::fs::read(&file).unwrap_or_else(|error| panic!("no picture: {error}: {stderr}"))
    })
}
