//! A router recorded while it forwards repeats its decisions one by one in virtual time.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nilometer_files::document::guard_output;
use nilometer_linux::namespace::Namespace;
use nilometer_loader::Store;
use nilometer_loader::keys::SecretKey;
use nilometer_reservation::Arrival;
use nilometer_reservation::message::{
    AdSpec, FlowPlugins, FlowSetup, FlowSpec, Hop as PreviousHop, Message, NamedPlugin, Sender,
    Session, Tspec,
};
use nilometer_reservation::process::{NextHop, Routing};
use nilometer_router::{Hop, Member, Point};
use nilometer_routerd::assemble::Options;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::Control;
use nilometer_routerd::control::command_channel::CommandChannel;
use nilometer_routerd::control::plugins::{MessageBody, PluginBody};
use nilometer_routerd::control::view::{FabricBody, RateBody};
use nilometer_routerd::recording::event::{self, Beginning, Input, Reader, Response};
use nilometer_routerd::recording::replay::{Replay, Replayed, replay};
use nilometer_routerd::rib_thread::StaticRoute;
use nilometer_routerd::routes::read_prefix;
use nilometer_routerd::running::Running;
use socket2::{Domain, Socket, Type};

use super::links::{link, settle};
use super::privileged;
use crate::common::Room;
use crate::module::Module;

const PORT: u16 = 9;
/// Decisions of a run at least.
const DECISIONS: u64 = 100_000;
const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Events of a turn of three ports, at most.
const A_TURN: u64 = 24;
/// Datagrams a second.
const LOAD_PPS: f64 = 45_000.0;

/// The receiver at port `number`, from 1.
fn receiver(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, number, 2)
}

fn member(hop: Hop) -> Member {
    Member { hop, weight: 1 }
}

/// A router with a sender at p0 and a receiver at every other port.
struct Hub {
    router: Namespace,
    sender: Namespace,
    _receivers: Vec<Namespace>,
}

impl Hub {
    fn new(ports: u8) -> Result<Hub> {
        let (router, sender) = (Namespace::new()?, Namespace::new()?);
        link(&router, "p0", &sender, "h0", 0)?;
        settle(
            &sender,
            "h0",
            SENDER,
            Some(("198.19.0.0/16", Ipv4Addr::new(198, 18, 0, 1).into())),
        )?;
        let mut receivers = Vec::new();
        for number in 1..ports {
            let (host, name) = (Namespace::new()?, format!("h{number}"));
            link(&router, &format!("p{number}"), &host, &name, number)?;
            settle(&host, &name, receiver(number), None)?;
            receivers.push(host);
        }
        Ok(Hub { router, sender, _receivers: receivers })
    }
}

/// A description with `ports` ports, each but the first with `lines`.
fn described(ports: u8, head: &str, lines: impl Fn(u8) -> String) -> String {
    let mut text =
        format!("seed = 3\n{head}[[port]]\ninterface = \"p0\"\naddresses = [\"198.18.0.1/24\"]\n");
    for number in 1..ports {
        text += &format!(
            "[[port]]\ninterface = \"p{number}\"\naddresses = [\"198.19.{number}.1/24\"]\n{}",
            lines(number)
        );
    }
    text
}

/// Runs a router of this description under load, recorded, and calls `meanwhile` over and over.
fn recorded(
    description: &str,
    ports: u8,
    bytes: usize,
    to: &Path,
    mut meanwhile: impl FnMut(&Running, &CommandChannel, u64),
) -> Result<()> {
    let hub = Hub::new(ports)?;
    let config: RouterConfig = toml::from_str(description)?;
    let recording = Some(guard_output(to, &[], false, event::MAGIC)?.draft()?);
    let options = Options { allow_foreign: false, recording };
    let running = Running::start_with(Some(&hub.router), config.clone(), options)?;
    running.wait_until_up()?;
    let control = Control::start(&running, &config)?;
    let socket = hub.sender.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_tos_v4(2)?; // ECN-capable: ECT(0)
        socket.bind(&std::net::SocketAddr::from((SENDER, 0)).into())?;
        Ok(UdpSocket::from(socket))
    })?;
    let (began, payload, mut sent) = (Instant::now(), vec![7; bytes], 0u64);
    let mut rounds = 0;
    while sent < DECISIONS + 20_000 {
        let due = (began.elapsed().as_secs_f64() * LOAD_PPS) as u64;
        for _ in 0..due.saturating_sub(sent).min(64) {
            let number = 1 + (sent % u64::from(ports - 1)) as u8;
            // Datagrams that the sender's own link has no room for are not sent.
            let _ = socket.send_to(&payload, (receiver(number), PORT));
            sent += 1;
        }
        thread::sleep(Duration::from_micros(500));
        rounds += 1;
        if rounds % 20 == 0 {
            meanwhile(&running, &control.commands, rounds / 20);
        }
    }
    thread::sleep(Duration::from_millis(300));
    drop(control);
    running.stop()?;
    Ok(())
}

fn replayed(recording: &Path, seed: Option<u64>) -> Replayed {
    replay(&fs::read(recording).expect("a recording")[..], seed).expect("a sound recording")
}

/// An input and the recorded response.
type Event = (Input, Option<Response>);

fn read(recording: &Path) -> (Beginning, Vec<Event>) {
    let bytes = fs::read(recording).expect("a recording");
    let (mut reader, beginning) = Reader::open(&bytes[..]).expect("a recording");
    let mut events = Vec::new();
    while let Some(input) = reader.input().expect("an event") {
        let response = input.has_response().then(|| reader.response().expect("an response"));
        events.push((input, response));
    }
    (beginning, events)
}

fn input(beginning: &Beginning, events: &[Event]) -> Replayed {
    let mut replay = Replay::new(beginning).expect("a router");
    for (input, response) in events {
        replay.apply(input, response.as_ref()).expect("it can be input");
    }
    replay.done().clone()
}

fn same(what: &str, done: &Replayed) {
    println!("{what}: {done:?}");
    assert!(done.complete && done.decisions >= DECISIONS, "{what}: {done:?}");
    assert_eq!((done.differences, &done.first_difference), (0, &None), "{what}");
}

#[test]
fn forwarding_under_route_updates_is_replayed() {
    if !privileged("a recorded router") {
        return;
    }
    let room = Room::new("recorded-routes");
    let path = room.path("routes.nilrec");
    let text = described(3, "", |_| String::new());
    let mut updates = 0;
    recorded(&text, 3, 18, &path, |running, _, round| {
        let prefix = read_prefix("198.19.2.0/25").expect("a prefix");
        let members = match round % 3 {
            0 => vec![],
            1 => vec![member(Hop::Blackhole)],
            _ => vec![member(Hop::Via { port: 1, gateway: Some(receiver(1).into()) })],
        };
        let route = (!members.is_empty()).then_some(StaticRoute { prefix, members });
        running.routes.rib_thread().set_static(route.as_slice());
        updates += 1;
        if round % 20 == 0 {
            running.routes.rib_thread().fail(Point::Port(2));
            running.routes.rib_thread().restore(Point::Port(2));
        }
    })
    .expect("it is recorded");
    assert!(updates > 50, "{updates}");
    same("route updates", &replayed(&path, None));
    let (beginning, mut events) = read(&path);
    // An arrival that is left out is the first difference, and so are two batches that change places.
    let is_batch = |event: &Event| matches!(&event.0, Input::Receive { port: 0, .. });
    let middle = events.len() / 2;
    let at = middle + events[middle..].iter().position(is_batch).expect("a batch");
    let whole = events[at].clone();
    let Input::Receive { frames, .. } = &mut events[at].0 else { unreachable!("a batch") };
    frames.remove(0);
    let first = input(&beginning, &events).first_difference.expect("an arrival is missing");
    assert!((at as u64..at as u64 + A_TURN).contains(&first.event), "{first:?} at {at}");
    events[at] = whole;
    let after = at + 1;
    let next = after + events[after..].iter().position(is_batch).expect("another");
    let (one, other) = (events[at].0.clone(), events[next].0.clone());
    if let (Input::Receive { frames: a, .. }, Input::Receive { frames: b, .. }) = (one, other) {
        let put = |event: &mut Event, new| {
            if let Input::Receive { frames, .. } = &mut event.0 {
                *frames = new;
            }
        };
        put(&mut events[at], b);
        put(&mut events[next], a);
    }
    let first = input(&beginning, &events).first_difference.expect("batches are swapped");
    assert!((at as u64..=next as u64 + A_TURN).contains(&first.event), "{first:?} at {at}");
}

#[test]
fn qsdrr_and_red_under_overload_are_replayed() {
    if !privileged("a recorded router under overload") {
        return;
    }
    let room = Room::new("recorded-queues");
    let path = room.path("queues.nilrec");
    let text = described(3, "", |number| {
        let queue = match number {
            1 => "discipline = \"red\", buffer_bytes = 200000, ecn = true",
            _ => "discipline = \"qsdrr\", buffer_bytes = 200000",
        };
        format!("rate = \"50 Mb/s\"\nqueue = {{ {queue} }}\n")
    });
    recorded(&text, 3, 600, &path, |_, _, _| {}).expect("it is recorded");
    let done = replayed(&path, None);
    same("queues", &done);
    assert!(done.drops >= 1_000 && done.marks >= 100, "{done:?}");
    let other = replayed(&path, Some(4));
    assert!(other.differences > 0 && other.first_difference.is_some(), "{other:?}");
}

#[test]
fn distributed_queueing_of_eight_ports_is_replayed() {
    if !privileged("a recorded router of eight ports") {
        return;
    }
    let room = Room::new("recorded-fabric");
    let path = room.path("fabric.nilrec");
    let head = "[fabric]\nqueueing = \"dq_plus\"\nspeedup = 2.0\nlink_rate = \"20 Mb/s\"\n";
    let text = described(8, head, |_| String::new());
    // Every setting that the data plane follows is changed under load.
    let mut denied = None;
    recorded(&text, 8, 600, &path, |_, commands, round| {
        let is_odd = round % 2 == 1;
        let period = Some(if is_odd { "1 ms" } else { "500 us" }.to_owned());
        commands.set_fabric(FabricBody { period, ..FabricBody::default() }).expect("a period");
        let discipline = if is_odd { "red" } else { "tail_drop" };
        let queue = format!("discipline = \"{discipline}\"\nbuffer_bytes = 60000\n");
        commands.set_queue(2, toml::from_str(&queue).expect("a queue")).expect("it is set");
        let rate = Some(if is_odd { "5 Mb/s" } else { "15 Mb/s" }.to_owned());
        commands.set_rate(3, &RateBody { rate, burst_bytes: None }).expect("a rate");
        denied = match denied.take() {
            Some(id) => commands.remove_filter(id).map(|_| None).expect("it is there"),
            None => {
                let text = "action = \"deny\"\ndestination = \"198.19.4.0/24\"\n";
                let filter = toml::from_str(text).expect("a filter");
                Some(commands.add_filter(filter).expect("room").id)
            }
        };
    })
    .expect("it is recorded");
    let done = replayed(&path, None);
    same("fabric", &done);
    let out = room.run(&["route", "replay", "fabric.nilrec", "--json"]);
    let printed: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&printed["differences"], &printed["first_difference"]), (&0.into(), &().into()));
    let bytes = fs::read(&path).expect("a recording");
    fs::write(room.path("cut.nilrec"), &bytes[..bytes.len() / 2]).expect("a file");
    let printed = room.refused(&["route", "replay", "cut.nilrec"]);
    assert!(printed.contains("cut"), "{printed}");
}

/// Drops one packet of as many as its version's last number and three, or as the digit that it is sent and three.
fn every(number: u16) -> Module<'static> {
    let globals = match number {
        1 => "(global $seen (mut i32) (i32.const 0)) (global $every (mut i32) (i32.const 4))",
        2 => "(global $seen (mut i32) (i32.const 0)) (global $every (mut i32) (i32.const 5))",
        _ => "(global $seen (mut i32) (i32.const 0)) (global $every (mut i32) (i32.const 6))",
    };
    let packet = "(global.set $seen (i32.add (global.get $seen) (i32.const 1)))
        (i32.store8 offset=12 (local.get $at)
          (i32.eqz (i32.rem_u (global.get $seen) (global.get $every))))";
    let message = "(global.set $every (i32.sub (local.get $first) (i32.const 45)))";
    Module { name: "every", number, seen_bytes: 0, globals, packet, message }
}

#[test]
fn labels_are_replayed() {
    if !privileged("a recorded router with labels") {
        return;
    }
    let room = Room::new("recorded-labels");
    let path = room.path("labels.nilrec");
    let head = "[[plugin]]\nname = \"labels\"\nclass = \"mpls\"\nconfiguration = \"push=100@198.19.1.2\"\n\
                [[filter]]\naction = \"active\"\nplugins = [\"labels\"]\ndestination = \"198.19.1.0/24\"\n";
    let text = described(3, head, |_| "mpls = \"labels\"\n".to_owned());
    recorded(&text, 3, 18, &path, |_, commands, round| {
        let message = format!("push={}+17@198.19.{}.2", 16 + round, 1 + round % 2);
        commands.message_plugin("labels", MessageBody { message }).expect("an answer");
    })
    .expect("it is recorded");
    same("labels", &replayed(&path, None));
}

#[test]
fn plugins_that_come_and_go_are_replayed() {
    if !privileged("a recorded router with plugins") {
        return;
    }
    let room = Room::new("recorded-plugins");
    let path = room.path("plugins.nilrec");
    let (store, key) = (Store::new(&room.path("store")), SecretKey::new([5; 32]));
    store.trust_key(&key.public()).expect("written");
    let install = |number| store.install(&every(number).signed(&key).1, None, false);
    install(1).expect("installed");
    let sampler = "every=10 collector=198.19.1.2:4739 source=198.19.1.1:9000";
    let head = format!(
        "[control]\nplugin_directory = {:?}\n\
         [[plugin]]\nname = \"lossy\"\nclass = \"loss\"\nconfiguration = \"rate=0.05 burst=2\"\n\
         [[plugin]]\nname = \"every\"\nclass = \"every\"\n\
         [[plugin]]\nname = \"sampled\"\nclass = \"sampler\"\nconfiguration = \"{sampler}\"\n\
         [[filter]]\naction = \"active\"\nplugins = [\"lossy\", \"every\"]\n\
         destination = \"198.19.1.0/24\"\n\
         [[filter]]\naction = \"active\"\nplugins = [\"sampled\"]\noutputs = [\"p2\"]\n",
        room.path("store")
    );
    let text = described(3, &head, |_| String::new());
    let mut added = None;
    recorded(&text, 3, 18, &path, |_, commands, round| match round % 6 {
        0 => {
            let text = "name = \"more\"\nclass = \"loss\"\nconfiguration = \"rate=0.1\"\n";
            commands.add_plugin(toml::from_str(text).expect("a section")).expect("room");
            let text =
                "action = \"active\"\nplugins = [\"more\"]\nprotocol = \"udp\"\npriority = 7\n";
            let filter = toml::from_str(text).expect("a filter");
            added = Some(commands.add_filter(filter).expect("room").id);
        }
        1 => {
            // Its class has no version here: the newest installed one is used, and the recording must
            // name it.
            if round == 7 {
                install(2).expect("installed");
            }
            commands.replace_plugin("every", PluginBody::default()).expect("it is there");
        }
        2 => {
            let message = (round % 8).to_string();
            commands.message_plugin("every", MessageBody { message }).expect("an answer");
        }
        3 => {
            if let Some(id) = added.take() {
                commands.remove_filter(id).expect("it is there");
                commands.remove_plugin("more").expect("nothing names it");
            }
        }
        _ => {}
    })
    .expect("it is recorded");
    // A version installed after that is not the recorded one.
    install(3).expect("installed");
    let done = replayed(&path, None);
    same("plugins", &done);
    assert!(done.drops >= 5_000, "{done:?}");
    let other = replayed(&path, Some(4));
    assert!(other.differences > 0, "what is lost by chance depends on the seed: {other:?}");
}

/// All is behind the router's port `number`.
struct Behind(u32, IpAddr);

impl Routing for Behind {
    fn route_query(&self, _: IpAddr, to: &mut Vec<NextHop>) {
        to.push(NextHop { port: self.0, address: self.1 });
    }
}

/// A host's setup message for its flow to the first receiver with these plugins, or none.
fn flow_setup(plugins: &[(&str, &str)]) -> Vec<u8> {
    let named = plugins.iter().map(|(class, configuration)| NamedPlugin {
        class: (*class).to_owned(),
        configuration: (*configuration).to_owned(),
    });
    Message::FlowSetup(FlowSetup {
        session: Session { destination: receiver(1).into(), protocol: 17, port: PORT },
        hop: PreviousHop { address: SENDER.into(), handle: 0 },
        refresh_ms: 30_000,
        route: None,
        sender: Sender { source: SENDER.into(), port: 0 },
        flowspec: FlowSpec::controlled_load(Tspec::new(1e6, 3_000.0)),
        adspec: AdSpec::NEW,
        plugins: FlowPlugins::new(named.collect()).ok(),
    })
    .write(63)
}

#[test]
fn plugins_that_signalling_names_are_replayed() {
    if !privileged("a recorded router with plugins that signalling names") {
        return;
    }
    let room = Room::new("recorded-signalled");
    let path = room.path("signalled.nilrec");
    let (store, key) = (Store::new(&room.path("store")), SecretKey::new([5; 32]));
    store.trust_key(&key.public()).expect("written");
    let install = |number| store.install(&every(number).signed(&key).1, None, false);
    install(1).expect("installed");
    let head = format!(
        "[control]\nplugin_directory = {:?}\n\
         [reservations]\nrsvp = true\nplugins = [\"loss\", \"every\"]\n",
        room.path("store")
    );
    let text = described(3, &head, |_| String::new());
    let mut bound = 0;
    recorded(&text, 3, 18, &path, |running, commands, round| {
        let message = match round % 6 {
            0 => flow_setup(&[("every", ""), ("loss", "rate=0.2")]),
            2 => flow_setup(&[("loss", "rate=0.05")]),
            4 => flow_setup(&[]),
            _ => {
                let plugins = commands.plugins().expect("it answers").plugins;
                return bound += plugins.iter().filter(|plugin| plugin.packets > 0).count();
            }
        };
        let answer = running.remote.call(move |driver| {
            driver.with_reservations(|process, now, _| {
                let arrival = Arrival { port: 0, source: SENDER.into(), ttl: 63 };
                let onward = Behind(1, receiver(1).into());
                process.handle_message(now, &arrival, &message, &onward);
                process.counts().effective
            })
        });
        assert!(answer.expect("it answers").is_some_and(|effective| effective > 0));
    })
    .expect("it is recorded");
    assert!(bound > 10, "{bound}");
    // A version installed after that is not the recorded one.
    install(2).expect("installed");
    let done = replayed(&path, None);
    same("plugins that signalling names", &done);
    assert!(done.drops >= 1_000, "{done:?}");
    let other = replayed(&path, Some(4));
    assert!(other.differences > 0, "what is lost by chance depends on the seed: {other:?}");
}
