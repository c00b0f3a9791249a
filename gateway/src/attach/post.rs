//! The body of a posted turn: read to its end within bounds, and ignored. The prompt is the stored one.

use std::time::Duration;

use bex_proto::limits;
use bex_proto::problem::Code;
use http_body::Body;
use http_body_util::BodyExt;

/// A page sends its body at once; this is for the slowest phone.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Reads `body` to its end.
///
/// # Errors
/// [`Code::BodyTooLarge`] over [`limits::STREAM_POST_BODY`]; [`Code::InvalidRequest`] when it breaks off or takes too long.
pub async fn drain<B>(mut body: B) -> Result<(), Code>
where
    B: Body + Unpin,
{
    let limit = limits::STREAM_POST_BODY as u64;
    if body.size_hint().lower() > limit {
        return Err(Code::BodyTooLarge);
    }
    let reading = async {
        let mut seen = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Code::InvalidRequest)?;
            if let Some(data) = frame.data_ref() {
                seen += bytes::Buf::remaining(data) as u64;
            }
            if seen > limit {
                return Err(Code::BodyTooLarge);
            }
        }
        Ok(())
    };
    tokio::time::timeout(BODY_TIMEOUT, reading)
        .await
        .map_err(|_| Code::InvalidRequest)?
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{Full, StreamBody};

    use super::*;

    #[tokio::test]
    async fn bodies_within_the_bound_are_read_and_others_refused() {
        let limit = limits::STREAM_POST_BODY;
        assert_eq!(
            drain(Full::new(Bytes::from(vec![b'x'; limit]))).await,
            Ok(())
        );
        assert_eq!(
            drain(Full::new(Bytes::from(vec![b'x'; limit + 1]))).await,
            Err(Code::BodyTooLarge)
        );
        let pieces = (0..5).map(|_| {
            Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(vec![b'x'; limit / 4])))
        });
        let unannounced = StreamBody::new(futures::stream::iter(pieces));
        assert_eq!(
            drain(unannounced).await,
            Err(Code::BodyTooLarge),
            "without a length too"
        );
        let broken = StreamBody::new(futures::stream::iter([Err::<http_body::Frame<Bytes>, _>(
            std::io::Error::other("gone"),
        )]));
        assert_eq!(drain(broken).await, Err(Code::InvalidRequest));
    }
}
