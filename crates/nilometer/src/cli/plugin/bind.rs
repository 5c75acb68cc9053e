//! `nilometer plugin bind`: a plugin class to a flow of a running router, in one step.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use hyper::Method;
use nilometer_routerd::plugins::FaultPolicy;
use serde_json::{Value, json};

use crate::cli::Exit;
use crate::cli::route::ctl::router_at;
use crate::cli::route::filter;
use nilometer_routerd::control::client::Address;

/// Process a flow of a running router by a plugin: adds an instance of the class, unless one of that name exists, and
/// a filter with the action `active`.
///
/// `route ctl plugin` does the same in separate steps, and also list, replace, message and del.
#[derive(Debug, Args)]
pub struct BindArgs {
    /// The class, built in or installed: NAME or NAME@VERSION.
    class: String,
    /// Keys of a `[[filter]]`: destination=198.18.1.0/24 protocol=udp outputs=p1; all packets by default.
    #[arg(value_name = "KEY=VALUE")]
    keys: Vec<String>,
    /// Name of the instance; the class name by default.
    #[arg(long)]
    name: Option<String>,
    /// Configuration, in the format that the class defines.
    #[arg(long, value_name = "TEXT", default_value = "")]
    configuration: String,
    /// Action for packets if the instance is disabled: drop or bypass.
    #[arg(long, value_name = "POLICY", default_value = "drop")]
    on_fault: String,
    /// The router's control socket; the one at the default path by default.
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// The router's control address, `http://HOST:PORT`.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file whose first line is the access token.
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn ask(address: &Address, method: &Method, path: &str, body: Option<Value>) -> Result<Value> {
    let answer = address.ask(method, path, body.map(|body| body.to_string()))?.success()?;
    serde_json::from_slice(&answer).context("the answer is not valid JSON")
}

/// Runs `nilometer plugin bind`.
///
/// # Errors
/// When no router answers, or it refuses; an instance that was entered for this is taken out again.
pub fn run(args: &BindArgs) -> Result<Exit> {
    let is_known = FaultPolicy::from_name(&args.on_fault).is_some();
    ensure!(is_known, "--on-fault: {} is neither drop nor bypass", args.on_fault);
    let plain = args.class.split('@').next().unwrap_or_default();
    let name = args.name.clone().unwrap_or_else(|| plain.to_owned());
    let mut body = filter(&args.keys)?;
    for (key, value) in [("action", json!("active")), ("plugins", json!([name]))] {
        ensure!(body.get(key).is_none(), "`{key}` is set by this command");
        body[key] = value;
    }
    let address =
        router_at(args.socket.as_deref(), args.url.as_deref(), args.token_file.as_deref())?;
    let there = ask(&address, &Method::GET, "/v1/plugins", None)?;
    let mut all = there["plugins"].as_array().into_iter().flatten();
    let is_there = all.any(|plugin| plugin["name"] == name.as_str());
    if !is_there {
        let section = json!({ "name": name, "class": args.class, "configuration": args.configuration,
            "on_fault": args.on_fault });
        ask(&address, &Method::POST, "/v1/plugins", Some(section))?;
    }
    let made = ask(&address, &Method::POST, "/v1/filters", Some(body)).inspect_err(|_| {
        if !is_there {
            let path = format!("/v1/plugins/{name}");
            let _ = ask(&address, &Method::DELETE, &path, None);
        }
    })?;
    match args.json {
        true => {
            println!("{}", json!({ "plugin": name, "filter": made["id"], "entered": !is_there }))
        }
        false => println!("plugin {name} processes the packets of filter {}", made["id"]),
    }
    Ok(Exit::Done)
}
