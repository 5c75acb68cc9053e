//! Plugins of a live router: entered, bound, replaced and removed while packets pass.

use hyper::Method;
use serde_json::{Value, json};

use super::ctl::{done, refused};
use super::site::{ROUTER, Stand, privileged};

/// How often a plugin is entered, bound, replaced and removed; the pipeline's own test does so a thousand times.
const CHANGES: u32 = 200;

fn plugin(stand: &Stand) -> Value {
    stand.get("/v1/plugins")["plugins"][0].clone()
}

fn answer(stand: &Stand, method: &Method, path: &str, body: Option<Value>) -> Value {
    let (status, value) = stand.ask(method, path, body);
    assert!((200..300).contains(&status), "{method} {path}: {value}");
    value
}

#[test]
fn plugins_come_and_go_under_load_and_no_packet_is_lost() {
    if !privileged("plugins of a live router") {
        return;
    }
    let stand = Stand::new("plugins", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    let ask = |method: &Method, path: &str, body| answer(&stand, method, path, body);
    let (mut processed, mut touched) = (0, 0);
    for change in 0..CHANGES {
        ask(&Method::POST, "/v1/plugins", Some(json!({"name": "one", "class": "counter"})));
        let filter = json!({"action": "active", "plugins": ["one"], "protocol": "udp",
            "destination": "198.19.0.0/24"});
        let id = ask(&Method::POST, "/v1/filters", Some(filter))["id"].clone();
        if change % 50 == 0 {
            flow.wait_for(10);
            let before = plugin(&stand);
            assert!(before["counters"]["udp_packets"].as_u64() >= Some(5), "{before}");
            assert_eq!((&before["engine"], &before["filters"]), (&json!("native"), &json!(1)));
        }
        let remark = json!({"class": "remarker", "configuration": "dscp=10"});
        ask(&Method::PUT, "/v1/plugins/one", Some(remark));
        if change % 50 == 0 {
            flow.wait_for(10);
        }
        let after = plugin(&stand);
        assert_eq!((&after["class"], &after["fault"]), (&json!("remarker"), &Value::Null));
        touched += after["counters"]["remarked"].as_u64().expect("a number");
        processed += after["packets"].as_u64().expect("a number");
        let (status, why) = stand.ask(&Method::DELETE, "/v1/plugins/one", None);
        assert_eq!(status, 409, "a filter names it: {why}");
        ask(&Method::DELETE, &format!("/v1/filters/{id}"), None);
        ask(&Method::DELETE, "/v1/plugins/one", None);
    }
    assert!(touched >= 30 && processed >= touched + 20, "{touched} of {processed}");
    assert_eq!(stand.get("/v1/plugins"), json!({"plugins": []}));
    let (sent, came) = flow.end();
    assert_eq!(sent, came, "nothing is lost, whichever was in force");
    stand.end();
}

#[test]
fn plugin_commands_take_effect_and_are_shown() {
    if !privileged("route ctl plugin") {
        return;
    }
    let stand = Stand::new("ctl-plugin", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    let add = ["plugin", "add", "limit", "policer", "--configuration", "cir=100000000 cbs=1000000"];
    assert_eq!(done(&stand, &add), "plugin limit: class policer 1.0.0 is entered\n");
    done(&stand, &["plugin", "add", "count", "counter", "--on-fault", "bypass"]);
    let bind = ["plugin", "bind", "count,limit", "destination=198.19.0.0/24", "protocol=17"];
    assert_eq!(done(&stand, &bind), "filter 0 is entered\n");
    assert_eq!(done(&stand, &["plugin", "bind", "count", "outputs=p1"]), "filter 1 is entered\n");
    flow.wait_for(20);
    let listed: Value =
        serde_json::from_str(&done(&stand, &["plugin", "list", "--json"])).expect("JSON");
    let of = |name: &str| {
        let all = listed["plugins"].as_array().expect("a list");
        all.iter().find(|it| it["name"] == name).expect(name).clone()
    };
    let (limit, count) = (of("limit"), of("count"));
    assert!(limit["packets"].as_u64() >= Some(20), "{limit}");
    // (Each packet meets it on both sides.)
    assert!(count["packets"].as_u64() >= Some(2 * 20), "{count}");
    assert_eq!((&count["on_fault"], &count["filters"]), (&json!("bypass"), &json!(2)));
    let shown = done(&stand, &["plugin", "list"]);
    assert!(shown.contains("policer 1.0.0") && shown.contains("STATE"), "{shown}");
    let filters = done(&stand, &["filters", "list"]);
    assert!(filters.contains("active: count, limit") && filters.contains("out of p1"), "{filters}");
    let metrics = stand.address.ask(&Method::GET, "/metrics", None).expect("an answer");
    let metrics = String::from_utf8(metrics.body).expect("text");
    for line in [
        "nilometer_plugin_up{plugin=\"limit\"} 1",
        "nilometer_plugin_dropped_total{plugin=\"limit\",class=\"policer\"} ",
        "nilometer_plugin_own_total{plugin=\"count\",counter=\"udp_packets\"} ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    // The saved file recreates the same router.
    done(&stand, &["save", "saved.toml"]);
    let saved = stand.room.read("saved.toml");
    assert!(saved.contains("[[plugin]]") && saved.contains("outputs = [\"p1\"]"), "{saved}");
    let again: nilometer_routerd::config::RouterConfig = toml::from_str(&saved).expect("a router");
    again.check().expect("one that can be built");
    assert_eq!(
        (again.plugins.len(), again.plugins[0].configuration.as_str()),
        (2, "cir=100000000 cbs=1000000")
    );

    // Refusals: one line each, and nothing has changed.
    let of = |words: &[&str], part: &str| refused(&stand, words, part);
    of(&["plugin", "add", "limit", "counter"], "there is a plugin instance \"limit\" already");
    of(&["plugin", "add", "a b", "counter"], "is not a name");
    of(&["plugin", "add", "x", "teleporter"], "there is no plugin class \"teleporter\"");
    of(&["plugin", "add", "x", "policer"], "the configuration is refused");
    of(&["plugin", "add", "x", "counter", "--on-fault", "panic"], "drop or bypass");
    of(&["plugin", "replace", "nobody"], "there is no plugin instance \"nobody\"");
    of(&["plugin", "bind", "nobody", "protocol=17"], "there is no plugin instance \"nobody\"");
    of(&["plugin", "del", "limit"], "\"limit\" (1 of them)");
    of(&["plugin", "message", "count", "sing"], "answers: ");
    of(
        &["filters", "add", "action=active", "plugins=count", "inputs=p0", "outputs=p1"],
        "inputs or outputs",
    );
    // In one step, by an instance that is made for it or by one that is there.
    let bind = |words: &[&str]| {
        let all = [&["plugin", "bind", "--socket", "control.sock"], words].concat();
        let output = stand.room.command(&all).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), error)
    };
    let (status, out, error) =
        bind(&["remarker", "--configuration", "dscp=10", "protocol=17", "--json"]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let out: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(out, json!({"plugin": "remarker", "filter": 2, "entered": true}));
    let (status, out, _) = bind(&["remarker", "protocol=6"]);
    assert_eq!(
        (status, out.as_str()),
        (Some(0), "plugin remarker processes the packets of filter 3\n")
    );
    let (status, _, error) = bind(&["firewall", "--name", "wall", "inputs=p9"]);
    assert!(status == Some(2) && error.trim_end().lines().count() == 1, "{error}");
    assert!(!done(&stand, &["plugin", "list"]).contains("wall"), "it is taken out again");
    for id in ["0", "1", "2", "3"] {
        done(&stand, &["filters", "del", id]);
    }
    done(&stand, &["plugin", "del", "remarker"]);
    for name in ["limit", "count"] {
        done(&stand, &["plugin", "del", name]);
    }
    let (sent, came) = flow.end();
    assert_eq!(sent, came);
    stand.end();
}

#[test]
fn a_router_of_a_file_begins_with_its_plugins() {
    if !privileged("plugins of a ROUTER.toml") {
        return;
    }
    let more = "[[plugin]]\nname = \"mark\"\nclass = \"remarker\"\nconfiguration = \"dscp=46\"\n\
                [[filter]]\naction = \"active\"\nplugins = [\"mark\"]\n";
    let stand = Stand::new("plugin-file", more).expect("a router");
    let flow = stand.site.flow().expect("a flow");
    flow.wait_for(20);
    let mark = plugin(&stand);
    assert!(mark["counters"]["remarked"].as_u64() >= Some(20), "{mark}");
    let (sent, came) = flow.end();
    assert_eq!(sent, came);
    for (text, part) in [
        (
            "[[filter]]\naction = \"active\"\nplugins = [\"nobody\"]\n",
            "no [[plugin]] has the name \"nobody\"",
        ),
        (
            "[[plugin]]\nname = \"a\"\nclass = \"teleporter\"\n",
            "there is no plugin class \"teleporter\"",
        ),
        ("[[plugin]]\nname = \"a\"\nclass = \"remarker\"\n", "the configuration is refused"),
        (
            "[[plugin]]\nname = \"a\"\nclass = \"counter\"\n[[plugin]]\nname = \"a\"\nclass = \"counter\"\n",
            "\"a\" is given twice",
        ),
    ] {
        stand.room.write("not.toml", format!("{text}{ROUTER}"));
        let output = stand.room.command(&["route", "run", "not.toml"]).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(part) && error.trim_end().lines().count() == 1, "{error}");
    }
    stand.end();
}
