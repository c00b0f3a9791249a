//! Which trace a piece of work belongs to, as W3C Trace Context says it in the header `traceparent`.
//!
//! A session is one trace, whose id and first span are derived from the session's id: every process, also one that starts days later on
//! another machine, names the same trace without having been told. The header adds which span asked.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::SessionId;

/// Header of calls from api to gateway and from gateway to driver.
pub const TRACE_HEADER: &str = "traceparent";

/// 16 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// 8 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// A span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that asks.
    pub span: SpanId,
}

impl TraceContext {
    /// The session's trace and its first span.
    pub fn of_session(session: &SessionId) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"bex-trace\n");
        hash.update(session.as_str());
        let hash = hash.finalize();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&hash[..16]);
        span.copy_from_slice(&hash[16..24]);
        Self {
            trace: TraceId(trace),
            span: SpanId(span),
        }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        let mut span = [0; 8];
        getrandom::fill(&mut span).expect("the operating system always has randomness after boot");
        // one in 2^64 would be no id
        span[0] |= u8::from(span == [0; 8]);
        Self {
            span: SpanId(span),
            ..self
        }
    }

    /// A header's value; `None` for what is not exactly one. Later versions may go on behind the part that is understood.
    pub fn parse(value: &str) -> Option<Self> {
        let mut fields = value.split('-');
        let (version, trace, span, flags) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        let is_known = match version {
            "00" => fields.next().is_none(),
            "ff" => false,
            _ => true,
        };
        if !is_known || read::<1>(version).is_none() || read::<1>(flags).is_none() {
            return None;
        }
        let (trace, span) = (read::<16>(trace)?, read::<8>(span)?);
        (trace != [0; 16] && span != [0; 8]).then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
        })
    }
}

/// Lower-case hexadecimal digits, exactly as many as `N` bytes have.
fn read<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// The header's value. Every trace is kept, so the flag says sampled.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_one_trace_for_everybody() {
        let (one, other) = (SessionId::random(), SessionId::random());
        let root = TraceContext::of_session(&one);
        assert_eq!(root, TraceContext::of_session(&one));
        assert_ne!(root.trace, TraceContext::of_session(&other).trace);
        let child = root.child();
        assert_eq!(child.trace, root.trace);
        assert_ne!(child.span, root.span);
        assert_eq!(TraceContext::parse(&child.to_string()), Some(child));
    }

    #[test]
    fn only_a_whole_header_is_believed() {
        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
        const SPAN: &str = "b7ad6b7169203331";
        for good in [
            format!("00-{TRACE}-{SPAN}-00"),
            format!("01-{TRACE}-{SPAN}-01-more"),
        ] {
            let context = TraceContext::parse(&good).expect("a context");
            assert_eq!(context.trace.to_string(), TRACE);
            assert_eq!(context.span.to_string(), SPAN);
        }
        for bad in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-\"}}"),
        ] {
            assert_eq!(TraceContext::parse(&bad), None, "{bad}");
        }
    }
}
