import { useEffect, useState } from 'react';
import type { AgentSession } from '../api/types';
import { Confirm } from '../app/Dialog';
import { Link } from '../app/Link';
import { go } from '../app/router';
import { useClient } from '../app/signed';
import { useAct } from '../app/useAct';
import { Badge } from '../list/Badge';
import { isLive } from '../list/item';
import { PackageButton, save } from './PackageButton';
import type { Link as StreamLink } from './transport';

interface Props {
  session: AgentSession;
  title: string;
  link: StreamLink;
  text: () => string;
  onChanged: () => void;
}

/** What the session is, how it stands, and what can be done with it as a whole. */
export function SessionHeader({ session, title, link, text, onChanged }: Props) {
  const client = useClient();
  const act = useAct(onChanged);
  const [asking, setAsking] = useState<'cancel' | 'delete'>();
  const { id, phase, agent, repo, branch } = session;
  useEffect(() => {
    document.title = title;
  }, [title]);
  const exported = async () => {
    const response = await client.export(id, 'markdown');
    const url = URL.createObjectURL(await response.blob());
    save(url, `${id}.md`);
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  };
  return (
    <header className="session-top">
      <div className="session-name">
        <Link to="" className="back" aria-label="Back to all sessions">
          ←
        </Link>
        <h1>{title}</h1>
        <Badge word={phase} title={session.failureMessage} />
        {link === 'lost' && (
          <span className="badge warn" role="status">
            reconnecting…
          </span>
        )}
      </div>
      <p className="dim session-about">
        {[agent.profile, agent.model, repo && (branch ? `${repo} @ ${branch}` : repo), session.kind === 'autonomous' ? `workflow ${session.workflowId}` : undefined]
          .filter(Boolean)
          .join(' · ')}
      </p>
      {session.failureMessage && <p className="banner bad">{session.failureMessage}</p>}
      <div className="actions">
        {isLive(phase) && phase !== 'canceling' && (
          <button type="button" onClick={() => setAsking('cancel')}>
            Cancel session
          </button>
        )}
        <button type="button" onClick={() => act(exported, 'Exported.')}>
          Export
        </button>
        <button type="button" onClick={() => act(() => navigator.clipboard.writeText(text()), 'The conversation is copied.')}>
          Copy all
        </button>
        <PackageButton kind="conversation" id={id} />
        <button type="button" onClick={() => act(() => client.verb(id, session.archivedAt ? 'unarchive' : 'archive'), session.archivedAt ? 'Brought back.' : 'Archived.')}>
          {session.archivedAt ? 'Bring back' : 'Archive'}
        </button>
        <button type="button" disabled={isLive(phase)} onClick={() => setAsking('delete')}>
          Delete
        </button>
      </div>
      {asking === 'cancel' && (
        <Confirm
          title="Cancel this session?"
          text="The agent is stopped and its sandbox removed. What was said is kept."
          verb="Cancel session"
          onConfirm={() => act(() => client.verb(id, 'cancel'), 'The session is being canceled.')}
          onClose={() => setAsking(undefined)}
        />
      )}
      {asking === 'delete' && (
        <Confirm
          title="Delete this session?"
          text={`“${title}” and everything that was said in it will be gone for good.`}
          verb="Delete"
          onConfirm={() =>
            act(async () => {
              await client.remove(id);
              go('');
            }, 'Deleted.')
          }
          onClose={() => setAsking(undefined)}
        />
      )}
    </header>
  );
}
