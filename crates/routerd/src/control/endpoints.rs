//! Which request is answered by what, and the OpenAPI document that says so.

mod plugins;
mod reservations;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, put};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::{IntoParams, OpenApi, ToSchema};

use super::answer::{Answer, ErrorLine, Refused, object, read, written};
use super::command_channel::CommandChannel;
use super::events::{self, STREAMS_MAX};
use super::fabric_view::FabricView;
use super::messages::{Destination, Level, MessagesView};
use super::metrics;
use super::peer::Peer;
use super::stress::StressReport;
use super::trace;
use super::view::{
    ClassifierBody, DelayBody, EngineBody, FabricBody, FiltersView, Made, NeighboursView, PortView,
    PortsView, QueuesView, RateBody, RoutesQuery, RoutesView,
};
use crate::config::RouteSection;
use crate::filter::FilterSection;
use crate::stress::StressBody;
use crate::tally::Tally;

/// Bytes that a request may carry.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// What every path has at hand.
#[derive(Clone)]
pub struct ApiState {
    commands: Arc<CommandChannel>,
    streams: Arc<Semaphore>,
}

/// The OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(title = "Nilometer router", version = "1", license(name = "MIT OR Apache-2.0")),
    paths(
        tally,
        ports,
        port,
        queues,
        fabric,
        set_fabric,
        set_queue,
        set_rate,
        set_delay,
        filters,
        add_filter,
        remove_filter,
        plugins::plugins,
        plugins::add_plugin,
        plugins::replace_plugin,
        plugins::remove_plugin,
        plugins::message_plugin,
        reservations::reservations,
        reservations::reserve,
        reservations::refresh_reservation,
        reservations::release_reservation,
        neighbours,
        routes,
        add_route,
        remove_route,
        engine,
        set_engine,
        classifier,
        set_classifier,
        stress,
        start_stress,
        end_stress,
        config,
        events,
        trace,
        messages,
        set_messages,
        metrics_text,
        document
    )
)]
struct Document;

/// The OpenAPI document as indented JSON.
///
/// # Errors
/// If it cannot be serialised, which a test rules out.
pub fn openapi() -> anyhow::Result<String> {
    Ok(Document::openapi().to_pretty_json()? + "\n")
}

/// All routes of the API.
pub fn paths(commands: Arc<CommandChannel>) -> Router {
    let api = ApiState { commands, streams: Arc::new(Semaphore::new(STREAMS_MAX)) };
    Router::new()
        .route("/v1/tally", get(tally))
        .route("/v1/ports", get(ports))
        .route("/v1/ports/{port}", get(port))
        .route("/v1/ports/{port}/queue", put(set_queue))
        .route("/v1/ports/{port}/rate", put(set_rate))
        .route("/v1/ports/{port}/delay", put(set_delay))
        .route("/v1/queues/{port}", get(queues))
        .route("/v1/fabric", get(fabric).put(set_fabric))
        .route("/v1/filters", get(filters).post(add_filter))
        .route("/v1/filters/{id}", delete(remove_filter))
        .merge(plugins::paths())
        .merge(reservations::paths())
        .route("/v1/neighbours", get(neighbours))
        .route("/v1/routes", get(routes).post(add_route).delete(remove_route))
        .route("/v1/engine", get(engine).put(set_engine))
        .route("/v1/classifier", get(classifier).put(set_classifier))
        .route("/v1/stress", get(stress).post(start_stress).delete(end_stress))
        .route("/v1/config", get(config))
        .route("/v1/events", get(events))
        .route("/v1/trace", get(trace))
        .route("/v1/messages", get(messages).put(set_messages))
        .route("/v1/openapi.json", get(document))
        .route("/metrics", get(metrics_text))
        .fallback(|| async { Refused::missing("there is no such path; see /v1/openapi.json") })
        .method_not_allowed_fallback(|| async {
            let why = "this path does not support the method; see /v1/openapi.json";
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}

type Sent = Result<Bytes, BytesRejection>;
type Segment<T> = Result<Path<T>, PathRejection>;
type Parsed<T> = Result<Query<T>, QueryRejection>;

/// Confirmation of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// The change, in one line.
    pub done: String,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct From {
    /// Number of the first item.
    #[serde(default)]
    from: u32,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct After {
    /// List messages with a greater number.
    #[serde(default)]
    after: u64,
}

/// A port in a path.
#[derive(IntoParams)]
#[into_params(names("port"))]
#[expect(dead_code, reason = "it stands in the document; paths are read by their segments")]
struct PortInPath(
    /// Port number or interface name; digits are always a number.
    String,
);

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Prefix {
    /// The prefix.
    prefix: Option<String>,
}

/// Changes to logging; absent fields are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessagesBody {
    /// Minimum severity that is logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Where messages are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Destination>,
    /// File name, for the destination `file`; accepted on the Unix socket only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Does what may have to wait on a thread that may.
async fn away<T: Send + 'static>(
    api: ApiState,
    work: impl FnOnce(&CommandChannel) -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(move || work(&api.commands)).await;
    done.unwrap_or_else(|_| {
        Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; see messages"))
    })
}

async fn shown<T: Serialize + Send + 'static>(
    api: ApiState,
    work: impl FnOnce(&CommandChannel) -> Result<T, Refused> + Send + 'static,
) -> Answer {
    away(api, work).await.map(|value| object(StatusCode::OK, &value))
}

async fn changed(
    api: ApiState,
    work: impl FnOnce(&CommandChannel) -> Result<String, Refused> + Send + 'static,
) -> Answer {
    away(api, work).await.map(|done| object(StatusCode::OK, &Done { done }))
}

fn body<T: for<'de> Deserialize<'de>>(sent: Sent) -> Result<T, Refused> {
    read(&sent.map_err(|why| Refused::new(why.status(), why.body_text()))?)
}

fn segment<T>(named: Segment<T>) -> Result<T, Refused> {
    named.map(|Path(segment)| segment).map_err(|why| Refused::missing(why.body_text()))
}

fn query<T>(named: Parsed<T>) -> Result<T, Refused> {
    named.map(|Query(query)| query).map_err(|why| Refused::bad(why.body_text()))
}

/// All counters.
#[utoipa::path(get, path = "/v1/tally", responses((status = 200, body = Tally)))]
async fn tally(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::tally).await
}

/// All ports.
#[utoipa::path(get, path = "/v1/ports", responses((status = 200, body = PortsView)))]
async fn ports(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::ports).await
}

/// One port.
#[utoipa::path(get, path = "/v1/ports/{port}", params(PortInPath),
    responses((status = 200, body = PortView), (status = 404, body = ErrorLine)))]
async fn port(State(api): State<ApiState>, named: Segment<String>) -> Answer {
    let port = segment(named)?;
    shown(api, move |commands| commands.port(commands.port_number(&port)?)).await
}

/// The queues of an output's discipline.
#[utoipa::path(get, path = "/v1/queues/{port}", params(PortInPath, From),
    responses((status = 200, body = QueuesView), (status = 404, body = ErrorLine)))]
async fn queues(State(api): State<ApiState>, named: Segment<String>, from: Parsed<From>) -> Answer {
    let (port, from) = (segment(named)?, query(from)?.from);
    shown(api, move |commands| commands.queues(commands.port_number(&port)?, from)).await
}

/// The fabric at its last broadcast.
#[utoipa::path(get, path = "/v1/fabric", responses((status = 200, body = FabricView)))]
async fn fabric(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::fabric).await
}

/// Changes the equations, the period or the speedup.
#[utoipa::path(put, path = "/v1/fabric", request_body = FabricBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine)))]
async fn set_fabric(State(api): State<ApiState>, sent: Sent) -> Answer {
    let body = body(sent)?;
    changed(api, move |commands| commands.set_fabric(body)).await
}

/// Replaces an output's queueing discipline. The body is the `queue` table of a ROUTER.toml as an object. Without a
/// size the queue holds 50 ms of traffic at the port's rate.
#[utoipa::path(put, path = "/v1/ports/{port}/queue", params(PortInPath),
    request_body = serde_json::Value,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine)))]
async fn set_queue(State(api): State<ApiState>, named: Segment<String>, sent: Sent) -> Answer {
    let (port, queue) = (segment(named)?, body(sent)?);
    changed(api, move |commands| commands.set_queue(commands.port_number(&port)?, queue)).await
}

/// Sets the rate limit of an output's link.
#[utoipa::path(put, path = "/v1/ports/{port}/rate", params(PortInPath),
    request_body = RateBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine)))]
async fn set_rate(State(api): State<ApiState>, named: Segment<String>, sent: Sent) -> Answer {
    let (port, body) = (segment(named)?, body::<RateBody>(sent)?);
    changed(api, move |commands| commands.set_rate(commands.port_number(&port)?, &body)).await
}

/// Sets the added delay of an output's link.
#[utoipa::path(put, path = "/v1/ports/{port}/delay", params(PortInPath),
    request_body = DelayBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine)))]
async fn set_delay(State(api): State<ApiState>, named: Segment<String>, sent: Sent) -> Answer {
    let (port, body) = (segment(named)?, body::<DelayBody>(sent)?);
    changed(api, move |commands| commands.set_delay(commands.port_number(&port)?, &body)).await
}

/// Filters, with counts of matched packets and bytes.
#[utoipa::path(get, path = "/v1/filters", params(From),
    responses((status = 200, body = FiltersView)))]
async fn filters(State(api): State<ApiState>, from: Parsed<From>) -> Answer {
    let from = query(from)?.from;
    shown(api, move |commands| commands.filters(from)).await
}

/// Adds a filter.
#[utoipa::path(post, path = "/v1/filters", request_body = FilterSection,
    responses((status = 201, body = Made), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
async fn add_filter(State(api): State<ApiState>, sent: Sent) -> Answer {
    let filter = body(sent)?;
    let made = away(api, move |commands| commands.add_filter(filter)).await?;
    Ok(object(StatusCode::CREATED, &made))
}

/// Deletes a filter.
#[utoipa::path(delete, path = "/v1/filters/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = Done), (status = 404, body = ErrorLine)))]
async fn remove_filter(State(api): State<ApiState>, named: Segment<u32>) -> Answer {
    let id = segment(named)?;
    changed(api, move |commands| commands.remove_filter(id)).await
}

/// Neighbours in both families.
#[utoipa::path(get, path = "/v1/neighbours", responses((status = 200, body = NeighboursView)))]
async fn neighbours(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::neighbours).await
}

/// Routes: all routes to a prefix or an address; a list of best routes; or, without a query, the number of routes and
/// the static routes.
#[utoipa::path(get, path = "/v1/routes", params(RoutesQuery),
    responses((status = 200, body = RoutesView), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine)))]
async fn routes(State(api): State<ApiState>, named: Parsed<RoutesQuery>) -> Answer {
    let named = query(named)?;
    shown(api, move |commands| commands.routes(&named)).await
}

/// Adds a static route, replacing one to the same prefix; `interface` may also be a port number.
#[utoipa::path(post, path = "/v1/routes", request_body = RouteSection,
    responses((status = 201, body = Done), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
async fn add_route(State(api): State<ApiState>, sent: Sent) -> Answer {
    let route = body(sent)?;
    let done = away(api, move |commands| commands.add_route(route)).await?;
    Ok(object(StatusCode::CREATED, &Done { done }))
}

/// Deletes a static route.
#[utoipa::path(delete, path = "/v1/routes", params(Prefix),
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine)))]
async fn remove_route(State(api): State<ApiState>, named: Parsed<Prefix>) -> Answer {
    let missing = || Refused::bad("say which: ?prefix=198.18.0.0/16");
    let prefix = query(named)?.prefix.ok_or_else(missing)?;
    changed(api, move |commands| commands.remove_route(&prefix)).await
}

/// The lookup engines.
#[utoipa::path(get, path = "/v1/engine", responses((status = 200, body = EngineBody)))]
async fn engine(State(api): State<ApiState>) -> Answer {
    shown(api, |commands| Ok(commands.engine())).await
}

/// Selects other lookup engines.
#[utoipa::path(put, path = "/v1/engine", request_body = EngineBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
async fn set_engine(State(api): State<ApiState>, sent: Sent) -> Answer {
    let body = body::<EngineBody>(sent)?;
    changed(api, move |commands| commands.set_engine(&body)).await
}

/// The classifier.
#[utoipa::path(get, path = "/v1/classifier", responses((status = 200, body = ClassifierBody)))]
async fn classifier(State(api): State<ApiState>) -> Answer {
    shown(api, |commands| Ok(commands.classifier())).await
}

/// Selects another classifier.
#[utoipa::path(put, path = "/v1/classifier", request_body = ClassifierBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
async fn set_classifier(State(api): State<ApiState>, sent: Sent) -> Answer {
    let body = body(sent)?;
    changed(api, move |commands| commands.set_classifier(body)).await
}

/// Progress and result of the last stress test, and the simulator's result.
#[utoipa::path(get, path = "/v1/stress",
    responses((status = 200, body = StressReport), (status = 404, body = ErrorLine)))]
async fn stress(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::stress).await
}

/// Starts the stress test of distributed queueing (Table 4) on the current fabric.
#[utoipa::path(post, path = "/v1/stress", request_body = StressBody,
    responses((status = 201, body = Done), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
async fn start_stress(State(api): State<ApiState>, sent: Sent) -> Answer {
    let body = body::<StressBody>(sent)?;
    let done = away(api, move |commands| commands.start_stress(body)).await?;
    Ok(object(StatusCode::CREATED, &Done { done }))
}

/// Stops the stress test early.
#[utoipa::path(delete, path = "/v1/stress", responses((status = 200, body = Done)))]
async fn end_stress(State(api): State<ApiState>) -> Answer {
    changed(api, CommandChannel::end_stress).await
}

/// The running configuration, as a ROUTER.toml that reproduces this router.
#[utoipa::path(get, path = "/v1/config",
    responses((status = 200, content_type = "application/toml", body = String)))]
async fn config(State(api): State<ApiState>) -> Answer {
    let text = away(api, CommandChannel::saved).await?;
    Ok(written(StatusCode::OK, "application/toml", text))
}

/// Backlogs and rates at each broadcast, at most 20 a second: events `fabric`, each a FabricView.
#[utoipa::path(get, path = "/v1/events",
    responses((status = 200, content_type = "text/event-stream", body = String)))]
async fn events(State(api): State<ApiState>) -> Answer {
    events::events(api.commands, &api.streams)
}

/// Packets matching filters with `copy = true`, as pcapng, until the connection is closed.
#[utoipa::path(get, path = "/v1/trace",
    responses((status = 200, content_type = "application/x-pcapng", body = Vec<u8>),
        (status = 409, body = ErrorLine)))]
async fn trace(State(api): State<ApiState>) -> Answer {
    trace::trace(api.commands, &api.streams).await
}

/// The latest messages.
#[utoipa::path(get, path = "/v1/messages", params(After),
    responses((status = 200, body = MessagesView)))]
async fn messages(State(api): State<ApiState>, after: Parsed<After>) -> Answer {
    let after = query(after)?.after;
    shown(api, move |commands| Ok(commands.messages.view(after))).await
}

/// Changes the log level and destination.
#[utoipa::path(put, path = "/v1/messages", request_body = MessagesBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 403, body = ErrorLine)))]
async fn set_messages(
    State(api): State<ApiState>,
    Extension(peer): Extension<Peer>,
    sent: Sent,
) -> Answer {
    let named = body::<MessagesBody>(sent)?;
    if named.file.is_some() && peer != Peer::Owner {
        let why = "a log file can be set through the Unix socket only";
        return Err(Refused::new(StatusCode::FORBIDDEN, why));
    }
    changed(api, move |commands| {
        let file = named.file.map(PathBuf::from);
        match (named.destination, file) {
            (Some(to), file) => {
                let set = commands.messages.set_destination(to, file.as_deref());
                set.map_err(Refused::bad)?;
            }
            (None, Some(_)) => return Err(Refused::bad("`file` goes with `destination`")),
            (None, None) => {}
        }
        named.level.into_iter().for_each(|level| commands.messages.set_level(level));
        Ok(commands.messages.kept())
    })
    .await
}

/// All counters in the Prometheus text format.
#[utoipa::path(get, path = "/metrics",
    responses((status = 200, content_type = "text/plain; version=0.0.4", body = String)))]
async fn metrics_text(State(api): State<ApiState>) -> Answer {
    let text = away(api, metrics::metrics).await?;
    Ok(written(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json",
    responses((status = 200, content_type = "application/json", body = String)))]
async fn document() -> Answer {
    let text = openapi().map_err(Refused::unavailable)?;
    Ok(written(StatusCode::OK, "application/json", text))
}
