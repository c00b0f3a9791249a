import { memo, useEffect, useState } from 'react';
import { useClient } from '../app/signed';
import { count, when } from '../app/format';
import { Link } from '../app/Link';
import { Badge } from './Badge';
import type { Item } from './item';
import { SessionMenu } from './SessionMenu';

interface Verdicts {
  of: string;
  verdict: string;
  reason?: string | undefined;
}

export const SessionRow = memo(function SessionRow({ item, onChanged }: { item: Item; onChanged: () => void }) {
  const verdict = useVerdict(item);
  const isPlain = verdict === undefined || verdict.verdict === 'open';
  return (
    <li className="session" data-id={item.id} data-phase={item.phase}>
      <div className="session-main">
        <Link to={`sessions/${item.id}`} className="session-title">
          {item.title}
        </Link>
        <p className="dim session-about">
          {item.sort === 'remote' ? 'On a machine' : 'In a sandbox'}
          {item.kind === 'autonomous' && ' · autonomous'}
          {item.about && ` · ${item.about}`}
        </p>
        {item.failure && <p className="session-failure">{item.failure}</p>}
      </div>
      <div className="session-side">
        <Badge word={item.phase} />
        {!isPlain && <Badge word={verdict.verdict} title={verdict.reason} />}
        <span className="dim">
          {count(item.turns, 'turn')} · <time dateTime={item.createdAt}>{when(item.createdAt)}</time>
        </span>
      </div>
      <SessionMenu item={item} onChanged={onChanged} />
    </li>
  );
});

/** The newest turn's verdict, asked for when the row is first shown and whenever its phase changes. */
function useVerdict(item: Item): Verdicts | undefined {
  const client = useClient();
  const [verdict, setVerdict] = useState<Verdicts>();
  const { id, sort, phase, turns } = item;
  useEffect(() => {
    if (sort === 'remote') return;
    let isGone = false;
    const look = async () => {
      const session = await client.session(id);
      const last = session.turns?.at(-1);
      if (last && !isGone) setVerdict({ of: id, verdict: last.verdict, reason: last.reasonMessage });
    };
    look().catch(() => {});
    return () => {
      isGone = true;
    };
  }, [client, id, sort, phase, turns]);
  return verdict;
}
