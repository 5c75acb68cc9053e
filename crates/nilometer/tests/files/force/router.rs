//! A stand-in for a running router: it answers on its control socket, and there is no traffic.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use nilometer_files::table::capture;

/// Starts it; it ends with the process of the test.
pub fn start(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a socket");
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
}

/// A configuration, or a capture without packets.
fn answer(mut stream: UnixStream) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let body = match first.contains("/v1/trace") {
        true => capture::beginning(),
        false => b"version = 1\n".to_vec(),
    };
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // The client may be gone: that is for the test to report.
    let _ = stream.write_all(&[head.as_bytes(), &body].concat());
}
