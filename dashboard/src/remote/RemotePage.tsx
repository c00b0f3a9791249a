import { useEffect, useRef, useState } from 'react';
import { Once } from '../api/once';
import { sentence } from '../api/problem';
import { Failed } from '../app/Failed';
import { Confirm } from '../app/Dialog';
import { Link } from '../app/Link';
import { useClient } from '../app/signed';
import { useAct } from '../app/useAct';
import { count } from '../app/format';
import { Json } from '../content/Json';
import { Composer } from '../conversation/Composer';
import { ConversationView } from '../conversation/ConversationView';
import { PackageButton } from '../conversation/PackageButton';
import { textOf } from '../conversation/row';
import { Badge } from '../list/Badge';
import { isLive } from '../list/item';
import type { PermissionAsked } from './live';
import { useRemote } from './useRemote';

/** A session on somebody's machine: what was said, live, and the means to talk to it. */
export function RemotePage({ id }: { id: string }) {
  const client = useClient();
  const { session, rows, asked, answered, link, missing, failed, isLoading, look } = useRemote(id);
  const act = useAct(look);
  const once = useRef(new Once()).current;
  const [isStopping, setStopping] = useState(false);
  const title = session?.title ?? id;
  useEffect(() => {
    document.title = title;
  }, [title]);
  if (missing?.status === 404) {
    return (
      <main className="page" id="content" tabIndex={-1}>
        <h1>No such session</h1>
        <p>It does not exist, or not for you.</p>
        <Link to="">All sessions</Link>
      </main>
    );
  }
  const verb = (name: string, said: string) => () => void act(() => client.verb(id, name), said);
  const live = session !== undefined && isLive(session.state);
  const chat = async (content: string) => {
    try {
      await client.post(`/v1/remote-sessions/${id}/chat`, { content }, once.keyOf(content));
      once.answered();
      look();
      return undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  };
  return (
    <main className="session-page" id="content" tabIndex={-1}>
      {session && (
        <header className="session-top">
          <div className="session-name">
            <Link to="" className="back" aria-label="Back to all sessions">
              ←
            </Link>
            <h1>{title}</h1>
            <Badge word={session.state} />
            {link === 'lost' && (
              <span className="badge warn" role="status">
                reconnecting…
              </span>
            )}
          </div>
          <p className="dim session-about">
            {['On a machine', session.cliTool, session.model, session.projectPath, tokens(session.counters.inputTokens + session.counters.outputTokens)].filter(Boolean).join(' · ')}
          </p>
          {session.error && <p className="banner bad">{session.error}</p>}
          <div className="actions">
            {live && (
              <>
                <button type="button" onClick={verb('abort', 'The turn is asked to end.')}>
                  End turn
                </button>
                {session.state === 'paused' ? (
                  <button type="button" onClick={verb('resume', 'The session goes on.')}>
                    Resume
                  </button>
                ) : (
                  <button type="button" onClick={verb('pause', 'The session is asked to pause.')}>
                    Pause
                  </button>
                )}
                <button type="button" onClick={() => setStopping(true)}>
                  Stop session
                </button>
              </>
            )}
            <button type="button" onClick={() => void act(() => navigator.clipboard.writeText(rows.map(textOf).join('\n\n')), 'The conversation is copied.')}>
              Copy all
            </button>
            <PackageButton kind="conversation" id={id} />
            <button type="button" onClick={verb(session.archivedAt ? 'unarchive' : 'archive', session.archivedAt ? 'Brought back.' : 'Archived.')}>
              {session.archivedAt ? 'Bring back' : 'Archive'}
            </button>
          </div>
        </header>
      )}
      {missing && !session && (
        <p className="banner bad" role="alert">
          {sentence(missing)}
        </p>
      )}
      {session && <Failed error={failed} onRetry={look} />}
      <ConversationView
        rows={rows}
        turns={NO_TURNS}
        isLive={live}
        isLoading={isLoading}
        isOver={!isLoading}
        banner={asked.map(request => (
          <Permission key={request.requestId} id={id} request={request} onAnswered={answered} />
        ))}
        footer={session && <Composer session={id} refusal={refusalOf(session.state)} isSpeaking={false} onSend={chat} onStop={undefined} />}
      />
      {isStopping && (
        <Confirm
          title="Stop this session?"
          text="The program on the machine is ended. What it said is kept."
          verb="Stop session"
          onConfirm={verb('stop', 'The session is asked to stop.')}
          onClose={() => setStopping(false)}
        />
      )}
    </main>
  );
}

const NO_TURNS: readonly [] = [];

const tokens = (n: number): string => (n > 0 ? count(n, 'token') : '');

function refusalOf(state: string): string | undefined {
  if (state === 'paused') return 'This session is paused: resume it to say more.';
  return isLive(state) ? undefined : 'This session has ended.';
}

/** A program that waits for a person's word. */
function Permission({ id, request, onAnswered }: { id: string; request: PermissionAsked; onAnswered: (requestId: string) => void }) {
  const client = useClient();
  const [isAnswered, setAnswered] = useState(false);
  const act = useAct(() => {
    setAnswered(true);
    onAnswered(request.requestId);
  });
  const once = useRef(new Once()).current;
  const answer = (allow: boolean) => {
    const word = { requestId: request.requestId, allow };
    void act(() => client.post(`/v1/remote-sessions/${id}/permission`, word, once.keyOf(word)), 'The machine is told.');
  };
  if (isAnswered) return null;
  return (
    <section className="banner warn" aria-label="Permission request">
      <p>
        The agent asks for permission: <strong>{request.tool}</strong>
      </p>
      {request.input !== undefined && <Json label="Input" value={request.input} />}
      <div className="row">
        <button type="button" onClick={() => answer(true)}>
          Allow
        </button>
        <button type="button" onClick={() => answer(false)}>
          Do not allow
        </button>
      </div>
    </section>
  );
}

