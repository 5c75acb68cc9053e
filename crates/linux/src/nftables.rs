//! nftables in a namespace: a packet filter, which the program `nft` loads.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::namespace::Namespace;

/// A stateful firewall: connections that clients open pass, with all that belongs to them, and nothing else.
pub const STATEFUL: &str = include_str!("../../../examples/firewall.nft");

/// Whether the program that loads rules is on this machine.
pub fn is_installed() -> bool {
    let ran = Command::new("nft").arg("--version").output();
    ran.is_ok_and(|output| output.status.success())
}

/// Loads rules, in the language of `nft -f`, into a namespace; `from` names them.
///
/// # Errors
/// When the program is missing, or rejects the rules.
pub fn load(namespace: &Namespace, rules: &str, from: &str) -> Result<()> {
    namespace.enter(|| {
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start nft; install the package nftables")?;
        if let Some(mut input) = nft.stdin.take() {
            // (If it stops reading, it reports the reason itself.)
            let _ = input.write_all(rules.as_bytes());
        }
        let ended = nft.wait_with_output().context("cannot wait for nft")?;
        if ended.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let error = stderr.lines().find(|line| line.contains("Error:"));
        let first = error.or(stderr.lines().next()).unwrap_or("without a word");
        bail!("nft does not take the rules of {from}: {}", first.replace("/dev/stdin:", "line "))
    })
}
