//! The paths of reservations.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};

use super::{ApiState, Done, Segment, Sent, away, body, changed, segment, shown};
use crate::control::answer::{Answer, ErrorLine, object};
use crate::control::command_channel::CommandChannel;
use crate::control::reservations::{ReservationsView, ReserveBody};
use crate::control::view::Made;

/// Paths of the reservation API.
pub(super) fn paths() -> Router<ApiState> {
    Router::new()
        .route("/v1/reservations", get(reservations).post(reserve))
        .route("/v1/reservations/{id}", put(refresh_reservation).delete(release_reservation))
}

/// Reservations and booked bandwidth by port.
#[utoipa::path(get, path = "/v1/reservations",
    responses((status = 200, body = ReservationsView)))]
pub(super) async fn reservations(State(api): State<ApiState>) -> Answer {
    shown(api, CommandChannel::reservations).await
}

/// Reserves bandwidth for a flow.
#[utoipa::path(post, path = "/v1/reservations", request_body = ReserveBody,
    responses((status = 201, body = Made), (status = 400, body = ErrorLine),
        (status = 409, body = ErrorLine)))]
pub(super) async fn reserve(State(api): State<ApiState>, sent: Sent) -> Answer {
    let body: ReserveBody = body(sent)?;
    let made = away(api, move |commands| commands.reserve(&body)).await?;
    Ok(object(StatusCode::CREATED, &made))
}

/// Refreshes a reservation for its lifetime.
#[utoipa::path(put, path = "/v1/reservations/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = Done), (status = 404, body = ErrorLine)))]
pub(super) async fn refresh_reservation(
    State(api): State<ApiState>,
    requested: Segment<u32>,
) -> Answer {
    let id = segment(requested)?;
    changed(api, move |commands| commands.refresh_reservation(id)).await
}

/// Deletes a reservation.
#[utoipa::path(delete, path = "/v1/reservations/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = Done), (status = 404, body = ErrorLine)))]
pub(super) async fn release_reservation(
    State(api): State<ApiState>,
    requested: Segment<u32>,
) -> Answer {
    let id = segment(requested)?;
    changed(api, move |commands| commands.release_reservation(id)).await
}
