import { memo, useEffect, useState } from 'react';
import { useClient } from '../app/signed';
import { count, when } from '../app/format';
import { Link } from '../app/Link';
import { Badge } from './Badge';
import type { Item } from './item';
import { SessionMenu } from './SessionMenu';

interface Told {
  verdict: string;
  reason: string | undefined;
  /** What was asked first, for a session without a title. */
  asked: string | undefined;
}

export const SessionRow = memo(function SessionRow({ item, onChanged }: { item: Item; onChanged: () => void }) {
  const told = useTold(item);
  const isOpen = told === undefined || told.verdict === 'open';
  const asked = told?.asked?.split('\n', 1)[0]?.slice(0, 120);
  const title = item.isNamed || !asked ? item.title : asked;
  return (
    <li className="session" data-id={item.id} data-phase={item.phase}>
      <div className="session-main">
        <Link to={`sessions/${item.id}`} className="session-title">
          {title}
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
        {!isOpen && <Badge word={told.verdict} title={told.reason} />}
        <span className="dim">
          {count(item.turns, 'turn')} · <time dateTime={item.createdAt}>{when(item.createdAt)}</time>
        </span>
      </div>
      <SessionMenu item={item} title={title} onChanged={onChanged} />
    </li>
  );
});

/** The newest turn's verdict, asked for when the row is first shown and whenever the session goes on. */
function useTold({ id, sort, phase, turns, isNamed }: Item): Told | undefined {
  const client = useClient();
  const [told, setTold] = useState<Told>();
  useEffect(() => {
    if (sort === 'remote' || turns === 0) return;
    let isGone = false;
    const look = async () => {
      const [last] = await client.turns(id, turns, 1);
      const first = isNamed || turns === 1 ? last : (await client.turns(id, 1, 1))[0];
      if (last && !isGone) setTold({ verdict: last.verdict, reason: last.reasonMessage, asked: first?.prompt });
    };
    look().catch(() => {});
    return () => {
      isGone = true;
    };
  }, [client, id, sort, phase, turns, isNamed]);
  return told;
}
