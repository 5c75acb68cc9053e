//! `route rsvp`: two hosts that reserve by the command, through a live router.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nilometer_linux::namespace::Namespace;
use serde_json::{Value, json};

use super::site::{LEFT, PATIENCE, RIGHT, Stand, privileged};
use crate::common::{BINARY, Running, text};

/// A host's command, and what it prints.
struct Rsvp {
    program: Running,
    lines: Receiver<String>,
}

impl Rsvp {
    fn start(namespace: &Namespace, words: &[&str]) -> Rsvp {
        let mut command = Command::new(BINARY);
        command.args(["route", "rsvp"]).args(words).arg("--json");
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = namespace.enter(|| Ok(command.spawn()?)).expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
        });
        Rsvp { program: Running::of(child, "route rsvp"), lines }
    }

    /// The next event of a name.
    fn event(&self, name: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect(name);
            let event: Value = serde_json::from_str(&line).expect("JSON");
            if event["event"] == name {
                return event;
            }
        }
    }

    fn end(mut self) {
        self.program.signal(libc::SIGINT);
        assert!(self.program.end().status.success());
    }
}

fn reservations(stand: &Stand) -> Vec<Value> {
    let view = stand.get("/v1/reservations");
    view["reservations"].as_array().expect("a list").clone()
}

fn wait_until_none(stand: &Stand) {
    let began = Instant::now();
    while !reservations(stand).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:?}", reservations(stand));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hosts_reserve_by_the_command_and_release_when_it_ends() {
    if !privileged("route rsvp through a live router") {
        return;
    }
    let stand = Stand::new("rsvp-command", "[reservations]\nrsvp = true\n").expect("a router");
    stand.put("/v1/ports/1/rate", json!({"rate": "10 Mb/s"}));
    let (to, from) = (format!("{RIGHT}:5004"), format!("{LEFT}:4000"));
    let send = |more: &[&str]| {
        Rsvp::start(&stand.site.left, &[&["send", "--to", &to, "--from", &from], more].concat())
    };
    let receiver = Rsvp::start(&stand.site.right, &["receive", "--at", &to]);
    // (It may take a moment to open its sockets; announcements are repeated.)
    let sender = send(&["--rate", "1 Mb/s", "--refresh", "3 s"]);
    let flow = format!("{from} > {to}");
    assert_eq!(receiver.event("path")["flow"], flow);
    assert_eq!(sender.event("reserved")["rates"], json!(["1 Mb/s"]));
    receiver.event("confirmed");
    let one = &reservations(&stand)[0];
    assert_eq!((&one["kind"], &one["flows"][0]["source_port"]), (&json!("rsvp"), &json!(4_000)));
    // Its state would live for a quarter of a minute.
    let began = Instant::now();
    sender.end();
    assert_eq!(receiver.event("path_gone")["flow"], flow);
    wait_until_none(&stand);
    assert!(began.elapsed() < Duration::from_secs(6), "released, not expired");

    let sender = send(&["--rate", "2 Mb/s", "--one-packet"]);
    let set_up = receiver.event("flow_setup");
    assert_eq!((&set_up["hops"], &set_up["complete"]), (&json!(1), &json!(true)), "{set_up}");
    assert_eq!(reservations(&stand)[0]["kind"], "flow_setup");
    sender.end();
    wait_until_none(&stand);

    // Of 10 Gb/s, which the links into the fabric have, four fifths may be reserved.
    let sender = send(&["--rate", "9 Gb/s"]);
    assert!(receiver.event("refused")["why"].as_str().expect("why").contains("admission"));
    sender.end();
    receiver.end();
    stand.end();
}

#[test]
fn flows_that_cannot_be_are_refused_in_one_line() {
    for (words, why) in [
        (&["--rate", "fast"][..], "rate"),
        (&["--rate", "1 Mb/s", "--plugin", "counter"], "--one-packet"),
        (&["--rate", "1 Mb/s", "--protocol", "smtp"], "is not udp, tcp, or a number"),
        (&["--rate", "1 Mb/s", "--one-packet", "--plugin", " "], "--plugin: give a class"),
        (&["--rate", "1 Mb/s", "--refresh", "0 s"], "--refresh"),
    ] {
        let mut command = Command::new(BINARY);
        command.args(["route", "rsvp", "send", "--to", "127.0.0.1:5004"]).args(words);
        let output = command.output().expect("it runs");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{words:?}: {said}");
        assert!(!said.trim_end().contains('\n'), "one line: {said}");
    }
}
