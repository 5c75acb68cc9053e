//! The connections that a traffic model plans, made flows of a run.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use nilometer_conversation::Side;
use nilometer_tcp::Config;
use nilometer_traffic::estimate::FILE_MIN_BYTES;
use nilometer_traffic::script::Script;
use nilometer_traffic::vector_plan::{Draw, plan_of_model};
use nilometer_traffic::{PlannedConnection, TrafficModel};
use nilometer_wire::Time;

use super::{FLOWS_MAX, FlowKind, Making, Transfer};
use crate::member::Member;
use crate::refusal::Refusal;
use crate::scenario::ModelSpec;
use crate::scripted::{Part, Scripted};
use crate::stack::{NAMES, stack};
use crate::topology::GroupPath;

/// A table of models being made.
struct Table {
    number: usize,
    config: Config,
    /// From servers to clients and back.
    ways: [GroupPath; 2],
    /// When the plan is over.
    end: Time,
}

impl Making<'_> {
    /// The connections that `model` plans, as many as begin before the run ends. Where it has scripts for both
    /// ends, they follow them. Otherwise the server's host opens each connection, and sends the file at once; a
    /// request that is a file goes the other way, as a connection of its own, and segments are the stack's.
    pub(super) fn model(
        &mut self,
        number: usize,
        spec: &ModelSpec,
        model: &TrafficModel,
    ) -> Result<(), Refusal> {
        let place = format!("[[model]] number {}", number + 1);
        let refuse = |what: String| Refusal::value(&*place, what);
        let sizes = self.topology.ends(&place, &spec.from, &spec.to)?;
        let Some(config) = stack(&spec.tcp) else {
            return Err(Refusal::unknown(place, &spec.tcp, NAMES.into_iter()));
        };
        let draw = if spec.exact { Draw::Exact } else { Draw::Seed(self.seed) };
        let plan = plan_of_model(model, draw, &mut |planner, slots| planner.arrivals(slots))
            .map_err(|error| refuse(error.to_string()))?;
        self.assembly.plan_digests.push(plan.digest());
        let is_upload =
            |c: &&PlannedConnection| c.script.is_none() && c.request_bytes >= FILE_MIN_BYTES;
        let uploads = plan.connections.iter().filter(is_upload).count();
        let total = (self.assembly.flows.len() + plan.connections.len() + uploads) as u64;
        if total > FLOWS_MAX {
            return Err(refuse(format!("{total} flows are planned; {FLOWS_MAX} are the limit")));
        }
        let ways = self.ways(&spec.from, &spec.to)?;
        let table = Table { number, config, ways, end: plan.end };
        let scripts: Vec<Arc<Script>> = plan.scripts.into_iter().map(Arc::new).collect();
        let end = Time::ZERO + self.assembly.duration;
        for planned in plan.connections.iter().take_while(|planned| planned.start < end) {
            let session = &plan.sessions[planned.session as usize];
            let hosts = [session.destination_rank % sizes[0], session.source_rank % sizes[1]];
            match planned.script {
                Some(script) => {
                    self.scripted(&table, hosts, planned.start, &scripts[script as usize])?;
                }
                None => self.files(&table, hosts, planned)?,
            }
        }
        Ok(())
    }

    /// A connection whose ends, on the hosts of a server and a client, do what `script` says.
    fn scripted(
        &mut self,
        table: &Table,
        [server, client]: [u32; 2],
        start: Time,
        script: &Arc<Script>,
    ) -> Result<(), Refusal> {
        let [from_server, from_client] = &table.ways;
        let (config, end) = (table.config, table.end);
        let made = (FlowKind::Model, table.number);
        self.join([from_client, from_server], [client, server], made, |route, sequences| {
            let end = |side, route, sequence| {
                let part = Part { script: Arc::clone(script), side, start, end };
                Member::Scripted(Scripted::new(part, config, route, sequence).into())
            };
            [
                end(Side::Client, route, sequences[0]),
                end(Side::Server, route.reverse(), sequences[1]),
            ]
        })
    }

    /// The file that a server sends, and the request if it is one.
    fn files(
        &mut self,
        table: &Table,
        [server, client]: [u32; 2],
        planned: &PlannedConnection,
    ) -> Result<(), Refusal> {
        let transfer = |bytes| {
            let (kind, start) = (FlowKind::Model, planned.start);
            Transfer { table: table.number, kind, config: table.config, start, bytes }
        };
        let [from_server, from_client] = &table.ways;
        if planned.size_bytes > 0 {
            let ways = [from_server, from_client];
            self.connect(ways, [server, client], transfer(planned.size_bytes))?;
        }
        if planned.request_bytes >= FILE_MIN_BYTES {
            let ways = [from_client, from_server];
            self.connect(ways, [client, server], transfer(planned.request_bytes))?;
        }
        Ok(())
    }
}
