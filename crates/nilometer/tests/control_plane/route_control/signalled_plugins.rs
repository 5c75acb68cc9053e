//! Plugins that a flow's one-packet setup names, on a live router: bound soon, shown, refused, and gone with the setup.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nilometer_loader::Store;
use nilometer_reservation::Upcall;
use nilometer_reservation::message::{FlowPlugins, FlowSpec, NamedPlugin, Sender, Session, Tspec};
use nilometer_reservation::process::SetupRequest;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::rsvp_host::RsvpHost;
use nilometer_wire::Span;
use serde_json::{Value, json};

use super::code_server::{BOUND, Flows, Publisher};
use super::ctl::{done, refused};
use super::reservations::{REFRESH, host};
use super::site::{LEFT, PATIENCE, RIGHT, ROUTER, Site, Stand, privileged};
use crate::common::Room;

/// Flows that are set up one after the other, each twice.
const ROUNDS: u16 = 20;
/// The longest time, on any machine, from the signalling packet to the first packet that the plugin of a local
/// artefact processes. (How soon it is on ours is in SPECIFICATION.md.)
const WITHIN: Duration = Duration::from_secs(1);

/// A router that knows a code server, flows through it, and a host that signals for one of them.
struct Signalled {
    publisher: Publisher,
    stand: Stand,
    flows: Flows,
    host: RsvpHost,
    session: Session,
    sender: Sender,
}

impl Signalled {
    /// Setups may name the classes `mark` and `nowhere`.
    fn new(name: &str, refresh: Span) -> Signalled {
        let room = Room::new(name);
        let publisher = Publisher::start(&room);
        let section = "[reservations]\nrsvp = true\nplugins = [\"mark\", \"nowhere\"]\n";
        let mut config: RouterConfig =
            toml::from_str(&format!("{section}{ROUTER}")).expect("a router");
        config.control.code_server = Some(publisher.url.clone());
        config.control.plugin_directory = Some(room.path("store"));
        Store::new(&room.path("store")).trust_key(&publisher.key.public()).expect("written");
        let stand = Stand::build(Site::new().expect("hosts"), room, config).expect("a router");
        let flows = Flows::start(&stand.site);
        let host = host(&stand.site.left, LEFT, refresh);
        let port = flows.ports[BOUND];
        Signalled {
            publisher,
            stand,
            flows,
            host,
            session: Session { destination: RIGHT.into(), protocol: 17, port },
            sender: Sender { source: LEFT.into(), port: 0 },
        }
    }

    /// Sends a setup that names this class; when.
    fn set_up(&mut self, class: &str) -> Instant {
        let named = NamedPlugin { class: class.to_owned(), configuration: String::new() };
        let request = SetupRequest {
            session: self.session,
            sender: self.sender,
            flowspec: FlowSpec::controlled_load(Tspec::new(1_000_000.0, 3_000.0)),
            route: None,
            plugins: Some(FlowPlugins::new(vec![named]).expect("it fits")),
        };
        let began = Instant::now();
        self.host.set_up(request).expect("a way");
        began
    }

    fn release(&mut self) {
        self.host.take_back(self.session, self.sender).expect("sent");
    }

    fn reservations(&self) -> Vec<Value> {
        let view = self.stand.get("/v1/reservations");
        view["reservations"].as_array().expect("a list").clone()
    }

    /// Returns when nothing is reserved or bound any more.
    fn wait_until_gone(&self) {
        let began = Instant::now();
        loop {
            let (filters, plugins) = (self.stand.get("/v1/filters"), self.stand.get("/v1/plugins"));
            let left = (self.reservations(), &filters["filters"], &plugins["plugins"]);
            if left == (vec![], &json!([]), &json!([])) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{left:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends all; the numbers that plugins wrote into packets of the flow, one after the other.
    fn end(self) -> Vec<u16> {
        let met = self.flows.end();
        self.stand.end();
        self.publisher.end();
        met
    }
}

#[test]
fn a_signalling_packet_binds_plugins_to_its_flow_and_soon() {
    if !privileged("plugins named by signalling") {
        return;
    }
    let mut site = Signalled::new("signalled", Span::from_secs(30));
    site.flows.first_with(0);
    let (mut times, mut expected) = ([vec![], vec![]], vec![0]);
    for number in 1..=ROUNDS {
        site.publisher.publish(number);
        let class = format!("mark@0.0.{number}");
        // As the code server has it, then as it is kept.
        for times in &mut times {
            thread::sleep(Duration::from_millis(5));
            let began = site.set_up(&class);
            times.push(site.flows.first_with(number) - began);
            let one = site.reservations().remove(0);
            let instance = format!("reservation-{}.0", one["id"]);
            let named = json!([{"class": class, "configuration": "", "instance": instance}]);
            assert_eq!((&one["kind"], &one["plugins"]), (&json!("flow_setup"), &named));
            let plugin = site.stand.get("/v1/plugins")["plugins"][0].clone();
            assert_eq!(plugin["name"], instance);
            assert!(plugin["packets"].as_u64() > Some(0), "{plugin}");
            site.release();
            site.flows.first_with(0);
            site.wait_until_gone();
            expected.extend([number, 0]);
        }
    }
    let fetched = site.publisher.requests.load(Ordering::Relaxed);
    assert_eq!(fetched, u64::from(ROUNDS), "each version once");
    assert_eq!(site.end(), expected, "from the first packet on until the setup was released");
    for (what, times) in ["fetched", "kept"].into_iter().zip(&mut times) {
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "{what}: first packet {median:.1?} after the signalling packet, at most {most:.1?}"
        );
    }
    assert!(times[1].iter().all(|time| *time < WITHIN), "{times:?}");
}

/// What the far host receives of a setup: routers that reserved, and whether all did all.
fn received_setups(far: &mut RsvpHost, times: usize) -> Vec<(u32, bool)> {
    let (began, mut received_setups) = (Instant::now(), Vec::new());
    while received_setups.len() < times {
        assert!(began.elapsed() < PATIENCE, "{received_setups:?}");
        received_setups.extend(far.turn().expect("it is up").into_iter().filter_map(|upcall| {
            match upcall {
                Upcall::FlowSetup { hops, is_broken, .. } => Some((hops, is_broken)),
                _ => None,
            }
        }));
    }
    received_setups
}

/// The router's messages that contain `part`, as soon as there are any.
fn messages_with(site: &Signalled, part: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        let view = site.stand.get("/v1/messages");
        let all = view["messages"].as_array().expect("a list").clone();
        let texts = all.iter().filter_map(|message| message["text"].as_str());
        let lines: Vec<_> = texts.filter(|text| text.contains(part)).map(str::to_owned).collect();
        if !lines.is_empty() {
            return lines;
        }
        assert!(began.elapsed() < PATIENCE, "{part}: {view}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn refused_plugins_are_reported_and_those_of_a_dead_host_end() {
    if !privileged("refused plugins of signalling") {
        return;
    }
    let mut site = Signalled::new("signalled-refused", Span::from_secs(1));
    let mut far = host(&site.stand.site.right, RIGHT, REFRESH);
    // A class that flows may not name is refused at once.
    site.set_up("counter");
    assert_eq!(received_setups(&mut far, 1), [(1, true)]);
    let one = site.reservations().remove(0);
    assert_eq!(one["plugins"], json!([]), "bandwidth alone");
    assert_eq!(messages_with(&site, "may name the plugin class \"counter\"").len(), 1);
    // One that is nowhere is refused when that is known, by a message of its own.
    site.set_up("nowhere");
    assert_eq!(received_setups(&mut far, 2), [(1, false), (1, true)]);
    let lines = messages_with(&site, "nowhere");
    assert!(lines.len() == 1 && lines[0].contains("refused"), "{lines:?}");
    assert_eq!(site.reservations()[0]["plugins"], json!([]));
    // So is an artefact that was changed on its way.
    let file = site.publisher.publish(9);
    let mut artefact = std::fs::read(&file).expect("it is there");
    *artefact.last_mut().expect("not empty") ^= 1;
    std::fs::write(&file, artefact).expect("written");
    site.set_up("mark@0.0.9");
    assert_eq!(received_setups(&mut far, 2), [(1, false), (1, true)]);
    let lines = messages_with(&site, "digest");
    assert!(lines.len() == 1 && lines[0].contains("mark@0.0.9"), "{lines:?}");
    // A reservation that a host refreshes persists, and ends when the host dies.
    site.publisher.publish(3);
    let began = site.set_up("mark@0.0.3");
    site.flows.first_with(3);
    while began.elapsed() < Duration::from_secs(7) {
        site.host.turn().expect("it is up");
    }
    assert_eq!(site.reservations()[0]["plugins"][0]["class"], "mark@0.0.3");
    site.flows.first_with(0);
    site.wait_until_gone();
    assert_eq!(site.end(), [0, 3, 0]);
}

#[test]
fn reservations_of_the_api_may_have_plugins() {
    if !privileged("plugins of reservations by API") {
        return;
    }
    let stand = Stand::new("reserve-plugin", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    let to = format!("destination={RIGHT}");
    let reserve = ["reserve", "holder=me", &to, "protocol=udp", "rate=10mbit"];
    let with = |plugins: &[&'static str]| [&reserve[..], plugins].concat();
    let chain = ["--plugin", "remarker dscp=10", "--plugin", "counter"];
    let made = done(&stand, &with(&chain));
    let id = made.split(' ').nth(1).expect("a number").to_owned();
    let began = Instant::now();
    let plugins = loop {
        let view = stand.get("/v1/plugins");
        let all = view["plugins"].as_array().expect("a list").clone();
        if all.len() == 2 && all.iter().all(|plugin| plugin["packets"].as_u64() > Some(20)) {
            break all;
        }
        assert!(began.elapsed() < PATIENCE, "{view}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(plugins[0]["name"], format!("reservation-{id}.0"));
    assert!(plugins[0]["counters"]["remarked"].as_u64() > Some(20), "{}", plugins[0]);
    let shown = done(&stand, &["reservations"]);
    assert!(shown.contains("remarker, counter") && shown.contains("PLUGINS"), "{shown}");
    // They go with the reservation, and with nothing else; they are not saved.
    refused(&stand, &["filters", "del", "0"], "is of reservation");
    refused(&stand, &["plugin", "del", &format!("reservation-{id}.1")], "remove them first");
    done(&stand, &["save", "saved.toml"]);
    let saved = stand.room.read("saved.toml");
    assert!(!saved.contains("[[plugin]]") && !saved.contains("[[filter]]"), "{saved}");
    // Another classifier finds them as well.
    stand.put("/v1/classifier", json!({"classifier": "tuples"}));
    let of = |stand: &Stand| stand.get("/v1/plugins")["plugins"][1]["packets"].as_u64();
    let before = of(&stand);
    flow.wait_for(50);
    assert!(of(&stand) >= before.map(|packets| packets + 40));
    // Filters of the operator go first, whenever they were entered.
    assert_eq!(done(&stand, &["filters", "add", "action=permit"]), "filter 1 is entered\n");
    let before = of(&stand);
    flow.wait_for(50);
    assert_eq!(of(&stand), before);
    done(&stand, &["filters", "del", "1"]);
    done(&stand, &["release", &id]);
    while stand.get("/v1/plugins") != json!({"plugins": []}) {
        assert!(began.elapsed() < PATIENCE, "{}", stand.get("/v1/plugins"));
    }
    assert_eq!(stand.get("/v1/filters")["filters"], json!([]));
    refused(&stand, &with(&["--plugin", "teleporter"]), "there is no plugin class \"teleporter\"");
    refused(&stand, &with(&["--plugin", "policer"]), "the configuration is refused");
    refused(&stand, &with(&["--plugin", "a b/c", "--plugin", "../x"]), "plugins: a class is");
    assert_eq!(stand.get("/v1/reservations")["reservations"], json!([]));
    let (sent, came) = flow.end();
    assert_eq!(sent, came);
    stand.end();
}
