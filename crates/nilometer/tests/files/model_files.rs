//! A model as other programs read it: tables in CSV and Parquet, and the JSON Schema that its file
//! keeps to.

use crate::common;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use common::{Room, capture, pcap};
use nilometer::cli::model::schema;
use nilometer_wire::build;
use serde_json::{Map, Value};

/// Errors in `value` by the keywords of JSON Schema (2020-12) that our schema uses. An unknown keyword is
/// an error, so that nothing passes unchecked.
fn complaints(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
    let Some(keywords) = schema.as_object() else {
        return if schema == &Value::Bool(true) { vec![] } else { vec![format!("{at}: refused")] };
    };
    let mut found = Vec::new();
    for (keyword, wanted) in keywords {
        let wrong = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "format" | "$defs" => vec![],
            "$ref" => {
                let name = wanted.as_str().and_then(|path| path.strip_prefix("#/$defs/"));
                let target = &root["$defs"][name.expect("a definition of the document")];
                assert!(target.is_object(), "{wanted} leads nowhere");
                complaints(target, root, value, at)
            }
            "anyOf" | "oneOf" => {
                let ways = wanted.as_array().expect("ways").iter();
                let fits = ways.filter(|way| complaints(way, root, value, at).is_empty()).count();
                let enough = if keyword == "oneOf" { fits == 1 } else { fits > 0 };
                if enough { vec![] } else { vec![format!("{at}: fits {fits} of {keyword}")] }
            }
            "type" => kind(wanted, value, at),
            "const" => equal(wanted == value, at),
            "enum" => equal(wanted.as_array().expect("values").contains(value), at),
            "minimum" => equal(value.as_f64() >= wanted.as_f64(), at),
            "maximum" => equal(value.as_f64() <= wanted.as_f64(), at),
            "minItems" => equal(length(value) >= wanted.as_u64(), at),
            "maxItems" => equal(length(value) <= wanted.as_u64(), at),
            "required" => {
                let names = wanted.as_array().expect("names").iter().filter_map(Value::as_str);
                let missing = names.filter(|name| value.get(name).is_none());
                missing.map(|name| format!("{at}: {name} is missing")).collect()
            }
            "properties" | "additionalProperties" => properties(keywords, root, value, at, keyword),
            "prefixItems" => {
                let pairs = wanted.as_array().expect("schemas").iter().zip(list(value)).enumerate();
                let each = |(n, (s, v))| complaints(s, root, v, &format!("{at}[{n}]"));
                pairs.flat_map(each).collect()
            }
            "items" => {
                let each = |(n, v)| complaints(wanted, root, v, &format!("{at}[{n}]"));
                list(value).iter().enumerate().flat_map(each).collect()
            }
            other => vec![format!("{at}: the keyword {other} is not known")],
        };
        found.extend(wrong);
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn length(value: &Value) -> Option<u64> {
    value.as_array().map(|items| items.len() as u64)
}

fn equal(fits: bool, at: &str) -> Vec<String> {
    if fits { vec![] } else { vec![format!("{at}: another value")] }
}

fn kind(wanted: &Value, value: &Value, at: &str) -> Vec<String> {
    let wanted: Vec<&str> = match wanted {
        Value::String(one) => vec![one],
        several => list(several).iter().filter_map(Value::as_str).collect(),
    };
    let is = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("{other} is no type"),
    };
    if wanted.iter().any(is) { vec![] } else { vec![format!("{at}: no {wanted:?}")] }
}

fn properties(
    keywords: &Map<String, Value>,
    root: &Value,
    value: &Value,
    at: &str,
    keyword: &str,
) -> Vec<String> {
    let Some(object) = value.as_object() else { return vec![] };
    let known = keywords.get("properties").and_then(Value::as_object).expect("properties");
    let each = |(name, value): (&String, &Value)| match known.get(name) {
        Some(schema) if keyword == "properties" => {
            complaints(schema, root, value, &format!("{at}.{name}"))
        }
        None if keyword == "additionalProperties" => {
            complaints(&keywords[keyword], root, value, &format!("{at}.{name}"))
        }
        _ => vec![],
    };
    object.iter().flat_map(each).collect()
}

/// The paths at which a document has values, those of lists under one name.
fn paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(name, value)| paths(value, &format!("{at}.{name}"), into));
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), into)),
        _ => {
            into.insert(at.to_owned());
        }
    }
}

#[test]
fn the_schema_beside_the_sources_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/model.schema.json");
    let document = schema().expect("a schema");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &document).expect("written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let advice = "run `nilometer model schema > docs/model.schema.json`";
    assert!(kept == document, "docs/model.schema.json is not that of the types; {advice}");
    assert_eq!(Room::new("schema").done(&["model", "schema"]), document);
}

/// Validates the files by Debian's validator (python3-jsonschema), if it is installed.
fn validated_by_another(room: &Room, names: &[&str]) {
    let script = "import json, sys, jsonschema\n\
                  schema = json.load(open(sys.argv[1]))\n\
                  jsonschema.Draft202012Validator.check_schema(schema)\n\
                  check = jsonschema.Draft202012Validator(schema)\n\
                  print([e.message for f in sys.argv[2:] for e in check.iter_errors(json.load(open(f)))])";
    let python = |script: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", script]);
        python
    };
    if !python("import jsonschema").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: models validated by python3-jsonschema, which is not here");
    }
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/model.schema.json");
    let mut check = python(script);
    check.arg(schema).args(names.iter().map(|name| room.path(name)));
    let output = check.output().expect("python3");
    let output_text = [common::text(&output.stdout), common::text(&output.stderr)];
    assert_eq!(output_text, ["[]\n", ""]);
}

#[test]
fn models_follow_their_schema_and_violations_are_found() {
    let room = Room::new("keep");
    let schema: Value = serde_json::from_str(&schema().expect("a schema")).expect("JSON");
    room.write("small.pcap", capture(400, |number| 300 + 50 * number as usize));
    let stated = ["--sessions", "5", "--file-size", "pareto:index=1.5,min=900"];
    let stated = [&["model", "new", "-o", "new.json"], &stated[..]].concat();
    room.done(&[&stated[..], &["--inter-connection", "exponential:mean=0.5"]].concat());
    room.done(&["model", "embedded", "-o", "embedded.json"]);
    room.done(&["model", "small.pcap", "-o", "small.json", "--keep-addresses"]);
    for name in ["new.json", "embedded.json", "small.json"] {
        let found = complaints(&schema, &schema, &room.json(name), name);
        assert!(found.is_empty(), "{found:#?}");
    }
    validated_by_another(&room, &["new.json", "embedded.json", "small.json"]);
    let model = room.json("small.json");
    assert!(model["hurst"].is_object() && model["flow_lengths"].is_object(), "nothing is absent");
    let mut places = BTreeSet::new();
    paths(&model, "", &mut places);
    assert!(places.len() > 50, "{places:?}");
    // A word in place of any number, and an unknown key, are found.
    for (at, wrong) in [
        ("/format", Value::from("nilometer-model/2")),
        ("/hurst/bin_s", "a".into()),
        ("/hurst/packets/h", "a".into()),
        ("/hurst/diagram/bytes/0/octave", (-1).into()),
        ("/file_size/knots/0", vec![1.0].into()),
        ("/file_size/form", "curved".into()),
        ("/intervals/0/flows", 1.5.into()),
        ("/generation/clients/0", 7.into()),
        ("/coverage/left_out", Value::Null),
        ("/origin/colour", Value::Null),
    ] {
        let mut changed = model.clone();
        match changed.pointer_mut(at) {
            Some(place) => *place = wrong,
            None => changed["origin"]["colour"] = wrong,
        }
        assert!(!complaints(&schema, &schema, &changed, "").is_empty(), "{at}");
    }
}

/// The rows of a CSV file without quotes, by the names of its columns.
fn rows(text: &str) -> Vec<Map<String, Value>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |line: &str| -> Map<String, Value> {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), names.len(), "{line}");
        names.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), cell.into())).collect()
    };
    lines.map(row).collect()
}

/// A capture of `count` DNS queries, each answered.
fn names(count: u16) -> Vec<u8> {
    let server: SocketAddr = ([203, 0, 113, 53], 53).into();
    let both = |number: u16| {
        let client: SocketAddr = ([198, 51, 100, 1], 30_000 + number).into();
        let at_us = 1_000_000_000 + u64::from(number) * 70_000;
        let question = build::udp(client, server, &[0; 40]);
        let answer = build::udp(server, client, &vec![0; 60 + usize::from(number)]);
        [(at_us, build::ethernet(&question)), (at_us + 3_000, build::ethernet(&answer))]
    };
    pcap(&(0..count).flat_map(both).collect::<Vec<_>>())
}

#[test]
fn tables_hold_the_model_to_the_last_digit() {
    let room = Room::new("tables");
    room.write("small.pcap", capture(400, |number| 300 + 50 * number as usize));
    room.write("dns.pcap", names(40));
    room.done(&["model", "small.pcap", "dns.pcap", "-o", "m.json", "--keep-addresses"]);
    let printed = room.done(&["model", "export", "m.json", "--csv", "out"]);
    assert_eq!(printed.lines().count(), 9, "{printed}");
    let model = room.json("m.json");
    let table = |name: &str| rows(&room.read(&format!("out/{name}.csv")));
    let number = |cell: &Value| cell.as_str().and_then(|text| text.parse::<f64>().ok());
    let laws = table("laws");
    for (law, of) in [
        ("file_size", &model["file_size"]),
        ("inter_connection", &model["inter_connection"]),
        ("flow_length", &model["flow_lengths"]["law"]),
        ("round_trip", &model["round_trips"]["law"]),
        ("dns-like/response_bytes", &model["udp"][0]["response_bytes"]),
    ] {
        let there = laws.iter().filter(|row| row["law"] == law);
        let there: Vec<_> =
            there.map(|row| [number(&row["cumulative"]), number(&row["value"])]).collect();
        let knots = of["knots"].as_array().expect("knots").iter();
        let knots: Vec<_> = knots.map(|knot| [knot[0].as_f64(), knot[1].as_f64()]).collect();
        assert_eq!(there, knots, "{law}");
    }
    for (row, interval) in table("intervals").iter().zip(list(&model["intervals"])) {
        for (name, cell) in row {
            assert_eq!(number(cell), interval[name].as_f64(), "{name}");
        }
    }
    let ranks = table("ranks");
    assert_eq!(ranks.len(), 5 + 3);
    assert_eq!(ranks[5]["side"], "destination");
    assert_eq!(
        (&ranks[5]["rank"], &ranks[5]["address"]),
        (&"1".into(), &model["destinations"]["addresses"][0])
    );
    assert_eq!(table("coverage").len(), 8);
    let octaves = |series: &str| list(&model["hurst"]["diagram"][series]).len();
    assert_eq!(table("scales").len(), octaves("bytes") + octaves("packets"));
    let shapes = table("connections");
    for column in ["connections", "request_bytes", "response_bytes", "segment_bytes", "interval"] {
        let cells: Vec<_> = shapes.iter().map(|row| number(&row[column])).collect();
        let law = list(&model["connection_law"][column]).iter().map(Value::as_f64);
        assert_eq!(cells, law.collect::<Vec<_>>(), "{column}");
    }
    for (row, interval) in table("connection_intervals").iter().zip(list(&model["intervals"])) {
        for name in ["connections", "bytes", "packets", "octets"] {
            assert_eq!(number(&row[name]), interval["whole"][name].as_f64(), "{name}");
        }
    }
    let udp = &table("udp")[0];
    assert_eq!(udp["class"], "dns-like");
    assert_eq!(number(&udp["octets"]), model["udp"][0]["carried"]["octets"].as_f64());
    let sessions: Vec<_> =
        table("udp_sessions").iter().map(|row| number(&row["sessions"])).collect();
    let wanted = list(&model["udp"][0]["sessions"]).iter().map(Value::as_f64);
    assert_eq!(sessions, wanted.collect::<Vec<_>>());
}

#[test]
fn tables_are_written_whole_and_replace_nothing_else() {
    let room = Room::new("tables-whole");
    room.done(&["model", "embedded", "-o", "m.json"]);
    room.done(&["model", "export", "m.json", "--parquet", "out"]);
    for name in ["laws", "intervals", "ranks", "coverage", "scales", "connections", "udp"] {
        let bytes = room.read_bytes(&format!("out/{name}.parquet"));
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{name}");
    }
    assert!(room.refused(&["model", "export", "m.json", "--parquet", "out"]).contains("--force"));
    room.done(&["model", "export", "m.json", "--parquet", "out", "--force"]);
    room.write("out/mine.txt", "mine");
    let line = room.refused(&["model", "export", "m.json", "--parquet", "out", "--force"]);
    assert!(line.contains("mine.txt") && line.contains("left alone"), "{line}");
    let line = room.refused(&["model", "export", "m.json", "--csv", "no/such"]);
    assert!(line.contains("no/such"), "{line}");
    assert!(
        room.refused(&["model", "export", "m.json", "--csv", "m.json"]).contains("not a directory")
    );
    assert!(room.refused(&["model", "export", "m.json"]).contains("--csv"));
    assert!(
        room.refused(&["model", "export", "m.json", "--csv", "a", "--parquet", "b"])
            .contains("--csv")
    );
}

/// What Debian's own readers make of the tables, where they are.
#[test]
fn pandas_reads_the_tables() {
    let script = "import pandas, sys\n\
                  a = pandas.read_csv(sys.argv[1] + '/laws.csv')\n\
                  print(len(a), a[a.law == 'file_size'].value.max())";
    let room = Room::new("pandas");
    room.done(&["model", "embedded", "-o", "m.json"]);
    room.done(&["model", "export", "m.json", "--csv", "out"]);
    let python = Command::new("python3")
        .args(["-c", script])
        .arg(room.path("out"))
        .output()
        .ok()
        .filter(|output| output.status.success());
    let Some(python) = python else {
        return println!("skipped: tables read by pandas: python3 with pandas is not here");
    };
    let model = room.json("m.json");
    let knots = list(&model["file_size"]["knots"]);
    let largest = knots.last().expect("a knot")[1].as_f64().expect("a size");
    let output_text = common::text(&python.stdout).split_whitespace().collect::<Vec<_>>();
    assert_eq!(output_text[0], (room.read("out/laws.csv").lines().count() - 1).to_string());
    assert_eq!(output_text[1].parse::<f64>().ok(), Some(largest));
}
