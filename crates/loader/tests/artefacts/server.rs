//! The code server and its client: what is served, and servers that stall, cheat or never end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nilometer_loader::Store;
use nilometer_loader::code_server::serve;
use nilometer_loader::fetch::{CodeServer, WITHIN};
use nilometer_loader::index::{Entry, INDEX, Index, is_artefact_name};

use super::{artefact, key, scratch, version};

/// Our own server, until it is dropped.
struct Serving {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn of(directory: &Path) -> Serving {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let (directory, stopped) = (directory.to_owned(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            serve(&directory, listener, &stopped, |_, _| {}).expect("served");
        });
        Serving { address, stop, thread: Some(thread) }
    }

    fn client(&self) -> CodeServer {
        CodeServer::at(&format!("http://{}", self.address), WITHIN).expect("a server")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A directory with an index and these artefacts.
fn directory(name: &str, versions: &[&str]) -> std::path::PathBuf {
    let directory = scratch(name);
    let mut index = Index::default();
    for (number, text) in versions.iter().enumerate() {
        let bytes = artefact(text, number as u64);
        let file = format!("idle-{text}.nmp");
        std::fs::write(directory.join(&file), &bytes).expect("written");
        let (name, version) = ("idle".to_owned(), version(text));
        index.add(Entry { name, version, file, bytes: bytes.len() as u64 });
    }
    std::fs::write(directory.join(INDEX), index.text().expect("a text")).expect("written");
    directory
}

fn message(outcome: anyhow::Result<impl Sized>) -> String {
    let error = outcome.err().expect("refused");
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn the_newest_version_is_fetched_and_installed() {
    let serving = Serving::of(&directory("served", &["1.9.0", "1.10.0", "2.0.0-alpha"]));
    let bytes = serving.client().artefact("idle", None).expect("fetched");
    assert_eq!(bytes, artefact("1.10.0", 1));
    let older = serving.client().artefact("idle", Some(&version("1.9.0"))).expect("fetched");
    assert_eq!(older, artefact("1.9.0", 0));
    let store = Store::new(&scratch("served-store"));
    store.trust_key(&key(1).public()).expect("trusted");
    store.install(&bytes, Some(("idle", None)), false).expect("installed");
    let client = serving.client();
    assert_eq!(message(client.artefact("nat", None)), "the code server has no nat");
    let none = message(client.artefact("idle", Some(&version("3.0.0"))));
    assert_eq!(none, "the code server has no idle 3.0.0");
}

/// What our server answers to raw bytes.
fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn nothing_but_artefacts_is_served() {
    let room = directory("closed", &["1.0.0"]);
    std::fs::write(room.join("secret"), "a key").expect("written");
    std::os::unix::fs::symlink("secret", room.join("link.nmp")).expect("a link");
    let serving = Serving::of(&room);
    let get = |path: &str| raw(serving.address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert!(get("/index.json").starts_with("HTTP/1.1 200"));
    assert!(get("/idle-1.0.0.nmp").starts_with("HTTP/1.1 200"));
    for path in ["/secret", "/link.nmp", "/../secret", "/%2e%2e/secret", "/..nmp", "//etc/passwd"] {
        assert!(get(path).starts_with("HTTP/1.1 404"), "{path}: {}", get(path));
    }
    let posted = raw(serving.address, "POST /index.json HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
    assert!(!is_artefact_name("../a.nmp") && !is_artefact_name(".nmp") && !is_artefact_name("a"));
}

/// A server that answers each connection as it likes.
fn cheat(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 1_024];
            let length = stream.read(&mut request).unwrap_or(0);
            let line = String::from_utf8_lossy(&request[..length]).into_owned();
            answer(&mut stream, line.lines().next().unwrap_or_default());
        }
    });
    address
}

fn client(address: SocketAddr, within: Duration) -> CodeServer {
    CodeServer::at(&format!("http://{address}"), within).expect("a server")
}

#[test]
fn a_server_that_stalls_is_given_up() {
    for begin in ["", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"] {
        let address = cheat(move |stream, _| {
            let _ = stream.write_all(begin.as_bytes());
            thread::sleep(Duration::from_secs(5));
        });
        let begun = Instant::now();
        let line = message(client(address, Duration::from_millis(300)).index());
        assert!(line.ends_with("it did not come within 0.3 s"), "{line}");
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn a_server_that_does_not_end_or_breaks_off_is_refused() {
    let address = cheat(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        let piece = [b' '; 65_536];
        while stream.write_all(&piece).is_ok() {}
    });
    let line = message(client(address, Duration::from_secs(20)).index());
    assert!(line.contains("more than 4194304 bytes come"), "{line}");
    let address = cheat(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}");
    });
    let line = message(client(address, WITHIN).index());
    assert!(line.contains("the answer breaks off"), "{line}");
    let address = cheat(|stream, _| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
    });
    message(client(address, WITHIN).index());
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    assert!(message(client(free, WITHIN).index()).contains("no code server answers"));
}

#[test]
fn a_server_that_sends_another_file_is_refused() {
    let other = artefact("1.0.0", 1);
    let index = |bytes: usize, file: &str| {
        let entry = format!(
            "{{\"name\":\"idle\",\"version\":\"2.0.0\",\"file\":\"{file}\",\"bytes\":{bytes}}}"
        );
        format!("{{\"format\":\"nilometer-plugin-index/1\",\"plugins\":[{entry}]}}")
    };
    let answers = move |index: String, artefact: Vec<u8>| {
        cheat(move |stream, line| {
            let body = if line.contains(INDEX) { index.as_bytes() } else { &artefact };
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(body);
        })
    };
    let store = Store::new(&scratch("cheated"));
    store.trust_key(&key(1).public()).expect("trusted");
    // An old version, rightly signed, in the place of the new one.
    let address = answers(index(other.len(), "idle-2.0.0.nmp"), other.clone());
    let wanted = version("2.0.0");
    let bytes = client(address, WITHIN).artefact("idle", Some(&wanted)).expect("bytes");
    let line = message(store.install(&bytes, Some(("idle", Some(&wanted))), false));
    assert_eq!(line, "got idle 1.0.0 instead of idle 2.0.0");
    // Fewer bytes than the index says, and a file elsewhere.
    let address = answers(index(99_999, "idle-2.0.0.nmp"), other.clone());
    let line = message(client(address, WITHIN).artefact("idle", None));
    assert!(line.contains("the index says 99999"), "{line}");
    let address = answers(index(other.len(), "../../etc/passwd"), other);
    let line = message(client(address, WITHIN).artefact("idle", None));
    assert!(line.contains("it names the file"), "{line}");
}

#[test]
fn urls_are_plain_http() {
    for url in ["https://a", "a", "http://", "http://a b", "http://user@host", "http://a/?q"] {
        assert!(CodeServer::at(url, WITHIN).is_err(), "{url}");
    }
    let shown = |url: &str| CodeServer::at(url, WITHIN).expect("a server").to_string();
    assert_eq!(shown("http://host"), "http://host:80/");
    assert_eq!(shown("http://[::1]:8080/plugins/"), "http://[::1]:8080/plugins/");
}
