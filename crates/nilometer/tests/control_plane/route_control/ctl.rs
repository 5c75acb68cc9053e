//! `nilometer route ctl` against a live router: what an operator types, and its effect.

use std::process::Output;

use serde_json::Value;

use super::site::{ROUTER, Stand, privileged};
use crate::common::Room;

/// Runs the command on the stand's socket.
fn ctl(stand: &Stand, words: &[&str]) -> Output {
    let all = [&["route", "ctl", "--socket", "control.sock"], words].concat();
    stand.room.command(&all).output().expect("it runs")
}

/// The output of a command that must succeed.
pub fn done(stand: &Stand, words: &[&str]) -> String {
    let output = ctl(stand, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

pub fn refused(stand: &Stand, words: &[&str], part: &str) {
    let output = ctl(stand, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
    assert!(error.contains(part) && error.trim_end().lines().count() == 1, "{words:?}: {error}");
}

#[test]
fn commands_take_effect_and_are_shown() {
    if !privileged("route ctl") {
        return;
    }
    let stand = Stand::new("ctl", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    assert!(done(&stand, &["status"]).contains("packets in"));
    assert!(done(&stand, &["ports"]).contains("qsdrr"));
    done(&stand, &["set-queue", "1", "discipline=red", "buffer_packets=500"]);
    assert!(done(&stand, &["queues", "1"]).starts_with("red: "));
    done(&stand, &["set-rate", "1", "300 Mb/s"]);
    done(&stand, &["set-delay", "1", "1 ms"]);
    done(&stand, &["set-fabric", "queueing=original", "period=400 us", "speedup=3"]);
    assert!(done(&stand, &["fabric"]).contains("original, period 400"));
    done(&stand, &["engine", "--v4", "lines"]);
    assert_eq!(done(&stand, &["engine"]), "v4: lines\nv6: tree_bitmap\n");
    done(&stand, &["engine", "--v6", "lines"]);
    assert_eq!(done(&stand, &["engine"]), "v4: lines\nv6: lines\n");
    done(&stand, &["classifier", "linear"]);
    let filter = ["filters", "add", "protocol=17", "destination=198.19.0.0/24", "copy=true"];
    assert_eq!(done(&stand, &filter), "filter 0 is entered\n");
    flow.wait_for(10);
    let listed: Value =
        serde_json::from_str(&done(&stand, &["filters", "list", "--json"])).expect("JSON");
    assert!(listed["filters"][0]["packets"].as_u64() >= Some(10), "{listed}");
    done(&stand, &["trace", "-w", "flow.pcapng", "--seconds", "0.3"]);
    let words = ["flows", "flow.pcapng", "--json", "-o", "flow.parquet"];
    let read = stand.room.command(&words).output().expect("it runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let flows: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    assert!(flows.to_string().contains("packets"), "{flows}");
    assert!(stand.room.read_bytes("flow.pcapng").len() > 10 * 400, "few packets");
    done(&stand, &["filters", "del", "0"]);
    done(&stand, &["routes", "add", "198.18.64.0/18", "--via", "198.18.0.2"]);
    assert!(done(&stand, &["routes", "lookup", "198.18.64.9"]).contains("p0 198.18.0.2"));
    done(&stand, &["routes", "del", "198.18.64.0/18"]);
    assert!(done(&stand, &["neighbours"]).contains("permanent"));
    assert_eq!(done(&stand, &["watch", "--count", "3", "--json"]).lines().count(), 3);
    done(&stand, &["messages", "--level", "debug", "--to", "router.log"]);
    done(&stand, &["set-delay", "1", "0 s"]);
    assert!(done(&stand, &["messages"]).contains("the delay is 0 s"));
    refused(&stand, &["stress", "start"], "sources are 1 to the number of ports, not 4");
    refused(&stand, &["stress", "start", "stages=2", "sources=2"], "the rate of the fabric's link");
    refused(&stand, &["stress", "show"], "no stress test was begun");
    done(&stand, &["save", "saved.toml"]);
    assert!(stand.room.read("saved.toml").contains("discipline = \"red\""));
    let (sent, came) = flow.end();
    assert_eq!(sent, came);
    stand.end();
}

#[test]
fn impossible_changes_are_refused_in_one_line() {
    if !privileged("refusals of route ctl") {
        return;
    }
    let stand = Stand::new("ctl-refused", "").expect("a router");
    refused(&stand, &["set-rate", "9", "1 Mb/s"], "no port 9");
    refused(&stand, &["set-rate", "1", "fast"], "not a rate");
    refused(&stand, &["set-queue", "1", "red"], "not of the form KEY=VALUE");
    refused(&stand, &["filters", "del", "4"], "no filter 4");
    refused(&stand, &["filters", "add", "action=reserved"], "a filter reserves nothing");
    refused(&stand, &["filters", "add", "action=active"], "needs the names of plugins");
    refused(&stand, &["filters", "add", "inputs=p0,p9"], "no port p9");
    stand.room.write("not.toml", format!("{ROUTER}[[filter]]\naction = \"reserved\"\n"));
    let output = stand.room.command(&["route", "run", "not.toml"]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("reserves nothing") && error.contains("route ctl reserve"), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    stand.room.write("mine.toml", "mine");
    refused(&stand, &["save", "mine.toml"], "exists already");
    refused(&stand, &["save", "mine.toml", "--force"], "another kind");
    let absent = ["route", "ctl", "--socket", "none.sock", "status"];
    let output = stand.room.command(&absent).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no router answers at none.sock"));
    stand.end();
}

/// A full disk: the command says so, nothing half-written stays, and the router keeps running.
#[test]
fn on_a_full_disk_nothing_is_half_written() {
    if !privileged("a full disk") {
        return;
    }
    let stand = Stand::new("full-disk", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    // The mount is of a namespace that ends with the shell.
    let script = "mkdir full && mount -t tmpfs -o size=16k none full && cd full && \
                  { head -c 1M /dev/zero > filler; true; } 2>/dev/null && \
                  \"$0\" route ctl --socket ../control.sock save saved.toml; echo \"status $?\"; ls";
    let words = ["-m", "sh", "-c", script, crate::common::BINARY];
    let mut command = std::process::Command::new("unshare");
    let output = command.args(words).current_dir(stand.room.path("")).output().expect("it runs");
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "status 2\nfiller\n", "{error}");
    assert!(error.contains("No space left") && error.trim_end().lines().count() == 1, "{error}");
    flow.wait_for(10);
    let (sent, came) = flow.end();
    assert_eq!(sent, came);
    stand.end();
}

/// A renamed table: its old name is warned about once, and both names together are refused.
#[test]
fn the_old_name_of_a_table_is_warned_of_in_one_line() {
    let room = Room::new("renamed-table");
    let message = |text: &str| {
        room.write("router.toml", text);
        let output = room.command(&["route", "run", "router.toml"]).output().expect("it runs");
        // (It has no ports, so that it is refused in the end.)
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let [old, new] = ["[manners]\nhop_limit = 9\n", "[rfc1812]\nhop_limit = 9\n"];
    let warned = message(old);
    assert_eq!(warned.matches("warning: ").count(), 1, "{warned}");
    assert!(warned.contains("[manners] is called [rfc1812] now"), "{warned}");
    assert_eq!(warned.lines().count(), 2, "{warned}");
    assert_eq!(message(new).lines().count(), 1);
    let refused = message(&format!("{old}{new}"));
    assert!(refused.contains("both are there; keep [rfc1812]"), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}
