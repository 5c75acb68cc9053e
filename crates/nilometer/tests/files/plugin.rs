//! `nilometer plugin` from a shell: from text to an installed plugin, and refusals in one line.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_nilometer");

/// A plugin that forwards everything.
fn text(version: &str) -> String {
    let description = format!("name idle\nversion {version}\nseen-bytes 0\n");
    let place = (description.len() as u64) << 32 | 16;
    let description = description.replace('\n', "\\0a");
    format!(
        "(module (memory (export \"memory\") 2) (data (i32.const 16) \"{description}\")
           (func (export \"nilometer_interface\") (result i32) i32.const 1)
           (func (export \"nilometer_describe\") (result i64) i64.const {place})
           (func (export \"nilometer_area\") (param i32) (result i32) i32.const 4096)
           (func (export \"nilometer_new\") (param i32 i32 i64) (result i32) i32.const 0)
           (func (export \"nilometer_process\") (param i32 i32 i64) (result i32) i32.const 0)
           (func (export \"nilometer_message\") (param i32 i32 i64) (result i32) i32.const 1)
           (func (export \"nilometer_timeout\") (param i64) (result i32) i32.const 0)
           (func (export \"nilometer_counters\") (result i32) i32.const 256))"
    )
}

/// A folder of this test's own, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

fn plugin(folder: &Path, line: &str) -> std::process::Output {
    Command::new(BINARY)
        .arg("plugin")
        .args(line.split(' '))
        .current_dir(folder)
        .env("NILOMETER_PLUGINS", folder.join("store"))
        .output()
        .expect("the binary runs")
}

/// The JSON object of a command that went well.
fn json(folder: &Path, line: &str) -> Value {
    let output = plugin(folder, &format!("{line} --json"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// The one line of a command that could not run.
fn refusal(folder: &Path, line: &str) -> String {
    let output = plugin(folder, line);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{line}: {stderr}");
    assert!(output.stdout.is_empty(), "{line}");
    stderr
}

/// A code server, until it is dropped.
struct Server(Child, String);

impl Server {
    fn of(folder: &Path) -> Server {
        let mut child = Command::new(BINARY)
            .args(["plugin", "serve", "plugins", "--listen", "127.0.0.1:0", "--json"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let serving: Value = serde_json::from_str(&line).expect("one JSON object");
        Server(child, serving["url"].as_str().expect("a URL").to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_plugin_goes_from_text_to_the_store_of_a_router() {
    let folder = scratch("whole");
    std::fs::write(folder.join("idle.wat"), text("1.2.0")).expect("written");
    let built = json(&folder, "build idle.wat");
    assert_eq!((&built["name"], &built["version"]), (&"idle".into(), &"1.2.0".into()));
    assert_eq!((&built["interface"], &built["module"]), (&1.into(), &"idle.wasm".into()));
    let key = json(&folder, "key new -o my-key");
    let mode = std::fs::metadata(folder.join("my-key")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a secret");
    let signed = json(&folder, "sign idle.wasm --key my-key");
    assert_eq!(signed["artefact"], "./idle-1.2.0.nmp");
    assert_eq!(signed["key"], key["keys"][0]["id"]);
    let published = json(&folder, "publish idle-1.2.0.nmp plugins");
    assert_eq!(published["plugins"][0]["version"], "1.2.0");
    let server = Server::of(&folder);
    let install = format!("install idle --from {}", server.1);
    assert!(refusal(&folder, &install).contains("which is not trusted here"));
    json(&folder, "key trust my-key.pub");
    let installed = json(&folder, &install);
    assert_eq!(installed["manifest"]["sha256"], built["sha256"]);
    let list = json(&folder, "list");
    let list = list["plugins"].as_array().expect("plugins");
    let idle = list.iter().find(|plugin| plugin["name"] == "idle").expect("installed");
    assert_eq!((&idle["engine"], &idle["refused"]), (&"wasm".into(), &Value::Null));
    assert!(list.iter().any(|plugin| plugin["name"] == "nat" && plugin["engine"] == "native"));
    // An older one is refused, until it is let.
    std::fs::write(folder.join("idle.wat"), text("1.1.0")).expect("written");
    json(&folder, "build idle.wat");
    json(&folder, "sign idle.wasm --key my-key");
    assert!(refusal(&folder, "install idle-1.1.0.nmp").contains("is older than 1.2.0"));
    json(&folder, "install idle-1.1.0.nmp --allow-downgrade");
    let id = key["keys"][0]["id"].as_str().expect("an id");
    assert_eq!(json(&folder, &format!("key revoke key {id}"))["keys"][0]["revoked"], true);
    assert!(refusal(&folder, "install idle-1.2.0.nmp").contains("which was revoked"));
}

#[test]
fn impossible_requests_are_refused_in_one_line() {
    let folder = scratch("refused");
    assert!(refusal(&folder, "new Every_Other").contains("is not a name of a plugin"));
    assert!(refusal(&folder, "build nothing.wasm").contains("cannot read nothing.wasm"));
    std::fs::write(folder.join("bad.wat"), "(module (func)").expect("written");
    assert!(refusal(&folder, "build bad.wat").contains("bad.wat"));
    std::fs::write(folder.join("other.wat"), "(module)").expect("written");
    let stderr = refusal(&folder, "build other.wat");
    assert!(stderr.contains("does not export `nilometer_interface`"), "{stderr}");
    std::fs::write(folder.join("idle.wat"), text("1.2.0")).expect("written");
    json(&folder, "build idle.wat");
    assert!(refusal(&folder, "sign idle.wasm --key idle.wat").contains("no key"));
    assert!(refusal(&folder, "install idle.wasm").contains("no plugin artefact"));
    assert!(refusal(&folder, "install idle --from https://x").contains("is not a code server"));
    json(&folder, "new here");
    assert!(refusal(&folder, "new here").contains("here is there already"));
}
