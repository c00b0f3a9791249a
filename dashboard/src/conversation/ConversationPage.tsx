import { useEffect, useMemo, useRef } from 'react';
import { sentence } from '../api/problem';
import { Link } from '../app/Link';
import { useClient } from '../app/signed';
import { useAct } from '../app/useAct';
import { isLive } from '../list/item';
import { CallTimes, Times } from './callTimes';
import { Composer } from './Composer';
import { ConversationView } from './ConversationView';
import { Banner } from './DataRow';
import type { Row } from './row';
import { textOf } from './row';
import { SessionHeader } from './SessionHeader';
import { pauseOf } from './pause';
import { useConversation } from './useConversation';
import { useTurns } from './useTurns';

/** One agent session: what was said, live, and the means to steer it. */
export function ConversationPage({ id }: { id: string }) {
  const client = useClient();
  const { session, turns, error: missing, look } = useTurns(id);
  const act = useAct(look);
  const conversation = useConversation(client, id, look);
  const { rows, link, isSpeaking } = conversation;
  const latest = useRef(session);
  latest.current = session;
  const times = useMemo(() => new CallTimes(client, id, () => latest.current), [client, id]);

  // somebody else asked for a turn: the stream that ended is gone on with
  const seen = useMemo(() => rows.reduce((last, row) => (row.kind === 'turn' ? Math.max(last, row.turn) : last), 0), [rows]);
  const begun = session?.counters.turns ?? 0;
  const { readOn } = conversation;
  const tried = useRef({ begun: 0, times: 0 });
  useEffect(() => {
    if (link !== 'idle' || begun <= seen || conversation.error) return;
    if (tried.current.begun !== begun) tried.current = { begun, times: 0 };
    // a stream that ends at once is not asked for at once
    const timer = setTimeout(readOn, pauseOf(tried.current.times++));
    return () => clearTimeout(timer);
  }, [link, begun, seen, readOn, conversation.error]);

  // parts were recovered while nobody read: what says that they are missing is read anew, once
  const healed = useRef(0);
  const { readAgain } = conversation;
  useEffect(() => {
    if (link !== 'idle') return;
    const whole = new Set(turns.filter(turn => turn.verdict === 'complete').map(turn => turn.turn));
    const stale = rows.findLast(row => row.kind === 'data' && row.type === 'bex-incomplete' && whole.has(row.turn));
    if (!stale || healed.current === stale.turn) return;
    healed.current = stale.turn;
    readAgain();
  }, [link, rows, turns, readAgain]);

  if (missing?.status === 404 || missing?.status === 403) {
    return (
      <main className="page" id="content" tabIndex={-1}>
        <h1>No such session</h1>
        <p>It does not exist, or not for you.</p>
        <Link to="">All sessions</Link>
      </main>
    );
  }
  const open = turns.at(-1)?.verdict === 'open' ? turns.at(-1) : undefined;
  const stop = () => {
    const turn = open?.turn ?? seen;
    void act(() => client.stopTurn(id, turn), `Turn ${turn} is asked to stop.`);
  };
  const isBusy = isSpeaking || link !== 'idle' || conversation.error !== undefined;
  return (
    <main className="session-page" id="content" tabIndex={-1}>
      {session && <SessionHeader session={session} title={session.title ?? firstPrompt(rows) ?? id} link={link} text={() => rows.map(textOf).join('\n\n')} onChanged={look} />}
      <Times value={times}>
        <ConversationView
          rows={rows}
          turns={turns}
          isLive={session !== undefined && isLive(session.phase)}
          isLoading={link === 'opening' || (isSpeaking && !session)}
          isOver={link === 'idle'}
          banner={
            (missing && !session && <Banner tone="bad">{sentence(missing)}</Banner>) ||
            (conversation.error && (
              <Banner tone="bad">
                <span role="alert">{conversation.error.message}</span>{' '}
                <button type="button" onClick={conversation.readAgain}>
                  Read again
                </button>
              </Banner>
            ))
          }
          footer={
            session && (
              <Composer
                session={id}
                refusal={refusalOf(session.kind, session.phase, session.archivedAt)}
                isSpeaking={isBusy}
                onSend={conversation.send}
                onStop={open ? stop : undefined}
              />
            )
          }
        />
      </Times>
    </main>
  );
}

/** What a session without a title is called. */
function firstPrompt(rows: readonly Row[]): string | undefined {
  const first = rows[0];
  return first?.kind === 'turn' ? first.prompt.text.split('\n', 1)[0]?.slice(0, 120) || undefined : undefined;
}

function refusalOf(kind: string, phase: string, archivedAt: string | undefined): string | undefined {
  if (kind === 'autonomous') return 'This session belongs to a workflow: it takes no turns from people.';
  if (archivedAt) return 'This session is archived. Bring it back to say more.';
  if (phase === 'canceling' || phase === 'canceled') return 'This session was canceled.';
  return undefined;
}
