//! The paths of plugins.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post, put};

use super::{ApiState, Done, Segment, Sent, away, body, changed, segment, shown};
use crate::control::answer::{Answer, ErrorLine, object};
use crate::control::command_channel::CommandChannel;
use crate::control::plugins::{AnswerView, MessageBody, PluginBody, PluginsView};
use crate::plugins::PluginSection;

/// Paths of the plugin API.
pub(super) fn paths() -> Router<ApiState> {
    Router::new()
        .route("/v1/plugins", get(plugins).post(add_plugin))
        .route("/v1/plugins/{name}", put(replace_plugin).delete(remove_plugin))
        .route("/v1/plugins/{name}/messages", post(message_plugin))
}

/// Plugin instances, with their counters.
#[utoipa::path(get, path = "/v1/plugins", responses((status = 200, body = PluginsView)))]
pub(super) async fn plugins(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::plugins).await
}

/// Adds a plugin instance; filters with the action `active` pass packets to it.
#[utoipa::path(post, path = "/v1/plugins", request_body = PluginSection,
    responses((status = 201, body = Done), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
pub(super) async fn add_plugin(State(api): State<ApiState>, sent: Sent) -> Answer {
    let section = body(sent)?;
    let done = away(api, move |commands| commands.add_plugin(section)).await?;
    Ok(object(StatusCode::CREATED, &Done { done }))
}

/// Replaces a plugin instance, between two packets of its flows.
#[utoipa::path(put, path = "/v1/plugins/{name}", params(("name" = String, Path)),
    request_body = PluginBody,
    responses((status = 200, body = Done), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine), (status = 409, body = ErrorLine)))]
pub(super) async fn replace_plugin(
    State(api): State<ApiState>,
    requested: Segment<String>,
    sent: Sent,
) -> Answer {
    let (name, body) = (segment(requested)?, body::<PluginBody>(sent)?);
    changed(api, move |commands| commands.replace_plugin(&name, body)).await
}

/// Deletes a plugin instance that no filter uses.
#[utoipa::path(delete, path = "/v1/plugins/{name}", params(("name" = String, Path)),
    responses((status = 200, body = Done), (status = 404, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
pub(super) async fn remove_plugin(
    State(api): State<ApiState>,
    requested: Segment<String>,
) -> Answer {
    let name = segment(requested)?;
    changed(api, move |commands| commands.remove_plugin(&name)).await
}

/// Sends a message to a plugin instance and returns its answer.
#[utoipa::path(post, path = "/v1/plugins/{name}/messages", params(("name" = String, Path)),
    request_body = MessageBody,
    responses((status = 200, body = AnswerView), (status = 400, body = ErrorLine),
        (status = 404, body = ErrorLine), (status = 409, body = ErrorLine)))]
pub(super) async fn message_plugin(
    State(api): State<ApiState>,
    requested: Segment<String>,
    sent: Sent,
) -> Answer {
    let (name, body) = (segment(requested)?, body::<MessageBody>(sent)?);
    let answer = away(api, move |commands| commands.message_plugin(&name, body)).await?;
    Ok(object(StatusCode::OK, &answer))
}
