//! The stress test of distributed queueing, started by a request, and the simulator's figures for
//! comparison.

use std::net::IpAddr;
use std::sync::PoisonError;

use nilometer_queue::distributed::Variant;
use nilometer_sim::stress::StressPlan;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::simulated::{SimulatedStress, simulated};
use crate::config::RouterConfig;
use crate::driver::Presence;
use crate::stress::{Stress, StressBody, StressView};

/// Packets of a test at most, in virtual time as on the router.
const PACKETS_MOST: f64 = 1e8;

/// Results of the stress test in the router and in the simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StressReport {
    /// The equations of distributed queueing in use.
    pub queueing: String,
    /// Results of the router.
    #[serde(flatten)]
    pub live: StressView,
    /// Results of the simulator.
    pub simulated: SimulatedStress,
}

impl CommandChannel {
    /// Begins a stress test.
    ///
    /// # Errors
    /// 400 for a load that cannot be, 409 when the router is not fit for it, or plays one already.
    pub fn start_stress(&self, body: StressBody) -> Result<String, Refused> {
        let in_force = self.change();
        if !(64..=1_500).contains(&body.packet_bytes) {
            return Err(Refused::bad(format!("packet_bytes is {}: 64 to 1500", body.packet_bytes)));
        }
        let (shape, variant, presences) = self.ask(|driver| {
            let fabric = driver.router().fabric();
            let presence = |port| (driver.presence(port), driver.port_name(port).to_owned());
            let presences = (0..fabric.ports()).map(presence);
            (fabric.plan().shape, fabric.variant(), presences.collect::<Vec<_>>())
        })?;
        if variant.is_none() {
            return Err(Refused::conflict("distributed queueing is off: see set-fabric"));
        }
        let plan = body.plan(&shape);
        plan.load().map_err(Refused::bad)?;
        let packets = packets_most(&plan);
        if packets > PACKETS_MOST {
            return Err(Refused::bad(format!(
                "the test may take {packets:.0} packets, and {PACKETS_MOST:.0} are the most: give fewer \
                 t1_periods, a shorter period, larger packets or a slower link"
            )));
        }
        let targets = targets(&plan, &in_force.config).map_err(Refused::conflict)?;
        let used = plan.sources.max(plan.stages);
        if let Some((_, port)) = presences[..used].iter().find(|it| it.0 != Presence::Up) {
            return Err(Refused::conflict(format!("port {port} is not up")));
        }
        let stress = Stress::new(plan, &targets).map_err(Refused::bad)?;
        if self.ask(|driver| driver.is_recorded())? {
            return Err(Refused::conflict("a router that is recorded plays no stress test"));
        }
        match self.ask(move |driver| driver.set_stress(stress))? {
            true => Ok(self.report_change("a stress test begins".to_owned())),
            false => Err(Refused::conflict("a stress test is being played: end it first")),
        }
    }

    /// Ends the stress test before its time.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn end_stress(&self) -> Result<String, Refused> {
        self.ask(|driver| driver.end_stress())?;
        Ok("no stress test is played".to_owned())
    }

    /// The stress test that was started last.
    ///
    /// # Errors
    /// 404 when there was none.
    pub fn stress(&self) -> Result<StressReport, Refused> {
        let received = self.ask(|driver| {
            let variant = driver.router().fabric().variant();
            driver.stress().map(|stress| (stress.view(), *stress.plan(), variant))
        })?;
        let (live, plan, variant) =
            received.ok_or_else(|| Refused::missing("no stress test was begun"))?;
        let (queueing, simulated) = match variant {
            Some(variant) => (variant.name(), self.simulated(&plan, variant)?),
            None => ("off", SimulatedStress::default()),
        };
        Ok(StressReport { queueing: queueing.to_owned(), live, simulated })
    }

    /// The test in virtual time, which is played once for all clients.
    fn simulated(&self, plan: &StressPlan, variant: Variant) -> Result<SimulatedStress, Refused> {
        let mut known = self.simulated.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, figures)) = known.as_ref().filter(|it| it.0 == (*plan, variant)) {
            return Ok(figures.clone());
        }
        let figures = simulated(plan, variant)?;
        *known = Some(((*plan, variant), figures.clone()));
        Ok(figures)
    }
}

/// The packets that the sources of a test send at most.
fn packets_most(plan: &StressPlan) -> f64 {
    let seconds = plan.period.as_secs_f64() * plan.periods_most() as f64;
    let packet_s = plan.link.span_of(u64::from(plan.packet_bytes)).as_secs_f64();
    plan.sources as f64 * seconds / packet_s
}

/// The destination of each stage's packets: a neighbour by hand behind the stage's port, whose link is held
/// to the rate of the fabric's.
fn targets(plan: &StressPlan, config: &RouterConfig) -> Result<Vec<IpAddr>, String> {
    let target = |number: usize| {
        let port = config.ports.get(number).ok_or_else(|| {
            format!("stage {} needs port {number}, and there is none", number + 1)
        })?;
        let name = &port.interface;
        if port.rate != Some(plan.link) {
            let rate = plan.link.bits_per_second();
            return Err(format!(
                "port {name} is to have the rate of the fabric's link, {rate} b/s"
            ));
        }
        let behind =
            |it: &&crate::config::NeighbourSection| it.interface == *name && it.address.is_ipv4();
        let found = config.neighbours.iter().find(behind);
        let none = || format!("there is no [[neighbour]] of IPv4 on {name} to send to");
        found.map(|neighbour| neighbour.address).ok_or_else(none)
    };
    (0..plan.stages).map(target).collect()
}
