//! `nilometer plugin key`: keys that sign, keys that are trusted, and what is revoked.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use nilometer_files::document::bounded::{TOKEN_BYTES_MAX, read_text};
use nilometer_files::document::guard_output;
use nilometer_loader::keys::{PublicKey, SecretKey};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use super::super::Exit;
use super::super::table::fact;
use super::StoreArgs;

/// Manage signing keys, trusted keys and revocations.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Generate a key pair: FILE (secret, readable by its owner only) and FILE.pub.
    New {
        /// File of the secret key.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Trust a public key.
    Trust {
        /// The public key.
        #[arg(value_name = "FILE.pub")]
        key: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key or a module: installed plugins with it no longer load.
    Revoke {
        /// `key` or `module`.
        #[arg(value_parser = ["key", "module"])]
        kind: String,
        /// The key's id, or the module's SHA-256, as shown by `plugin list --json`.
        #[arg(value_name = "ID|SHA-256")]
        what: String,
        #[command(flatten)]
        store: StoreArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// List the trusted keys.
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// A key, as JSON.
#[derive(Debug, Serialize)]
struct Key {
    id: String,
    revoked: bool,
}

/// Keys, as JSON.
#[derive(Debug, Serialize)]
struct Keys {
    format: &'static str,
    keys: Vec<Key>,
}

/// Runs `nilometer plugin key`.
pub(super) fn run(args: &KeyArgs) -> Result<Exit> {
    match &args.command {
        KeyCommand::New { output, json } => make(output, *json),
        KeyCommand::Trust { key, store, json } => {
            let read = PublicKey::read(&read_text(key, TOKEN_BYTES_MAX)?);
            let read = read.with_context(|| key.display().to_string())?;
            store.store().trust_key(&read)?;
            shown(vec![Key { id: read.id().to_string(), revoked: false }], "trusted", *json)
        }
        KeyCommand::Revoke { kind, what, store, json } => {
            store.store().revoke(&format!("{kind} {what}"))?;
            let what = if *json { Vec::new() } else { vec![(kind, what)] };
            what.iter().for_each(|(kind, what)| {
                print!("{}", fact("revoked", format_args!("{kind} {what}")))
            });
            if *json { listed(store, true) } else { Ok(Exit::Done) }
        }
        KeyCommand::List { store, json } => listed(store, *json),
    }
}

fn listed(store: &StoreArgs, json: bool) -> Result<Exit> {
    let trust = store.store().trust()?;
    let keys = trust.keys().map(|(id, revoked)| Key { id: id.to_string(), revoked });
    shown(keys.collect(), "key", json)
}

fn shown(keys: Vec<Key>, name: &str, json: bool) -> Result<Exit> {
    if json {
        println!("{}", serde_json::to_string(&Keys { format: "nilometer-plugin-keys/1", keys })?);
    } else {
        for key in keys {
            let state = if key.revoked { ", revoked" } else { "" };
            print!("{}", fact(name, format_args!("{}{state}", key.id)));
        }
    }
    Ok(Exit::Done)
}

fn make(output: &Path, json: bool) -> Result<Exit> {
    let mut bytes = [0; 32];
    let count = getrandom(&mut bytes, GetRandomFlags::empty()).context("no random numbers")?;
    anyhow::ensure!(count == bytes.len(), "the system does not provide random numbers");
    let key = SecretKey::new(bytes);
    let mut public = output.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    let (secret, open) =
        (guard_output(output, &[], false, b"")?, guard_output(&public, &[], false, b"")?);
    let mut draft = secret.draft()?.for_owner()?;
    draft.write_all(key.text().as_bytes()).with_context(|| output.display().to_string())?;
    draft.publish()?;
    open.write(key.public().text().as_bytes())?;
    shown(vec![Key { id: key.id().to_string(), revoked: false }], "made", json)
}
