//! `nilometer route ctl plugin`: the plugin instances of a running router.

use anyhow::Result;
use clap::Subcommand;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::question::{Question, given};
use super::shown;
use nilometer_files::terminal::plain;
use nilometer_routerd::control::client::encoded;
use nilometer_routerd::plugins::FaultPolicy;

/// Operations on plugin instances.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// List instances with their counters.
    List,
    /// Add an instance of a class; it processes packets once `bind` has assigned flows to it.
    Add {
        /// Its name.
        name: String,
        /// The name of a built-in or installed class: NAME, or NAME@VERSION.
        class: String,
        /// Configuration, in the format that the class defines.
        #[arg(long, value_name = "TEXT")]
        configuration: Option<String>,
        /// Action for packets if the instance is disabled: drop or bypass.
        #[arg(long, value_name = "POLICY", default_value = "drop")]
        on_fault: String,
    },
    /// Replace an instance by a new one, between two packets of its flows.
    Replace {
        /// Its name.
        name: String,
        /// Class of the new instance; the newest version of the same class by default.
        class: Option<String>,
        /// Configuration of the new instance.
        #[arg(long, value_name = "TEXT")]
        configuration: Option<String>,
    },
    /// Process a flow's packets by instances, in this order: adds a filter with the action `active`.
    Bind {
        /// The instances, such as `limit` or `nat,limit`.
        plugins: String,
        /// Keys of a `[[filter]]`: destination=198.18.1.0/24 protocol=udp outputs=p1.
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Send a message to an instance and print its answer.
    Message {
        /// Its name.
        name: String,
        /// The message, in the format that the class defines.
        message: String,
    },
    /// Delete an instance that no filter uses (see `filters del`).
    Del {
        /// Its name.
        name: String,
    },
}

const PATH: &str = "/v1/plugins";

impl PluginCommand {
    /// What it asks the router.
    ///
    /// # Errors
    /// When a word is none of those that it takes.
    pub fn question(&self) -> Result<Question> {
        let of = |name: &String| format!("{PATH}/{}", encoded(name));
        Ok(match self {
            PluginCommand::List => Question::get(PATH, list),
            PluginCommand::Add { name, class, configuration, on_fault } => {
                let names = FaultPolicy::ALL.map(FaultPolicy::name).join(" or ");
                let is_known = FaultPolicy::from_name(on_fault).is_some();
                anyhow::ensure!(is_known, "--on-fault: {on_fault} is not {names}");
                let body = json!({
                    "name": name,
                    "class": class,
                    "configuration": configuration.clone().unwrap_or_default(),
                    "on_fault": on_fault,
                });
                Question::change(Method::POST, PATH, Some(body))
            }
            PluginCommand::Replace { name, class, configuration } => {
                let body = given([("class", class), ("configuration", configuration)]);
                Question::change(Method::PUT, of(name), Some(body))
            }
            PluginCommand::Bind { plugins, keys } => {
                let names: Vec<&str> = plugins.split(',').collect();
                let mut body = super::tables::filter(keys)?;
                let object = body.as_object_mut().map_or(Map::new(), std::mem::take);
                let fixed = [("action", json!("active")), ("plugins", json!(names))];
                let fixed = fixed.map(|(key, value)| (key.to_owned(), value));
                let body: Map<String, Value> = object.into_iter().chain(fixed).collect();
                let added = Question::change(Method::POST, "/v1/filters", Some(body.into()));
                Question { show: shown::made, ..added }
            }
            PluginCommand::Message { name, message } => {
                let path = format!("{}/messages", of(name));
                let sent =
                    Question::change(Method::POST, path, Some(json!({ "message": message })));
                Question { show: answer, ..sent }
            }
            PluginCommand::Del { name } => Question::change(Method::DELETE, of(name), None),
        })
    }
}

fn answer(value: &Value) -> String {
    format!("{}\n", plain(value["answer"].as_str().unwrap_or_default()))
}

fn list(value: &Value) -> String {
    const HEADINGS: [&str; 9] = [
        "PLUGIN", "CLASS", "ENGINE", "FILTERS", "PACKETS", "DROPPED", "EMITTED", "MEMORY", "STATE",
    ];
    let rows = value["plugins"].as_array().into_iter().flatten().map(|plugin| {
        let cell = |key: &str| shown::cell(&plugin[key]);
        let state = match plugin["fault"].as_str() {
            Some(fault) => format!("disabled: {fault} ({})", cell("on_fault")),
            None => "up".to_owned(),
        };
        let class = format!("{} {}", cell("class"), cell("version"));
        let counts = ["filters", "packets", "dropped", "emitted", "memory_bytes"].map(cell);
        let mut row = vec![cell("name"), class, cell("engine")];
        row.extend(counts);
        row.push(state);
        row
    });
    shown::table(&HEADINGS, rows.collect())
}
