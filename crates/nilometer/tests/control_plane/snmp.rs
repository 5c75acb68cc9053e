//! The router's objects as a manager reads them: Debian's snmpd and snmpwalk, and our subagent.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Room;
use crate::links::{link, settle};
use nilometer_linux::namespace::Namespace;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::Control;
use nilometer_routerd::running::Running;

const PATIENCE: Duration = Duration::from_secs(30);
const IF_X_ENTRY: &str = ".1.3.6.1.2.1.31.1.1.1";
const OURS: &str = ".1.3.6.1.4.1.8072.9999.9999.7711.1";

const ROUTER: &str = r#"
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
rate = "500 Mb/s"
[[port]]
interface = "p1"
addresses = ["198.18.1.1/24"]
[[plugin]]
name = "count-1"
class = "counter"
[[filter]]
action = "deny"
protocol = "tcp"
[[filter]]
action = "active"
plugins = ["count-1"]
"#;
/// The name of the plugin as an index: its length, and its letters.
const COUNT_1: &str = "7.99.111.117.110.116.45.49";

fn installed(program: &str) -> bool {
    let mut command = Command::new(program);
    let tried = command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if tried.is_err() {
        println!("skipped: SNMP: {program} is not installed (Debian: apt-get install snmpd snmp)");
    }
    tried.is_ok()
}

/// The daemon, killed when this goes.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn start(room: &Room, port: u16) -> Daemon {
        let socket = room.path("agentx");
        let text = format!(
            "master agentx\nagentXSocket unix:{}\nagentAddress udp:127.0.0.1:{port}\n\
             rocommunity public 127.0.0.1\n",
            socket.display()
        );
        room.write("snmpd.conf", text);
        let state = room.path("state");
        std::fs::create_dir_all(&state).expect("a folder");
        let mut command = Command::new("snmpd");
        command.args(["-f", "-Lf", "snmpd.log", "-C", "-c", "snmpd.conf"]);
        command.env("SNMP_PERSISTENT_DIR", state).current_dir(room.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Daemon(command.spawn().expect("it starts"))
    }
}

/// The objects below a name, each line's name and value.
fn walk(port: u16, below: &str, bulk: bool) -> BTreeMap<String, String> {
    let program = if bulk { "snmpbulkwalk" } else { "snmpwalk" };
    let output = Command::new(program)
        .args(["-v2c", "-c", "public", "-On", "-Ih", "-m", "", "-t", "2"])
        .args([&format!("127.0.0.1:{port}"), below])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (name, value) = line.split_once(" = ")?;
        let value = value.split_once(": ").map_or(value, |(_, value)| value);
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn a_manager_reads_the_router() {
    let programs = ["snmpd", "snmpwalk", "snmpbulkwalk"];
    if !crate::common::privileged("SNMP") || !programs.into_iter().all(installed) {
        return;
    }
    let room = Room::new("snmp");
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port();
    let spaces = [(); 3].map(|()| Namespace::new().expect("a namespace"));
    let [router, left, right] = &spaces;
    for (number, host) in (0u8..).zip([left, right]) {
        let name = format!("h{number}");
        link(router, &format!("p{number}"), host, &name, number).expect("a link");
        let gateway = Ipv4Addr::new(198, 18, number, 1).into();
        let way = Some(("198.18.0.0/16", gateway));
        settle(host, &name, Ipv4Addr::new(198, 18, number, 2), way).expect("an address");
    }
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    config.control.agentx = Some(room.path("agentx").display().to_string());
    let running = Running::start(Some(router), config.clone(), false).expect("a router");
    running.wait_until_up().expect("its ports are up");
    // The daemon comes later than the subagent, goes, and comes again.
    let control = Control::start(&running, &config).expect("a command channel");
    for round in 0..2 {
        let daemon = Daemon::start(&room, port);
        let began = Instant::now();
        while walk(port, &format!("{IF_X_ENTRY}.1"), false).len() != 2 {
            assert!(began.elapsed() < PATIENCE, "{}", room.read("snmpd.log"));
            thread::sleep(Duration::from_millis(200));
        }
        let near = left.enter(|| Ok(UdpSocket::bind("198.18.0.2:0")?)).expect("a socket");
        for _ in 0..20 {
            near.send_to(b"there", "198.18.1.2:9").expect("it is sent");
        }
        let began = Instant::now();
        let walked = loop {
            let walked = walk(port, IF_X_ENTRY, round == 1);
            let ours = running.tally().expect("its counters");
            let ingress = walked.get(&format!("{IF_X_ENTRY}.7.1")).cloned();
            if ingress == Some(ours.ports[0].in_packets.to_string()) {
                assert!(ours.ports[0].in_packets >= 20 * (round + 1), "{ours:?}");
                break walked;
            }
            assert!(began.elapsed() < PATIENCE, "{walked:?} {ours:?}");
            thread::sleep(Duration::from_millis(300));
        };
        assert_eq!(walked[&format!("{IF_X_ENTRY}.1.2")], "p1");
        assert_eq!(walked[&format!("{IF_X_ENTRY}.15.1")], "500");
        let ours = walk(port, OURS, round == 0);
        assert_eq!(ours[&format!("{OURS}.1.1.2.1")], "qsdrr");
        assert_eq!(ours[&format!("{OURS}.2.1.2.1")], "deny");
        assert_eq!(ours[&format!("{OURS}.3.1.0")], "dq_plus");
        let plugin = |column: u32| &ours[&format!("{OURS}.4.1.{column}.{COUNT_1}")];
        assert_eq!([plugin(2), plugin(4), plugin(5)], ["counter", "native", ""]);
        let processed = |column: u32| plugin(column).parse::<u64>().expect("a count");
        // (Datagrams of 33 bytes, and whatever else the hosts send.)
        assert!(processed(6) >= 20 * (round + 1) && processed(7) >= 33 * processed(6), "{ours:?}");
        assert_eq!([processed(8), processed(11), processed(13)], [0; 3]);
        let own: BTreeMap<&str, u64> = (1..)
            .map_while(|number| {
                let column = |column| ours.get(&format!("{OURS}.5.1.{column}.{COUNT_1}.{number}"));
                Some((column(2)?.as_str(), column(3)?.parse().expect("a count")))
            })
            .collect();
        assert!(
            own["udp_packets"] >= 20 * (round + 1) && own["udp_packets"] <= processed(6),
            "{own:?}"
        );
        let ip = walk(port, ".1.3.6.1.2.1.4", true);
        assert_eq!(ip[".1.3.6.1.2.1.4.1.0"], "1", "it forwards");
        let names = walk(port, ".1.3.6.1.2.1.2.2.1.2", false);
        assert_eq!(names.values().collect::<Vec<_>>(), ["p0", "p1"]);
        // Most of the datagrams sent at once found the neighbour unresolved.
        assert!(ip[".1.3.6.1.2.1.4.6.0"].parse::<u64>().expect("a count") > 0);
        drop(daemon);
    }
    drop(control);
    assert!(running.stop().expect("its counters").balances);
}
