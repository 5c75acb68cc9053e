//! Harpoon's XML read: plugins, their lists and pools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use nilometer_stat::Empirical;
use nilometer_traffic::model::{Input, Origin, RANKS_MAX};
use nilometer_traffic::model_specification::ModelSpecification;
use nilometer_traffic::pool::Prefix;
use roxmltree::{Document, Node, ParsingOptions};
use sha2::{Digest, Sha256};

use crate::document::bounded;
use crate::tool;

/// Nodes of a document at most; each takes about 100 bytes.
const NODES_MAX: u32 = 1 << 22;
/// Numbers in one list at most.
const VALUES_MAX: usize = 10_000_000;
/// The most addresses in all pools, counting repetitions.
const LISTED_MAX: u64 = 4 * RANKS_MAX as u64;
/// Knots of the tables of sizes and of gaps, as those of measured models have.
const SIZE_KNOTS: usize = 2_048;
const GAP_KNOTS: usize = 1_024;

/// The content of one or more files together.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    files: Vec<Input>,
    gaps: Vec<f64>,
    sizes: Vec<f64>,
    /// Active sessions of each client plugin, already within its `maxthreads`.
    sessions: Vec<Vec<f64>>,
    sources: BTreeMap<String, u64>,
    destinations: BTreeMap<String, u64>,
    /// Addresses listed so far.
    listed: u64,
    /// Plugins and elements that are not part of a model, by reason.
    pub skipped: BTreeMap<String, u64>,
}

/// Reads Harpoon configurations together, each named by its path.
///
/// # Errors
/// Where a file is not XML, not Harpoon's, or a list holds something that is not a number.
pub fn read(paths: &[PathBuf]) -> Result<Configuration> {
    let mut all = Configuration::default();
    for path in paths {
        let text = bounded::read_text(path, bounded::XML_BYTES_MAX)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.add(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let digest = Sha256::digest(text.as_bytes());
        let sha256 = digest.iter().map(|octet| format!("{octet:02x}")).collect();
        all.files.push(Input { name, sha256 });
    }
    Ok(all)
}

/// The line in which an element begins.
fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

fn numbers(node: Node<'_, '_>) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    let texts = node.children().filter(Node::is_text).filter_map(|part| part.text());
    for word in texts.flat_map(str::split_whitespace) {
        let name = node.tag_name().name();
        let value: Option<f64> = word.parse().ok();
        match value.filter(|value| value.is_finite() && *value >= 0.0) {
            Some(value) if values.len() < VALUES_MAX => values.push(value),
            Some(_) => bail!("line {}: <{name}> has more than {VALUES_MAX} values", line(node)),
            None => {
                bail!("line {}: <{name}> holds '{word}', which is not a number from 0", line(node))
            }
        }
    }
    Ok(values)
}

/// Counts every address of a pool; an address without prefix length is one host, and so is 0.0.0.0,
/// which means any address.
fn pool(node: Node<'_, '_>, counts: &mut BTreeMap<String, u64>, listed: &mut u64) -> Result<()> {
    for entry in node.children().filter(|child| child.has_tag_name("address")) {
        let at = line(entry);
        let text = entry
            .attribute("ipv4")
            .ok_or_else(|| anyhow!("line {at}: an address without the attribute `ipv4`"))?;
        let whole = if text.contains('/') { text.to_owned() } else { format!("{text}/32") };
        let prefix: Prefix = whole.parse().map_err(|error| anyhow!("line {at}: {error}"))?;
        if prefix.hosts() > RANKS_MAX as u64 || counts.len() > RANKS_MAX {
            bail!("line {at}: {text} makes more than {RANKS_MAX} addresses, a model's limit");
        }
        *listed += prefix.hosts();
        if *listed > LISTED_MAX {
            bail!("line {at}: pools list more than {LISTED_MAX} addresses, repeated ones counted");
        }
        for host in 0..prefix.hosts() {
            *counts.entry(prefix.host(host).to_string()).or_default() += 1;
        }
    }
    Ok(())
}

impl Configuration {
    fn skip(&mut self, reason: String) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    fn add(&mut self, text: &str) -> Result<()> {
        // The unexpected character that an error names may be a line feed.
        let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
        let tree = Document::parse_with_options(text, options)
            .map_err(|error| anyhow!("is not XML: {}", error.to_string().replace('\n', "\\n")))?;
        let root = tree.root_element();
        if !root.has_tag_name("harpoon_plugins") {
            let name = root.tag_name().name();
            bail!("is XML of <{name}>, and Harpoon's begins with <harpoon_plugins>");
        }
        for plugin in root.children().filter(Node::is_element) {
            if !plugin.has_tag_name("plugin") {
                self.skip(format!("<{}> outside of a plugin", plugin.tag_name().name()));
                continue;
            }
            let object = plugin.attribute("objfile").unwrap_or("");
            let kind = object.rsplit('/').next().unwrap_or("").split('.').next().unwrap_or("");
            match (kind, plugin.attribute("personality")) {
                ("tcp_plugin", Some("client")) => self.add_client(plugin)?,
                ("tcp_plugin", Some("server")) => self.add_server(plugin)?,
                ("tcp_plugin", _) => self.skip("a plugin neither client nor server".to_owned()),
                _ => self.skip(format!("plugin `{kind}`: only TCP is in a model")),
            }
        }
        Ok(())
    }

    fn add_client(&mut self, plugin: Node<'_, '_>) -> Result<()> {
        let limit = match plugin.attribute("maxthreads") {
            None => f64::INFINITY,
            Some(text) => text.trim().parse::<u32>().map(f64::from).map_err(|_| {
                anyhow!("line {}: maxthreads is '{text}', not a whole number", line(plugin))
            })?,
        };
        for part in plugin.children().filter(Node::is_element) {
            match (part.tag_name().name(), part.attribute("name")) {
                ("interconnection_times", _) => self.gaps.extend(numbers(part)?),
                ("active_sessions", _) => {
                    let sessions = numbers(part)?.into_iter().map(|count| count.min(limit));
                    self.sessions.push(sessions.collect());
                }
                ("address_pool", Some("client_source_pool" | "client_src_pool")) => {
                    pool(part, &mut self.sources, &mut self.listed)?;
                }
                (
                    "address_pool",
                    Some("client_destination_pool" | "client_dest_pool" | "client_dst_pool"),
                ) => pool(part, &mut self.destinations, &mut self.listed)?,
                (other, _) => self.skip(format!("<{other}> of a client")),
            }
        }
        Ok(())
    }

    fn add_server(&mut self, plugin: Node<'_, '_>) -> Result<()> {
        for part in plugin.children().filter(Node::is_element) {
            match part.tag_name().name() {
                "file_sizes" => self.sizes.extend(numbers(part)?),
                // The server's threads and addresses are ignored: the client defines the requests.
                "active_sessions" | "address_pool" => {}
                other => self.skip(format!("<{other}> of a server")),
            }
        }
        Ok(())
    }

    /// Its content as a model; an interval is `interval_s` long.
    ///
    /// # Errors
    /// Where one of the parts of a model is missing.
    pub fn stated(
        self,
        interval_s: f64,
        pools: (Vec<Prefix>, Vec<Prefix>),
    ) -> Result<ModelSpecification> {
        let names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let names = names.join(", ");
        let skipped: Vec<&str> = self.skipped.keys().map(String::as_str).collect();
        let besides = match skipped.is_empty() {
            true => String::new(),
            false => format!(" (passed over: {})", skipped.join("; ")),
        };
        for (is_missing, what, whose) in [
            (self.gaps.is_empty(), "<interconnection_times>", "TCP client"),
            (self.sizes.is_empty(), "<file_sizes>", "TCP server"),
            (self.sessions.iter().all(Vec::is_empty), "<active_sessions>", "TCP client"),
            (self.sources.is_empty(), "client_source_pool", "TCP client"),
            (self.destinations.is_empty(), "client_destination_pool", "TCP client"),
        ] {
            if is_missing {
                bail!(
                    "{names}: no {whose} has {what}{besides}; give the client's and the server's file"
                );
            }
        }
        let intervals = self.sessions.iter().map(Vec::len).max().unwrap_or(0);
        let clients = self.sessions.iter().filter(|list| !list.is_empty());
        let sessions = (0..intervals)
            .map(|at| clients.clone().map(|list| list[at % list.len()]).sum())
            .collect();
        let file_size = Empirical::step_from(self.sizes, SIZE_KNOTS);
        let gaps = Empirical::linear_from(self.gaps, GAP_KNOTS);
        Ok(ModelSpecification {
            tool: tool::tool(),
            origin: Origin {
                description: format!("Harpoon configuration: {names}"),
                synthetic: true,
                inputs: self.files,
            },
            file_size: file_size.map_err(|error| anyhow!("file sizes: {error}"))?,
            inter_connection: gaps.map_err(|error| anyhow!("inter-connection times: {error}"))?,
            sources: self.sources.into_values().collect(),
            destinations: self.destinations.into_values().collect(),
            sessions,
            interval_s,
            clients: pools.0,
            servers: pools.1,
        })
    }
}
