//! `nilometer route ctl routes` and `filters`: commands on the router's tables.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::list::{Extent, List};
use super::question::{Question, given, object};
use super::{listed, shown};
use nilometer_routerd::control::client::{Address, encoded};

/// Routes that the API lists at once.
const ROUTES_AT_ONCE: usize = 10_000;

/// Operations on filters.
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// List filters by number, with their packet counts.
    List {
        #[command(flatten)]
        extent: Extent,
    },
    /// Add a filter.
    Add {
        /// Keys of a `[[filter]]`: action=deny inputs=p0,p1 protocol=tcp destination_ports=23; outputs=p1 matches on
        /// output.
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Delete a filter.
    Del {
        /// Its number.
        id: u32,
    },
}

/// Operations on routes.
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// List the best routes by prefix, and count all.
    ///
    /// Sources: `connected` are the router's own networks, `static` are routes added by hand, `fpm` come from a
    /// routing daemon through zebra, `kernel` from the kernel through netlink. Of several routes to a prefix only the
    /// best is shown; `lookup` shows all.
    List(RouteListArgs),
    /// Add a route, or replace the one to the same prefix.
    Add {
        /// Destination prefix.
        prefix: String,
        /// The gateways.
        #[arg(long, value_name = "ADDRESS")]
        via: Vec<String>,
        /// The port whose link the prefix is on, by interface name or number.
        #[arg(long, value_name = "PORT")]
        interface: Option<String>,
        /// Instead of forwarding: blackhole, unreachable, prohibited.
        #[arg(long)]
        fate: Option<String>,
    },
    /// Delete a route that was added by hand.
    Del {
        /// Destination prefix.
        prefix: String,
    },
    /// Show all routes to a prefix, or to the longest match of an address.
    Lookup {
        /// A prefix or an address.
        prefix: String,
    },
}

/// Which routes are listed.
#[derive(Debug, Args)]
pub struct RouteListArgs {
    /// Only routes within this prefix, including itself.
    #[arg(long, value_name = "PREFIX")]
    within: Option<String>,
    /// Only routes of this source: connected, static, fpm, kernel.
    #[arg(long)]
    source: Option<String>,
    #[command(flatten)]
    extent: Extent,
}

/// A `[[filter]]` of keys and values.
///
/// # Errors
/// When one is no `KEY=VALUE`, or is given twice.
pub fn filter(keys: &[String]) -> Result<Value> {
    // Ports and protocols are texts even where they are numbers.
    const TEXTS: [&str; 4] = ["source_ports", "destination_ports", "protocol", "flags"];
    const LISTS: [&str; 3] = ["inputs", "outputs", "plugins"];
    let mut body = object(keys, &[&TEXTS[..], &LISTS[..]].concat())?;
    for key in LISTS {
        if let Some(list) = body.get_mut(key) {
            *list = list.as_str().unwrap_or_default().split(',').collect();
        }
    }
    Ok(body)
}

impl FilterCommand {
    /// What it asks the router.
    ///
    /// # Errors
    /// When keys are wrong, or it lists.
    pub fn question(&self) -> Result<Question> {
        Ok(match self {
            FilterCommand::List { .. } => bail!("answered before"),
            FilterCommand::Add { keys } => {
                let body = Some(filter(keys)?);
                let added = Question::change(Method::POST, "/v1/filters", body);
                Question { show: shown::made, ..added }
            }
            FilterCommand::Del { id } => {
                Question::change(Method::DELETE, format!("/v1/filters/{id}"), None)
            }
        })
    }

    /// Lists them, where that is what it is; returns whether it is.
    ///
    /// # Errors
    /// When nobody answers, or the router refuses.
    pub fn list(&self, address: &Address, is_json: bool) -> Result<bool> {
        let FilterCommand::List { extent } = self else { return Ok(false) };
        let path = |after: Option<&str>, _: usize| match after {
            Some(from) => format!("/v1/filters?from={from}"),
            None => "/v1/filters".to_owned(),
        };
        let list = List {
            key: "filters",
            path: &path,
            head: |_| String::new(),
            headings: &listed::FILTER_HEADINGS,
            rows: listed::filter_rows,
            more_by: "--all",
        };
        list.print(address, extent, is_json)?;
        Ok(true)
    }
}

impl RouteCommand {
    /// What it asks the router.
    ///
    /// # Errors
    /// When it lists.
    pub fn question(&self) -> Result<Question> {
        let path = |prefix: &String| format!("/v1/routes?prefix={}", encoded(prefix));
        Ok(match self {
            RouteCommand::List(_) => bail!("answered before"),
            RouteCommand::Lookup { prefix } => Question::get(path(prefix), shown::routes),
            RouteCommand::Del { prefix } => Question::change(Method::DELETE, path(prefix), None),
            RouteCommand::Add { prefix, via, interface, fate } => {
                let mut body = given([("interface", interface), ("fate", fate)]);
                body["prefix"] = json!(prefix);
                body["via"] = json!(via);
                Question::change(Method::POST, "/v1/routes", Some(body))
            }
        })
    }

    /// Lists them, where that is what it is; returns whether it is.
    ///
    /// # Errors
    /// When nobody answers, or the router refuses.
    pub fn list(&self, address: &Address, is_json: bool) -> Result<bool> {
        let RouteCommand::List(RouteListArgs { within, source, extent }) = self else {
            return Ok(false);
        };
        let path = |after: Option<&str>, most: usize| {
            let mut path = format!("/v1/routes?most={}", most.min(ROUTES_AT_ONCE));
            let keys = [("within", within.as_deref()), ("source", source.as_deref())];
            for (key, value) in keys.into_iter().chain([("after", after)]) {
                path += &value.map_or(String::new(), |it| format!("&{key}={}", encoded(it)));
            }
            path
        };
        let list = List {
            key: "routes",
            path: &path,
            head: shown::routes_in_all,
            headings: &listed::ROUTE_HEADINGS,
            rows: listed::route_rows,
            more_by: "--all, or --within PREFIX and --source SOURCE",
        };
        list.print(address, extent, is_json)?;
        Ok(true)
    }
}
