//! Plugins from a code server on a live router under load: fetched, bound to a flow, replaced and removed, over and over.

use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hyper::Method;
use nilometer_loader::artefact::Manifest;
use nilometer_loader::index::{Entry, INDEX, Index};
use nilometer_loader::keys::SecretKey;
use nilometer_loader::{Store, code_server};
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::command_channel::BETWEEN_QUESTIONS;
use serde_json::json;

use super::site::{LEFT, PATIENCE, RIGHT, ROUTER, Site, Stand, ask, privileged};
use crate::common::Room;
use crate::module::Module;

/// How often in the test that always runs.
const ROUNDS: u16 = 100;
/// Flows; the second is the plugin's.
const FLOWS: usize = 3;
pub(super) const BOUND: usize = 1;
/// Between two packets of a flow.
const BETWEEN: Duration = Duration::from_micros(250);
/// From a request that names an artefact which is here to the first packet that its plugin processes.
const WITHIN: Duration = Duration::from_millis(10);

/// The artefact of a module that writes its number into packets of UDP, once and inverted, so that the checksum holds.
fn artefact(number: u16, key: &SecretKey) -> (Manifest, Vec<u8>) {
    let [high, low] = number.to_be_bytes();
    let mark = u32::from_le_bytes([high, low, !high, !low]);
    let packet = format!(
        "(i32.store offset=28 (i32.load (local.get $at)) (i32.const {mark}))
         (i32.store16 offset=12 (local.get $at) (i32.const 0x0100))"
    );
    let (name, seen_bytes, globals, message) = ("mark", 32, "", "");
    Module { name, number, seen_bytes, globals, packet: &packet, message }.signed(key)
}

/// A code server, and the key that signs its artefacts.
pub(super) struct Publisher {
    directory: PathBuf,
    index: Index,
    pub(super) key: SecretKey,
    pub(super) url: String,
    /// Requested artefacts.
    pub(super) requests: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    server: JoinHandle<()>,
}

impl Publisher {
    pub(super) fn start(room: &Room) -> Publisher {
        let directory = room.path("published");
        std::fs::create_dir_all(&directory).expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (stop, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, served) =
            (Arc::clone(&stop), Arc::clone(&requests), directory.clone());
        let server = thread::spawn(move || {
            let seen = move |path: &str, status| {
                let is_artefact = path.ends_with(".nmp") && status == 200;
                counted.fetch_add(u64::from(is_artefact), Ordering::Relaxed);
            };
            code_server::serve(&served, listener, &stopped, seen).expect("it serves");
        });
        let (index, key) = (Index::default(), SecretKey::new([7; 32]));
        Publisher { directory, index, key, url, requests, stop, server }
    }

    /// Publishes the module of a number; the file.
    pub(super) fn publish(&mut self, number: u16) -> PathBuf {
        let (manifest, artefact) = artefact(number, &self.key);
        let (file, bytes) = (manifest.file_name(), artefact.len() as u64);
        let path = self.directory.join(&file);
        std::fs::write(&path, artefact).expect("written");
        let Manifest { name, version, .. } = manifest;
        self.index.add(Entry { name, version, file, bytes });
        let text = self.index.text().expect("JSON");
        std::fs::write(self.directory.join(INDEX), text).expect("written");
        path
    }

    pub(super) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.server.join().expect("no panic");
    }
}

/// The received packets of a flow: numbers that plugins wrote, each with when it was first seen.
#[derive(Default)]
struct Came {
    runs: Vec<(u16, Instant)>,
    packets: u32,
    /// The first packet out of sequence: its number, and the expected one.
    other: Option<(u32, u32)>,
}

impl Came {
    fn note(&mut self, bytes: &[u8]) {
        let mark = u16::from_be_bytes([bytes[0], bytes[1]]);
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if number != self.packets && self.other.is_none() {
            self.other = Some((number, self.packets));
        }
        self.packets += 1;
        if self.runs.last().is_none_or(|last| last.0 != mark) {
            self.runs.push((mark, Instant::now()));
        }
    }
}

/// Sends until something passes: the first may find the host's own address table empty.
fn pass_one(near: &UdpSocket, far: &UdpSocket) {
    let (began, mut bytes) = (Instant::now(), [0; 64]);
    while far.recv(&mut bytes).is_err() {
        assert!(began.elapsed() < PATIENCE, "nothing passes");
        near.send(b"first").expect("it is sent");
    }
    while far.recv(&mut bytes).is_ok() {}
}

/// Flows whose packets are numbered.
pub(super) struct Flows {
    came: Vec<Arc<Mutex<Came>>>,
    pub(super) ports: Vec<u16>,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u32>,
    receivers: Vec<JoinHandle<()>>,
}

impl Flows {
    pub(super) fn start(site: &Site) -> Flows {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut came, mut ports, mut near, mut receivers) = (vec![], vec![], vec![], vec![]);
        for _ in 0..FLOWS {
            let far = site.right.enter(|| Ok(UdpSocket::bind((RIGHT, 0))?)).expect("a socket");
            let from = site.left.enter(|| Ok(UdpSocket::bind((LEFT, 0))?)).expect("a socket");
            far.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
            socket2::SockRef::from(&far).set_recv_buffer_size(4 << 20).expect("a buffer");
            let address = far.local_addr().expect("an address");
            from.connect(address).expect("a way");
            pass_one(&from, &far);
            let (of_flow, over) = (Arc::<Mutex<Came>>::default(), Arc::clone(&stop));
            came.push(Arc::clone(&of_flow));
            receivers.push(thread::spawn(move || {
                let mut bytes = [0; 128];
                loop {
                    match far.recv(&mut bytes) {
                        Ok(_) => of_flow.lock().expect("it").note(&bytes),
                        Err(_) if over.load(Ordering::Relaxed) => return,
                        Err(_) => {}
                    }
                }
            }));
            ports.push(address.port());
            near.push(from);
        }
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let mut sent = 0u32;
            while !stopped.load(Ordering::Relaxed) {
                let mut bytes = [0x5a; 64];
                bytes[..4].copy_from_slice(&[0, 0, 0xff, 0xff]);
                bytes[4..8].copy_from_slice(&sent.to_be_bytes());
                for socket in &near {
                    socket.send(&bytes).expect("it is sent");
                }
                sent += 1;
                thread::sleep(BETWEEN);
            }
            sent
        });
        Flows { came, ports, stop, sender, receivers }
    }

    fn of(&self, flow: usize) -> MutexGuard<'_, Came> {
        self.came[flow].lock().expect("no panic")
    }

    /// When the first packet came that has this number, since another had.
    pub(super) fn first_with(&self, number: u16) -> Instant {
        let began = Instant::now();
        loop {
            if let Some((_, first)) = self.of(BOUND).runs.last().filter(|last| last.0 == number) {
                return *first;
            }
            assert!(began.elapsed() < PATIENCE, "no packet has the number {number}");
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Ends them and asserts that nothing was lost or reordered. Returns the numbers in the packets of the bound
    /// flow.
    pub(super) fn end(self) -> Vec<u16> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("no panic");
        self.receivers.into_iter().for_each(|receiver| receiver.join().expect("no panic"));
        for (flow, came) in self.came.iter().enumerate() {
            let came = came.lock().expect("no panic");
            assert_eq!((came.packets, came.other), (sent, None), "flow {flow}: sent and came");
            let is_touched = came.runs.iter().any(|(number, _)| *number != 0);
            assert_eq!(is_touched, flow == BOUND, "flow {flow}");
        }
        let came = self.came[BOUND].lock().expect("no panic");
        came.runs.iter().map(|(number, _)| *number).collect()
    }
}

/// Times from a request to the first packet that its plugin processed.
#[derive(Default)]
struct Times {
    entered: Vec<Duration>,
    replaced: Vec<Duration>,
}

impl Times {
    /// Median and maximum.
    fn of(times: &mut [Duration]) -> [Duration; 2] {
        times.sort_unstable();
        [times[times.len() / 2], times[times.len() - 1]]
    }
}

/// One router, as many rounds: each time two new versions of a plugin are published, and the flow meets them in turn,
/// first as the code server sends them, then as they are kept.
fn from_the_code_server(name: &str, rounds: u16) -> [Times; 2] {
    let room = Room::new(name);
    let mut publisher = Publisher::start(&room);
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a router");
    config.control.code_server = Some(publisher.url.clone());
    config.control.plugin_directory = Some(room.path("store"));
    Store::new(&room.path("store")).trust_key(&publisher.key.public()).expect("written");
    let stand = Stand::build(Site::new().expect("hosts"), room, config).expect("a router");
    let flows = Flows::start(&stand.site);
    let done = |method: &Method, path: &str, body: Option<serde_json::Value>| {
        let (status, value) = stand.ask(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {value}");
        value
    };
    flows.first_with(0);
    let mut times = [Times::default(), Times::default()];
    let mut expected = vec![0];
    for round in 0..rounds {
        let [one, two] = [2 * round + 1, 2 * round + 2];
        for number in [one, two] {
            publisher.publish(number);
        }
        let filter = json!({"action": "active", "plugins": ["flow"], "protocol": "udp",
            "destination_ports": flows.ports[BOUND].to_string()});
        for times in &mut times {
            // (The control processor serves a request when some time has passed since the one before.)
            thread::sleep(BETWEEN_QUESTIONS);
            let began = Instant::now();
            let section = json!({"name": "flow", "class": format!("mark@0.0.{one}")});
            done(&Method::POST, "/v1/plugins", Some(section));
            let filter = done(&Method::POST, "/v1/filters", Some(filter.clone()));
            times.entered.push(flows.first_with(one) - began);
            let began = Instant::now();
            let class = json!({"class": format!("mark@0.0.{two}")});
            done(&Method::PUT, "/v1/plugins/flow", Some(class));
            times.replaced.push(flows.first_with(two) - began);
            done(&Method::DELETE, &format!("/v1/filters/{}", filter["id"]), None);
            done(&Method::DELETE, "/v1/plugins/flow", None);
            flows.first_with(0);
            expected.extend([one, two, 0]);
        }
    }
    let fetched = publisher.requests.load(Ordering::Relaxed);
    assert_eq!(fetched, 2 * u64::from(rounds), "each version once");
    // One that was changed on the server is refused.
    let file = publisher.publish(u16::MAX);
    let mut artefact = std::fs::read(&file).expect("it is there");
    *artefact.last_mut().expect("not empty") ^= 1;
    std::fs::write(&file, artefact).expect("written");
    let section = json!({"name": "flow", "class": format!("mark@0.0.{}", u16::MAX)});
    let (status, why) = stand.ask(&Method::POST, "/v1/plugins", Some(section));
    assert!(status == 400 && why.to_string().contains("digest"), "{status} {why}");
    assert_eq!(flows.end(), expected, "no packet of the flow went without one in a replacement");
    stand.end();
    publisher.end();
    times
}

fn report(times: &mut [Times; 2]) -> [Duration; 2] {
    for (kind, times) in ["fetched", "kept"].into_iter().zip(&mut *times) {
        for (what, some) in [("entered", &mut times.entered), ("replaced", &mut times.replaced)] {
            let [median, most] = Times::of(some);
            println!("{kind}, {what}: first packet after {median:.1?}, at most {most:.1?}");
        }
    }
    let kept = &mut times[1];
    let [entered, replaced] = [Times::of(&mut kept.entered), Times::of(&mut kept.replaced)];
    [entered[0].max(replaced[0]), entered[1].max(replaced[1])]
}

#[test]
fn plugins_of_a_code_server_come_and_go_under_load_and_soon() {
    if !privileged("plugins of a code server") {
        return;
    }
    let mut times = from_the_code_server("code-server", ROUNDS);
    // (How long they take depends on the machine when other tests run beside this one: only that they come soon is
    // asserted here, not how soon.)
    let [median, _] = report(&mut times);
    assert!(median < 100 * WITHIN, "{median:?}");
}

#[test]
fn a_code_server_that_stalls_keeps_no_other_request_waiting() {
    if !privileged("plugins of a code server") {
        return;
    }
    let stalling = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", stalling.local_addr().expect("an address"));
    let room = Room::new("code-server-stalls");
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a router");
    config.control.code_server = Some(url);
    config.control.plugin_directory = Some(room.path("store"));
    let stand = Stand::build(Site::new().expect("hosts"), room, config).expect("a router");
    let counter = json!({"name": "one", "class": "counter"});
    assert_eq!(stand.ask(&Method::POST, "/v1/plugins", Some(counter)).0, 201);
    let class = json!({"class": "mark@0.0.1"}).to_string();
    let section = json!({"name": "two", "class": "mark@0.0.1"}).to_string();
    let (address, waiting) = (&stand.address, AtomicU64::new(2));
    thread::scope(|scope| {
        for (method, path, body) in
            [(Method::PUT, "/v1/plugins/one", class), (Method::POST, "/v1/plugins", section)]
        {
            let waiting = &waiting;
            scope.spawn(move || {
                let (status, why) = ask(address, &method, path, Some(body));
                waiting.fetch_sub(1, Ordering::Relaxed);
                assert_eq!(status, 400, "{why}");
            });
        }
        // One fetches, and the other waits for that.
        let fetched = stalling.accept().expect("a request");
        let permit = json!({"action": "permit", "protocol": "udp"});
        let (status, filter) = stand.ask(&Method::POST, "/v1/filters", Some(permit));
        assert_eq!(status, 201, "{filter}");
        let message = json!({"configuration": ""});
        assert_eq!(stand.ask(&Method::PUT, "/v1/plugins/one", Some(message)).0, 200);
        assert_eq!(waiting.load(Ordering::Relaxed), 2, "both still wait for the code server");
        drop((fetched, stalling));
    });
    let plugins = stand.get("/v1/plugins");
    assert_eq!(plugins["plugins"].as_array().map(Vec::len), Some(1), "{plugins}");
    stand.end();
}

/// `cargo test --release -p nilometer --test control_plane a_thousand_times -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes, and wants the machine for itself"]
fn plugins_of_a_code_server_come_and_go_a_thousand_times() {
    if !privileged("plugins of a code server") {
        return;
    }
    let mut times = from_the_code_server("code-server-often", 1_000);
    let [_, most] = report(&mut times);
    assert!(most < WITHIN, "{most:?}");
}
