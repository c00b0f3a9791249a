//! What each kind of chunk means to what is being folded.

use crate::ui_stream::head::ChunkKind;

/// What ids name: each sort has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Text,
    Reasoning,
    Input,
    Call,
}

/// What a chunk does to the run or call that it names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Start(Family),
    Delta(Family),
    End(Family),
    Call,
    Answer,
}

pub(super) fn role(kind: &ChunkKind) -> Option<Role> {
    Some(match kind {
        ChunkKind::TextStart => Role::Start(Family::Text),
        ChunkKind::TextDelta => Role::Delta(Family::Text),
        ChunkKind::TextEnd => Role::End(Family::Text),
        ChunkKind::ReasoningStart => Role::Start(Family::Reasoning),
        ChunkKind::ReasoningDelta => Role::Delta(Family::Reasoning),
        ChunkKind::ReasoningEnd => Role::End(Family::Reasoning),
        ChunkKind::ToolInputStart => Role::Start(Family::Input),
        ChunkKind::ToolInputDelta => Role::Delta(Family::Input),
        ChunkKind::ToolInputAvailable => Role::Call,
        ChunkKind::ToolInputError
        | ChunkKind::ToolOutputAvailable
        | ChunkKind::ToolOutputError
        | ChunkKind::ToolOutputDenied => Role::Answer,
        _ => return None,
    })
}

pub(super) fn ends_a_step(kind: &ChunkKind) -> bool {
    matches!(
        kind,
        ChunkKind::StartStep
            | ChunkKind::FinishStep
            | ChunkKind::Finish
            | ChunkKind::Abort
            | ChunkKind::Error
    )
}
