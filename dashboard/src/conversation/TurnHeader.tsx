import type { Turn } from '../api/types';
import { duration, when } from '../app/format';
import { Badge } from '../list/Badge';
import type { RowOf } from './row';

const ENDED: Record<string, string> = {
  stopped: 'stopped by a person',
  canceled: 'canceled',
  deadline: 'ended by its deadline',
  lost: 'the sandbox was lost',
};

/** Where a turn begins: when, how it ended, and what was asked. */
export function TurnHeader({ row, turn }: { row: RowOf<'turn'>; turn: Turn | undefined }) {
  const verdict = turn?.verdict ?? told(row);
  const reason = turn?.reasonMessage ?? (turn ? undefined : row.prompt.reason);
  const ended = turn?.endedBy && ENDED[turn.endedBy];
  const took = turn?.settledAt && turn.startedAt ? Date.parse(turn.lastPartAt ?? turn.settledAt) - Date.parse(turn.startedAt) : undefined;
  return (
    <>
      <header className="turn-top">
        <h2>Turn {row.turn}</h2>
        {turn && <time dateTime={turn.createdAt}>{when(turn.createdAt)}</time>}
        {took !== undefined && <span className="dim">{duration(took)}</span>}
        <Badge word={verdict} title={reason ?? undefined} />
        {ended && <span className="dim">{ended}</span>}
      </header>
      {reason && verdict === 'truncated' && <p className="turn-reason">Not whole: {reason}</p>}
      <Prompt text={row.prompt.text} />
    </>
  );
}

/** What a person asked, word for word. */
export function Prompt({ text, isSending = false }: { text: string; isSending?: boolean }) {
  return (
    <div className={isSending ? 'prompt sending' : 'prompt'} data-prompt="">
      <span className="sr">{isSending ? 'You ask, not yet confirmed: ' : 'Asked: '}</span>
      {text}
    </div>
  );
}

function told({ prompt }: RowOf<'turn'>): string {
  if (prompt.complete) return 'complete';
  return prompt.truncated ? 'truncated' : 'open';
}
