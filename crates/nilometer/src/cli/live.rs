//! Options of `flows` that make records live.

use nilometer_files::say;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, Args};

use super::Exit;
use nilometer_files::input::live::{LiveSource, Until, read_live};
use nilometer_files::input::records::{FlowOptions, Sink};
use nilometer_files::input::summary::FlowSummary;
use nilometer_lab::trial::signals;

/// The longest time that can be asked for, seconds: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// Live sources of records, and when to stop.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("live").args(["listen", "interface"])))]
pub struct LiveArgs {
    /// Collect exports on this address (NetFlow v5, v7, v9, IPFIX, sFlow v5 over UDP), such as 0.0.0.0:2055 or
    /// [::]:4739, until SIGINT or SIGTERM; the file is written then.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Meter the packets of this interface, until SIGINT or SIGTERM. Needs CAP_NET_RAW and changes no settings:
    /// frames for other hosts are seen only if the interface is in promiscuous mode, and packets merged by offloads
    /// count as one.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", requires = "live", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Stop after this many datagrams or packets.
    #[arg(long, value_name = "N", requires = "live", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds".to_owned())?;
    if !(0.001..=SECONDS_MAX).contains(&seconds) {
        return Err("give 0.001 to 31622400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl LiveArgs {
    /// What is to be heard or watched, if anything is.
    pub(super) fn from(&self) -> Option<LiveSource> {
        let watched = self.interface.clone().map(LiveSource::Interface);
        self.listen.map(LiveSource::Listen).or(watched)
    }

    /// Makes records until something ends it, and says how that came out: a signal interrupts what had
    /// another end, and is the end of what had none.
    pub(super) fn read(
        &self,
        from: &LiveSource,
        options: &FlowOptions,
        sink: Sink<'_>,
    ) -> Result<(FlowSummary, Exit)> {
        let stop = signals::stop_flag()?;
        let until = Until { after: self.seconds, count: self.count };
        let ends = self.seconds.is_some() || self.count.is_some();
        let mut say = |what: String| {
            let by = if ends { "" } else { "; SIGINT or SIGTERM ends it" };
            say!("{what}{by}");
        };
        let summary = read_live((from, until), options, &stop, &mut say, sink)?;
        let by_signal = summary.live.as_ref().is_some_and(|live| live.stopped_by == "signal");
        let verdict = if ends && by_signal { Exit::Interrupted } else { Exit::Done };
        Ok((summary, verdict))
    }
}
