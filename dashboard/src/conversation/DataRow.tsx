import type { ReactNode } from 'react';
import { Diff } from '../content/Diff';
import { Json } from '../content/Json';
import { Plan } from '../content/Plan';
import type { Opened } from './opened';
import { useOpened } from './opened';
import type { RowOf } from './row';

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Parts that the plane, the driver, or an agent added to what the SDK knows. */
export function DataRow({ row, opened }: { row: RowOf<'data'>; opened: Opened }) {
  const { data } = row;
  switch (row.type) {
    case 'acp-plan':
      return <Plan entries={data.entries} />;
    case 'acp-diff':
      return <Diff path={text(data.path)} before={text(data.oldText)} after={text(data.newText)} />;
    case 'acp-terminal':
      return <Note>Terminal {text(data.terminalId)}</Note>;
    case 'acp-permission':
      return <Permission data={data} />;
    case 'bex-incomplete':
      return <Incomplete data={data} />;
    case 'bex-continuity':
      return <Note>{continuity(data)}</Note>;
    case 'bex-turn-error':
      return <Banner tone="bad">The agent ended with an error: {text(data.errorText) || 'it did not say which'}</Banner>;
    case 'bex-unstorable':
    case 'truncated':
      return <Banner tone="warn">One part could not be kept ({text(data.reason) || 'too large'}{typeof data.bytes === 'number' && `, ${data.bytes} bytes`}).</Banner>;
    default:
      return <Other row={row} opened={opened} />;
  }
}

function Permission({ data }: { data: Record<string, unknown> }) {
  const options = Array.isArray(data.options) ? (data.options as ({ optionId?: unknown; name?: unknown; kind?: unknown } | null)[]) : [];
  const chosen = options.find(option => option?.optionId === data.selected);
  const isAllowed = text(chosen?.kind).startsWith('allow');
  return (
    <Note>
      Permission was asked for and {isAllowed ? 'given' : 'not given'}
      {text(chosen?.name) && `: ${text(chosen?.name)}`}.
    </Note>
  );
}

/** Where history is incomplete, and what is missing. */
function Incomplete({ data }: { data: Record<string, unknown> }) {
  const reason = WHY[text(data.reason)] ?? text(data.reason);
  const range = data.from !== undefined ? (data.to === undefined ? `everything from part ${Number(data.from)}` : `parts ${Number(data.from)} to ${Number(data.to)}`) : undefined;
  const stored = Number(data.stored ?? Number.NaN);
  const expected = Number(data.expected ?? Number.NaN);
  const missing = Number.isNaN(expected - stored) ? undefined : expected - stored;
  const what = range ?? (missing === undefined ? 'the rest of this turn' : missing > 0 ? `${missing} of ${expected} parts` : 'nothing that is known');
  return (
    <Banner tone="warn">
      <strong>This history is incomplete.</strong> Missing: {what}. {reason && `Why: ${reason}.`}
    </Banner>
  );
}

const WHY: Record<string, string> = {
  sandbox_lost: 'the sandbox was lost before its log could be read',
  log_unreadable: 'the sandbox’s log could not be read',
  log_truncated: 'the turn said more than its log holds',
  digest_mismatch: 'what is stored is not what the sandbox says it said',
  session_quota: 'the session holds no more',
  part_unstorable: 'some of it cannot be stored',
  store_failed: 'the store failed',
  provisioning_failed: 'there was no sandbox',
  turn_deadline: 'the turn was silent for too long',
  legacy_unproved: 'an older sandbox does not prove what it said',
  legal_delete: 'it was deleted',
};

function continuity(data: Record<string, unknown>): string {
  const omitted = Number(data.omittedTurns ?? 0);
  const left = omitted > 0 ? `, without the ${omitted} oldest` : '';
  if (data.mode === 'loaded') return 'The agent went on with its own memory of the conversation.';
  if (data.mode === 'task') return 'A fresh agent was told the original task.';
  return `A fresh agent was told the conversation so far${left}.`;
}

function Other({ row, opened }: { row: RowOf<'data'>; opened: Opened }) {
  const [isOpen, turn] = useOpened(opened, row.key);
  return (
    <section className="other">
      <button type="button" className="quiet" aria-expanded={isOpen} onClick={turn}>
        {row.type}
      </button>
      {isOpen && <Json label="Data" value={row.data} />}
    </section>
  );
}

export function Banner({ tone, children }: { tone: 'warn' | 'bad'; children: ReactNode }) {
  return <div className={`banner ${tone}`}>{children}</div>;
}

export function Note({ children }: { children: ReactNode }) {
  return <p className="note">{children}</p>;
}
