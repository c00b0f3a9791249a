//! One piece of work.

use std::fmt;
#[cfg(feature = "otlp")]
use std::time::SystemTime;

use bex_proto::SessionId;
use bex_proto::trace::{SpanId, TRACE_HEADER, TraceContext};
use http::HeaderMap;
use tracing::Instrument;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// A word or number about a span: ids, codes, counts. Nothing that a person wrote.
pub type Attribute<'a> = (&'static str, &'a (dyn fmt::Display + Sync));

/// Work that has begun. Nothing is told of it before [`Span::end`].
#[derive(Debug, Clone, Copy)]
pub struct Span {
    context: TraceContext,
    parent: Option<SpanId>,
    #[cfg(feature = "otlp")]
    began: SystemTime,
}

/// What the running task works for.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// Who asked, by a request's headers; `None` also for what is no `traceparent`.
pub fn asked_by(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(TRACE_HEADER)?.to_str().ok()?)
}

impl Span {
    /// The first span of a session: its creation.
    pub fn first_of(session: &SessionId) -> Self {
        Self::new(TraceContext::of_session(session), None)
    }

    /// Work for a session, asked for by what the task works on, else by the session itself.
    pub fn of(session: &SessionId) -> Self {
        Self::asked(session, current())
    }

    /// The same, asked for by another process's span. One of another trace is not believed.
    pub fn asked(session: &SessionId, by: Option<TraceContext>) -> Self {
        let root = TraceContext::of_session(session);
        let parent = by.filter(|by| by.trace == root.trace).unwrap_or(root);
        Self::below(parent)
    }

    /// A part of this work.
    #[must_use]
    pub fn part(&self) -> Self {
        Self::below(self.context)
    }

    fn below(parent: TraceContext) -> Self {
        Self::new(parent.child(), Some(parent.span))
    }

    fn new(context: TraceContext, parent: Option<SpanId>) -> Self {
        Self {
            context,
            parent,
            #[cfg(feature = "otlp")]
            began: SystemTime::now(),
        }
    }

    /// What a call made for this work says in its header.
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Runs `work` as a part of this span: it finds it as [`current`], and its log lines carry the trace's id.
    pub async fn hold<F: Future>(&self, work: F) -> F::Output {
        let is_told = current().is_some_and(|current| current.trace == self.context.trace);
        let log = if is_told {
            tracing::Span::current()
        } else {
            tracing::info_span!("trace", trace_id = %self.context.trace)
        };
        CURRENT
            .scope(self.context, Box::pin(work.instrument(log)))
            .await
    }

    /// The work is over.
    pub fn end(self, name: &'static str, attributes: &[Attribute<'_>]) {
        #[cfg(feature = "otlp")]
        crate::export::ended(|| crate::otlp::Ended {
            name,
            context: self.context,
            parent: self.parent,
            began: self.began,
            ended: SystemTime::now(),
            attributes: crate::otlp::attributes(attributes),
        });
        #[cfg(not(feature = "otlp"))]
        let _ = (name, attributes, self.parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_held_is_found_below_and_another_trace_is_not_taken_over() {
        let (session, other) = (SessionId::random(), SessionId::random());
        assert_eq!(current(), None);
        let span = Span::of(&session);
        let root = TraceContext::of_session(&session);
        assert_eq!(span.parent, Some(root.span));
        span.hold(async {
            assert_eq!(current(), Some(span.context()));
            let below = Span::of(&session);
            assert_eq!(below.parent, Some(span.context().span));
            let elsewhere = Span::of(&other);
            assert_eq!(
                elsewhere.context().trace,
                TraceContext::of_session(&other).trace
            );
        })
        .await;
        assert_eq!(current(), None);
        let stranger = TraceContext::of_session(&other);
        assert_eq!(
            Span::asked(&session, Some(stranger)).parent,
            Some(root.span)
        );
        assert_eq!(Span::first_of(&session).context(), root);
    }
}
