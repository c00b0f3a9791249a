//! A request to watch a remote session: admitted as one for an agent's session is, by a ticket of its own kind.

use std::net::SocketAddr;
use std::sync::Arc;

use bex_proto::problem::Code;
use bex_proto::ticket::{AttachAction, KeyRing, RemoteClaims};
use bex_proto::{RemoteSessionId, limits};
use bex_store::Db;
use bex_store::audit::StreamAuditId;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use jiff::Timestamp;

use super::admission::{self, Admitted, Asked, in_time};
use super::answer::{bare, event_headers};
use super::request::{CUT, NOTHING_NEW, close_audit};
use super::viewer::Ends;
use super::{Attach, body, forwarded};
use crate::metrics::Counted;
use crate::remote::place::Place;
use crate::remote::viewer::Viewer;
use crate::serve::ResponseBody;

/// What a viewer will be shown: from its place on, or nothing, as it has everything and nothing more comes.
type Planned = Option<Place>;

impl Attach {
    /// Goes on behind the preflight.
    pub(super) async fn serve_remote<B>(
        self: &Arc<Self>,
        keys: &KeyRing,
        session: &str,
        request: &Request<B>,
        peer: SocketAddr,
    ) -> Result<Response<ResponseBody>, Code> {
        if request.method() != Method::GET {
            return Err(Code::MethodNotAllowed);
        }
        let asked = Asked {
            action: AttachAction::Read,
            session,
            headers: request.headers(),
            now: Timestamp::now(),
        };
        let claims = admission::remote_ticket(keys, &asked)?;
        let after = cursor(request.headers(), request.uri())?;
        let remote = forwarded::address(request.headers(), peer, &self.trusted_proxies);
        let admitted = admission::place(&self.db, &self.streams, &self.limiter, claims).await?;
        let planned = plan(&self.db, &admitted.claims.ses, after).await?;
        // in a task of its own, as with an agent's session
        let begun = Arc::clone(self).begin_remote(planned, after, admitted, remote.to_string());
        self.viewers.spawn(begun).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a stream did not begin");
            Err(Code::Unavailable)
        })
    }

    /// Uses the ticket up and begins the stream.
    async fn begin_remote(
        self: Arc<Self>,
        planned: Planned,
        after: Option<u64>,
        admitted: Admitted<RemoteClaims>,
        remote: String,
    ) -> Result<Response<ResponseBody>, Code> {
        let audit = admission::redeem(
            &self.db,
            &admitted.claims,
            &self.instance,
            &remote,
            Timestamp::now(),
        )
        .await?;
        let Some(place) = planned else {
            self.metrics.stream_ended(NOTHING_NEW);
            close_audit(&self.db, audit, NOTHING_NEW).await;
            return Ok(bare(StatusCode::NO_CONTENT));
        };
        Ok(self.open_remote((place, after), admitted, audit))
    }

    fn open_remote(
        self: &Arc<Self>,
        from: (Place, Option<u64>),
        admitted: Admitted<RemoteClaims>,
        audit: StreamAuditId,
    ) -> Response<ResponseBody> {
        let Admitted {
            claims,
            registration,
            permit,
        } = admitted;
        let ends = Ends {
            revoked: registration.revoked.clone(),
            drain: self.drain.clone(),
        };
        let counted = Counted::new(self.metrics.streams.clone());
        let (out, body) = body::stream((registration, permit, counted));
        let follow = self.follows.follow(&claims.ses);
        let viewer = Viewer::new(
            (self.db.clone(), self.budget.clone()),
            (claims.ses, follow),
            from,
            out,
        );
        let (db, cut, metrics) = (self.db.clone(), self.cut.clone(), self.metrics.clone());
        self.viewers.spawn(async move {
            let word = tokio::select! {
                word = viewer.run(ends, audit) => word,
                () = cut.cancelled() => {
                    close_audit(&db, audit, CUT).await;
                    CUT
                }
            };
            metrics.stream_ended(word);
        });
        let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
        response.headers_mut().extend(event_headers());
        response
    }
}

/// Whether a path's id names a remote session.
pub(super) fn is_remote(session: &str) -> bool {
    session.parse::<RemoteSessionId>().is_ok()
}

/// `Last-Event-ID`, else `?after=`: the last event that the viewer has. An empty header is none, as browsers send none then.
fn cursor(headers: &HeaderMap, uri: &Uri) -> Result<Option<u64>, Code> {
    let header = headers.get("last-event-id").map(|value| value.to_str());
    let header = header.transpose().map_err(|_| Code::InvalidCursor)?;
    let mut words = uri.query().unwrap_or("").split('&');
    let query = words.find_map(|word| word.strip_prefix("after="));
    let text = header.filter(|text| !text.is_empty()).or(query);
    text.map(number).transpose()
}

/// Digits only, and small enough for the store.
fn number(text: &str) -> Result<u64, Code> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| plain);
    number
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or(Code::InvalidCursor)
}

/// Decides before the first byte. A cursor beyond the log is a viewer's that was ahead of what is shown here: it waits.
async fn plan(db: &Db, session: &RemoteSessionId, after: Option<u64>) -> Result<Planned, Code> {
    let look = in_time(db.look_at_remote(session, None, limits::REMOTE_PAGE_EVENTS)).await?;
    let standing = look.ok_or(Code::Revoked)?.standing;
    let Some(after) = after else {
        return Ok(Some(Place::default()));
    };
    let next = after.saturating_add(1);
    if standing.is_final() && next >= standing.next_index {
        return Ok(None);
    }
    Ok(Some(Place {
        next,
        turn: in_time(db.turns_to_tell(session, after)).await?,
        state: None,
    }))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn cursors_are_numbers() {
        let read = |header: Option<&'static [u8]>, uri: &str| {
            let mut headers = HeaderMap::new();
            if let Some(value) = header {
                let value = HeaderValue::from_bytes(value).expect("a value");
                headers.insert("last-event-id", value);
            }
            cursor(&headers, &uri.parse().expect("a uri"))
        };
        for (header, uri, expected) in [
            (None, "/s", Ok(None)),
            (None, "/s?x=1&after=0", Ok(Some(0))),
            (Some(&b"7"[..]), "/s?after=5", Ok(Some(7))),
            (Some(b""), "/s?after=5", Ok(Some(5))),
            (
                None,
                "/s?after=9223372036854775807",
                Ok(Some(i64::MAX as u64)),
            ),
            (
                None,
                "/s?after=9223372036854775808",
                Err(Code::InvalidCursor),
            ),
            (None, "/s?after=", Err(Code::InvalidCursor)),
            (None, "/s?after=-1", Err(Code::InvalidCursor)),
            (None, "/s?after=+1", Err(Code::InvalidCursor)),
            (None, "/s?after=1.2", Err(Code::InvalidCursor)),
            (Some(b"x"), "/s?after=1", Err(Code::InvalidCursor)),
            (Some(b"\xff"), "/s", Err(Code::InvalidCursor)),
        ] {
            assert_eq!(read(header, uri), expected, "{header:?} {uri}");
        }
    }
}
