//! A model of whole sessions, simulated and live: one plan, whose digest both report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nilometer_traffic::model::Origin;
use nilometer_traffic::vector_model::{self, VectorModelOptions};
use nilometer_traffic::vectors::Vectors;
use serde_json::{Value, json};

const SESSIONS: u64 = 40;

/// The binary's output, as JSON.
fn result_of(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_nilometer")).args(args).output();
    let output = output.expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A request and an answer, and another after a thought; sizes are each connection's own.
fn connection(session: u64, number: u64) -> Value {
    let (asks, answers) = (100 + 7 * session + number, 900 + 131 * session * (number + 1));
    let segments = answers.div_ceil(1_448);
    json!({
        "after_s": 0.3 * number as f64, "opening": "seen", "lasts_s": 0.2, "packets": 12,
        "octets": asks + answers + 600, "segment_bytes": 1_448, "time_stamps": true,
        "steps": [
            [0, 0, 500.0, asks, 1, 0.0], [1, asks, 2_000.0, answers, segments, 0.0],
            [0, answers, 30_000.0, 50, 1, 0.0], [1, asks + 50, 1_000.0, 60, 1, 0.0],
            [0, answers + 60, 0.0, -1, 0, 0.0], [1, asks + 51, 100.0, -1, 0, 0.0],
        ],
    })
}

/// A folder of this test's own with a model of whole sessions and a scenario that it feeds.
fn folder(name: &str, keys: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let session = |number: u64| {
        json!({
            "start_s": 0.4 * number as f64,
            // Ranks: the lower, the more connections.
            "source": ([0, 0, 0, 1, 1, 2][number as usize % 6]),
            "destination": ([0, 0, 1][number as usize / 6 % 3]),
            "ipv6": false, "service": 443,
            "connections": (0..1 + number % 3).map(|at| connection(number, at)).collect::<Vec<_>>(),
        })
    };
    let sessions: Vec<Value> = (0..SESSIONS).map(session).collect();
    let table = json!({"start_s": 0.0, "seconds": 18.0, "sessions": sessions});
    let vectors: Vectors = serde_json::from_value(table).expect("a table");
    let pool = |text: &str| vec![text.parse().expect("a prefix")];
    let origin = Origin { description: "by hand".to_owned(), synthetic: true, inputs: Vec::new() };
    let pools = [pool("198.18.0.0/24"), pool("198.19.0.0/24")];
    let options = VectorModelOptions {
        tool: "a test".to_owned(),
        origin,
        bound_s: 60.0,
        pools,
        other_octets: 0,
    };
    let model = serde_json::to_string(&vector_model::model(vectors, options)).expect("JSON");
    fs::write(folder.join("sessions.json"), model).expect("a model");
    let scenario = format!(
        "version = 1\nname = \"sessions\"\nduration_s = 20\nseed = 5\nseeds = 2\n\
        [[host]]\nname = \"servers\"\ncount = 3\n[[host]]\nname = \"clients\"\ncount = 7\n\
        [[router]]\nname = \"R1\"\n[[router]]\nname = \"R2\"\n\
        [[link]]\nname = \"a\"\nfrom = \"servers\"\nto = \"R1\"\nrate = \"1 Gb/s\"\n\
        [[link]]\nname = \"b\"\nfrom = \"R1\"\nto = \"R2\"\nrate = \"100 Mb/s\"\ndelay = \"5 ms\"\n\
        [[link]]\nname = \"c\"\nfrom = \"R2\"\nto = \"clients\"\nrate = \"1 Gb/s\"\n\
        [[model]]\nfile = \"sessions.json\"\nfrom = \"servers\"\nto = \"clients\"\ntcp = \"linux\"\n\
        {keys}\n[measure]\nbottleneck = \"b\"\n"
    );
    fs::write(folder.join("scenario.toml"), scenario).expect("a scenario");
    folder
}

/// The digests of the plans that a simulation reported, by run.
fn simulated(folder: &Path) -> Vec<Value> {
    let result =
        result_of(&["simulate", &folder.join("scenario.toml").to_string_lossy(), "--json"]);
    let plans = result["plans"].as_array().expect("plans");
    let seeds: Vec<&Value> = plans.iter().map(|plan| &plan["seed"]).collect();
    assert_eq!(seeds, [5, 6]);
    plans.iter().map(|plan| plan["digests"].clone()).collect()
}

/// The digest of the plan that the live engine would perform.
fn live(folder: &Path, args: &[&str]) -> Value {
    let model = folder.join("sessions.json");
    let plan = ["generate", "plan", &model.to_string_lossy(), "--json"].map(str::to_owned);
    let plan: Vec<&str> = plan.iter().map(String::as_str).chain(args.iter().copied()).collect();
    json!([result_of(&plan)["digest"]])
}

#[test]
fn a_seed_has_one_plan_live_and_simulated() {
    let folder = folder("simulate-vectors", "");
    let drawn = [live(&folder, &["--seed", "5"]), live(&folder, &["--seed", "6"])];
    assert_ne!(drawn[0], drawn[1]);
    assert_eq!(simulated(&folder), drawn);
}

#[test]
fn an_exact_plan_is_one_for_all_seeds() {
    let folder = folder("simulate-vectors-exact", "exact = true");
    let exact = live(&folder, &["--exact"]);
    assert_ne!(exact, live(&folder, &["--seed", "5"]));
    assert_eq!(simulated(&folder), [exact.clone(), exact]);
}
