import { useState } from 'react';
import { Confirm } from '../app/Dialog';
import { useAct } from '../app/useAct';
import { useClient } from '../app/signed';
import type { Item } from './item';

/** What can be done with a session from the list. */
export function SessionMenu({ item, title, onChanged }: { item: Item; title: string; onChanged: () => void }) {
  const client = useClient();
  const act = useAct(onChanged);
  const [isAsking, setAsking] = useState(false);
  const verb = item.isArchived ? 'unarchive' : 'archive';
  return (
    <div className="session-menu">
      <button
        type="button"
        className="quiet"
        aria-label={`${item.isArchived ? 'Bring back' : 'Archive'} ${title}`}
        onClick={() => act(() => client.verb(item.id, verb), item.isArchived ? 'Brought back.' : 'Archived.')}
      >
        {item.isArchived ? 'Bring back' : 'Archive'}
      </button>
      <button type="button" className="quiet" aria-label={`Delete ${title}`} disabled={item.isLive} onClick={() => setAsking(true)}>
        Delete
      </button>
      {isAsking && (
        <Confirm
          title="Delete this session?"
          text={`“${title}” and everything that was said in it will be gone for good.`}
          verb="Delete"
          onConfirm={() => act(() => client.remove(item.id), 'Deleted.')}
          onClose={() => setAsking(false)}
        />
      )}
    </div>
  );
}
