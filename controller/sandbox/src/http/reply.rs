//! Answers as axum sends them.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use futures::Stream;
use futures::stream::iter;

use crate::answer::Answer;
use crate::reply::{Reply, Style, head};
use crate::shown::Listing;

/// Bytes of a list that are made at a time.
const PIECE: usize = 64 * 1024;

pub(super) fn of(answer: Answer, style: Style) -> Response<Body> {
    let Reply { code, headers, body } = Reply::of(answer, style);
    response(code, headers, Body::from(body))
}

/// A list, piece by piece: one of ten thousand objects is some twenty megabytes.
pub(super) fn list(listing: Listing) -> Response<Body> {
    let pieces = listing
        .pieces(PIECE)
        .map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
    response(200, head("application/json"), Body::from_stream(iter(pieces)))
}

/// Events as they come, one a line.
pub(super) fn stream(events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response<Body> {
    response(200, head("application/json"), Body::from_stream(events))
}

fn response(code: u16, headers: Vec<(&'static str, String)>, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("the API's codes are those of HTTP");
    for (name, value) in headers {
        // A warning may hold what no header may: it is left out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    response
}
