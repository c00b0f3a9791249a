import { useState } from 'react';
import { Confirm } from '../app/Dialog';
import { useTell } from '../app/notices';
import { useClient } from '../app/signed';
import type { Item } from './item';

/** What can be done with a session from the list. */
export function SessionMenu({ item, title, onChanged }: { item: Item; title: string; onChanged: () => void }) {
  const client = useClient();
  const tell = useTell();
  const [isAsking, setAsking] = useState(false);
  const act = async (deed: () => Promise<unknown>, said: string) => {
    try {
      await deed();
      tell.say(said);
      onChanged();
    } catch (error) {
      tell.fail(error);
    }
  };
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
