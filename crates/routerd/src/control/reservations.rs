//! Reservations, looked at, made and given back while packets pass.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nilometer_queue::ReservedState;
use nilometer_reservation::message::{FlowPlugins, NamedPlugin};
use nilometer_reservation::process::{
    Counts, Discard, FlowFilter, HoldError, HoldRequest, NextHop, Owner, Routing,
};
use nilometer_reservation::{ReservationId, Side};
use nilometer_sim::quantity;
use nilometer_wire::{Span, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::view::Made;
use crate::driver::{Driver, Reserved};
use crate::filter::protocol_number;

/// The default depth of a bucket: two full frames.
const BUCKET_BYTES: u32 = 3_076;
/// The default lifetime without a refresh.
const LIFETIME: Span = Span::from_secs(60);

/// The packets of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// Source address; absent matches any.
    pub source: Option<String>,
    /// Destination address.
    pub destination: String,
    /// IANA protocol number.
    pub protocol: u8,
    /// Source port; absent matches any.
    pub source_port: Option<u16>,
    /// Destination port; absent matches any.
    pub destination_port: Option<u16>,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReservationView {
    /// Its number.
    pub id: u64,
    /// Type of reservation: `rsvp`, `flow_setup` or `api`.
    pub kind: String,
    /// Name of the holder, for `api` reservations.
    pub holder: Option<String>,
    /// The reserved flows.
    pub flows: Vec<FlowView>,
    /// Numbers of the input ports with booked bandwidth.
    pub inputs: Vec<u32>,
    /// Number of the output port.
    pub output: u32,
    /// Next hop of the reserved flows.
    pub next_hop: String,
    /// Whether the next hop overrides the routing table.
    pub is_pinned: bool,
    /// Reserved rate in bits per second, including link overhead at the output.
    pub rate_bps: u64,
    /// Token bucket depth.
    pub bucket_bytes: u32,
    /// Seconds until it expires unless refreshed.
    pub expires_in_s: Option<f64>,
    /// Number of its queue at the output.
    pub queue: u16,
    /// Bytes sent from its queue.
    pub sent_bytes: u64,
    /// Packets waiting in its queue.
    pub waiting_packets: u64,
    /// Packets dropped because its queue was full.
    pub dropped_packets: u64,
    /// Plugins for its packets, in processing order.
    pub plugins: Vec<FlowPluginView>,
}

/// A plugin of a reserved flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowPluginView {
    /// Its class, `NAME` or `NAME@VERSION`.
    pub class: String,
    /// Its configuration.
    pub configuration: String,
    /// The name of its instance; absent until bound.
    pub instance: Option<String>,
}

/// Bandwidth booked at a port, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BookedView {
    /// The port.
    pub port: u32,
    /// Reservable bandwidth in each direction.
    pub reservable_bps: u64,
    /// Booked receive bandwidth.
    pub input_bps: u64,
    /// Booked transmit bandwidth.
    pub output_bps: u64,
}

/// Counters of the RSVP process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RsvpView {
    /// Messages received.
    pub received: u64,
    /// Received messages that had an effect.
    pub effective: u64,
    /// Received messages without effect, by reason.
    pub discarded: BTreeMap<String, u64>,
    /// Messages sent.
    pub sent: u64,
    /// States that expired.
    pub expired: u64,
    /// Requests refused by admission control.
    pub admission_refused: u64,
    /// Times that a flow's plugins were refused.
    pub plugins_refused: u64,
    /// Packets lost because they arrived faster than they were read.
    pub lost: u64,
}

/// Reservations and booked bandwidth by port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReservationsView {
    /// All reservations, by number.
    pub reservations: Vec<ReservationView>,
    /// The ports.
    pub ports: Vec<BookedView>,
    /// The RSVP process.
    pub rsvp: RsvpView,
}

/// A bandwidth request for a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveBody {
    /// Name of the holder.
    pub holder: String,
    /// Destination address of the flow.
    pub destination: String,
    /// Source address; any where absent.
    #[serde(default)]
    pub source: Option<String>,
    /// `udp`, `tcp` or a number.
    pub protocol: String,
    /// Source port; any where absent.
    #[serde(default)]
    pub source_port: Option<u16>,
    /// Destination port; any where absent.
    #[serde(default)]
    pub destination_port: Option<u16>,
    /// Input port, if bandwidth is to be booked there too; any port if absent.
    #[serde(default)]
    pub input: Option<String>,
    /// Next-hop neighbour, pinned; chosen by the routing table if absent.
    #[serde(default)]
    pub via: Option<String>,
    /// The rate, such as `5 Mb/s`, including link overhead.
    pub rate: String,
    /// Token bucket depth in bytes.
    #[serde(default)]
    pub bucket_bytes: Option<u32>,
    /// Lifetime without a refresh, 1 s to 1 h, such as `60 s`.
    #[serde(default)]
    pub lifetime: Option<String>,
    /// Plugins that process its packets during its lifetime, in this order.
    #[serde(default)]
    pub plugins: Vec<FlowPluginBody>,
}

/// A plugin for a reserved flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowPluginBody {
    /// Its class, `NAME` or `NAME@VERSION`.
    pub class: String,
    /// Its configuration.
    #[serde(default)]
    pub configuration: String,
}

/// The routing table as the RSVP process is shown it.
struct Shown<'a>(&'a dyn Fn(IpAddr, &mut Vec<NextHop>));

impl Routing for Shown<'_> {
    fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>) {
        (self.0)(destination, to);
    }
}

impl CommandChannel {
    /// All reservations.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn reservations(&self) -> Result<ReservationsView, Refused> {
        self.ask(view)
    }

    /// Reserves bandwidth for a flow.
    ///
    /// # Errors
    /// 400 for what cannot be, 409 where bandwidth does not suffice.
    pub fn reserve(&self, body: &ReserveBody) -> Result<Made, Refused> {
        let input = body.input.as_deref().map(|port| self.port_number(port)).transpose()?;
        let request = request(body, input).map_err(Refused::bad)?;
        request.plugins.as_ref().map_or(Ok(()), |plugins| self.try_plugins(plugins))?;
        let (holder, rate) = (request.holder.clone(), request.rate_bytes * 8);
        let held = self.ask(move |driver| {
            driver
                .with_reservations(|process, now, query| process.hold(now, request, &Shown(query)))
        })?;
        let held = held.ok_or_else(|| Refused::unavailable("the router reserves nothing"))?;
        let id = held.map_err(|why| match why {
            HoldError::Admission(_) | HoldError::Plugins(_) => Refused::conflict(why),
            _ => Refused::bad(why),
        })?;
        let id = u32::try_from(id.0).map_err(Refused::unavailable)?;
        self.report_change(format!("reservation {id}: {rate} b/s for {holder}"));
        Ok(Made { id })
    }

    /// Refreshes a reservation of the API.
    ///
    /// # Errors
    /// 404 where there is none of this number.
    pub fn refresh_reservation(&self, id: u32) -> Result<String, Refused> {
        let number = ReservationId(id.into());
        let is_there = self.ask(move |driver| {
            driver.with_reservations(|process, now, _| process.refresh_hold(now, number))
        })?;
        match is_there {
            Some(true) => Ok(format!("reservation {id} lives on")),
            _ => Err(Refused::missing(format!("the API has no reservation {id}"))),
        }
    }

    /// Releases a reservation of the API.
    ///
    /// # Errors
    /// 404 where there is none of this number.
    pub fn release_reservation(&self, id: u32) -> Result<String, Refused> {
        let number = ReservationId(id.into());
        let is_there = self.ask(move |driver| {
            driver.with_reservations(|process, _, _| process.release_hold(number))
        })?;
        match is_there {
            Some(true) => Ok(self.report_change(format!("reservation {id} is released"))),
            _ => Err(Refused::missing(format!("the API has no reservation {id}"))),
        }
    }
}

/// What the words of a request mean.
fn request(body: &ReserveBody, input: Option<usize>) -> Result<HoldRequest, String> {
    let address = |key: &str, text: &String| {
        text.parse::<IpAddr>().map_err(|_| format!("{key}: `{text}` is not an address"))
    };
    let optional =
        |key, text: &Option<String>| text.as_ref().map(|text| address(key, text)).transpose();
    let protocol = protocol_number(&body.protocol).ok_or_else(|| {
        format!("protocol: `{}` is not udp, tcp or a number to 255", body.protocol)
    })?;
    let rate = quantity::rate(&body.rate).map_err(|why| format!("rate: {why}"))?;
    let lifetime = body.lifetime.as_deref().map(quantity::span).transpose();
    let lifetime = lifetime.map_err(|why| format!("lifetime: {why}"))?;
    let plugins = body.plugins.iter().map(|FlowPluginBody { class, configuration }| NamedPlugin {
        class: class.clone(),
        configuration: configuration.clone(),
    });
    let plugins: Vec<NamedPlugin> = plugins.collect();
    let plugins = (!plugins.is_empty()).then(|| FlowPlugins::new(plugins)).transpose();
    Ok(HoldRequest {
        holder: body.holder.clone(),
        flow: FlowFilter {
            source: optional("source", &body.source)?,
            destination: address("destination", &body.destination)?,
            protocol,
            source_port: body.source_port,
            destination_port: body.destination_port,
        },
        input: input.map(|input| input as u32),
        via: optional("via", &body.via)?,
        rate_bytes: rate.bits_per_second() / 8,
        bucket_bytes: body.bucket_bytes.unwrap_or(BUCKET_BYTES),
        lifetime: lifetime.unwrap_or(LIFETIME),
        plugins: plugins.map_err(|why| format!("plugins: {why}"))?,
    })
}

fn view(driver: &mut Driver) -> ReservationsView {
    let now = driver.now();
    let reservations = driver.reserved().iter().map(|one| reservation_view(one, now)).collect();
    let lost = driver.router().signalling_lost();
    let Some(process) = driver.rsvp() else {
        return ReservationsView { reservations, ..ReservationsView::default() };
    };
    let admission = process.admission();
    let ports = (0..).map_while(|port| {
        let bits = |side| admission.booked(port, side).unwrap_or(0) * 8;
        Some(BookedView {
            port,
            reservable_bps: admission.reservable(port)? * 8,
            input_bps: bits(Side::Input),
            output_bps: bits(Side::Output),
        })
    });
    ReservationsView {
        reservations,
        ports: ports.collect(),
        rsvp: rsvp_view(process.counts(), lost),
    }
}

fn reservation_view(one: &Reserved, now: Time) -> ReservationView {
    let reservation = &one.reservation;
    let (kind, holder) = match &reservation.owner {
        Owner::Rsvp => ("rsvp", None),
        Owner::FlowSetup => ("flow_setup", None),
        Owner::Api(holder) => ("api", Some(holder.clone())),
    };
    let flow = |flow: &FlowFilter| FlowView {
        source: flow.source.map(|address| address.to_string()),
        destination: flow.destination.to_string(),
        protocol: flow.protocol,
        source_port: flow.source_port,
        destination_port: flow.destination_port,
    };
    let of = |read: fn(&ReservedState) -> u64| one.state.as_ref().map_or(0, read);
    let plugins = reservation.plugins.iter().flat_map(|all| all.plugins()).enumerate();
    let plugins = plugins.map(|(place, plugin)| FlowPluginView {
        class: plugin.class.clone(),
        configuration: plugin.configuration.clone(),
        instance: one.instances.get(place).cloned(),
    });
    ReservationView {
        id: reservation.id.0,
        kind: kind.to_owned(),
        holder,
        flows: reservation.flows.iter().map(flow).collect(),
        inputs: reservation.inputs.clone(),
        output: reservation.output,
        next_hop: reservation.next_hop.to_string(),
        is_pinned: one.is_pinned,
        rate_bps: reservation.rate_bytes * 8,
        bucket_bytes: reservation.bucket_bytes,
        expires_in_s: reservation.expires_at.map(|at| at.since(now).as_secs_f64()),
        queue: one.queue,
        sent_bytes: of(|state| state.sent_bytes),
        waiting_packets: of(|state| state.backlog.packets),
        dropped_packets: of(|state| state.dropped_packets),
        plugins: plugins.collect(),
    }
}

fn rsvp_view(counts: &Counts, lost: u64) -> RsvpView {
    let discarded = Discard::ALL.map(|why| (why.name().to_owned(), counts.discarded[why as usize]));
    RsvpView {
        received: counts.received,
        effective: counts.effective,
        discarded: discarded.into(),
        sent: counts.sent,
        expired: counts.expired,
        admission_refused: counts.admission_refused,
        plugins_refused: counts.plugins_refused,
        lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> ReserveBody {
        ReserveBody {
            holder: "me".to_owned(),
            destination: "198.18.1.9".to_owned(),
            source: None,
            protocol: "udp".to_owned(),
            source_port: None,
            destination_port: Some(5_004),
            input: None,
            via: None,
            rate: "8 Mb/s".to_owned(),
            bucket_bytes: None,
            lifetime: None,
            plugins: Vec::new(),
        }
    }

    fn plugin(class: &str) -> FlowPluginBody {
        FlowPluginBody { class: class.to_owned(), configuration: String::new() }
    }

    #[test]
    fn words_become_a_request_or_a_reason() {
        let read = request(&body(), Some(2)).expect("sound");
        assert_eq!((read.rate_bytes, read.bucket_bytes, read.input), (1_000_000, 3_076, Some(2)));
        assert_eq!((read.flow.protocol, read.lifetime), (17, LIFETIME));
        let bad = [
            (ReserveBody { destination: "me".into(), ..body() }, "destination"),
            (ReserveBody { source: Some("1".into()), ..body() }, "source"),
            (ReserveBody { protocol: "rsvp".into(), ..body() }, "protocol"),
            (ReserveBody { rate: "fast".into(), ..body() }, "rate"),
            (ReserveBody { lifetime: Some("long".into()), ..body() }, "lifetime"),
            (ReserveBody { via: Some("there".into()), ..body() }, "via"),
            (ReserveBody { plugins: vec![plugin("a b")], ..body() }, "plugins"),
        ];
        for (body, key) in bad {
            let why = request(&body, None).expect_err(key);
            assert!(why.starts_with(key), "{why}");
        }
    }
}
