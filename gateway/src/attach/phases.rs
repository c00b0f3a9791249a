//! A stream's spans: admission, replay, live, and the whole.

use bex_proto::SessionId;
use bex_proto::trace::TraceContext;
use bex_telemetry::{Attribute, Span};

/// Where a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It shows what is stored.
    Replay,
    /// It joined a source; what it reads from the store in between is a part of that.
    Live,
}

/// A request that may be admitted.
#[derive(Debug)]
pub(super) struct Asking {
    whole: Span,
    admission: Span,
    /// The browser's own trace: another one, told beside ours.
    caller: Option<TraceContext>,
}

impl Asking {
    /// It begins now.
    pub(super) fn begin(session: &SessionId, caller: Option<TraceContext>) -> Self {
        let whole = Span::asked(session, None);
        Self {
            whole,
            admission: whole.part(),
            caller,
        }
    }

    /// Its stream begins.
    pub(super) fn admitted(self, session: &SessionId) -> Phases {
        let caller = self.caller.map(|caller| caller.trace.to_string());
        let mut attributes: Vec<Attribute<'_>> = vec![("bex.session", session)];
        if let Some(caller) = &caller {
            attributes.push(("bex.caller.trace_id", caller));
        }
        self.admission.end("attach.admission", &attributes);
        Phases::of(self.whole)
    }
}

/// See the module's text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phases {
    whole: Span,
    now: Span,
    phase: Phase,
}

impl Phases {
    /// A stream that shows what is stored, first of all.
    pub(super) fn of(whole: Span) -> Self {
        Self {
            whole,
            now: whole.part(),
            phase: Phase::Replay,
        }
    }

    /// A source is joined, for the first time or again.
    pub(super) fn live(&mut self) {
        if self.phase == Phase::Replay {
            self.now.end("attach.replay", &[]);
            (self.now, self.phase) = (self.whole.part(), Phase::Live);
        }
    }

    /// The stream is over.
    pub(super) fn end(self, session: &SessionId, word: &'static str, parts: u64) {
        let name = match self.phase {
            Phase::Replay => "attach.replay",
            Phase::Live => "attach.live",
        };
        self.now.end(name, &[]);
        let attributes: [Attribute<'_>; 3] = [
            ("bex.session", session),
            ("bex.result", &word),
            ("bex.parts", &parts),
        ];
        self.whole.end("attach", &attributes);
    }
}
