import { useCallback, useEffect, useRef, useState } from 'react';
import type { Page } from '../api/types';
import { useClient } from '../app/signed';

/** Pages of a list, read as they are wanted. */
export function usePages<T>(path: string, query: Record<string, string>, limit = 50) {
  const client = useClient();
  const [items, setItems] = useState<T[]>([]);
  const [state, setState] = useState({ isDone: false, isLoading: false, error: undefined as unknown });
  const at = useRef<{ cursor: string | undefined; isDone: boolean; isBusy: boolean; round: number }>({ cursor: undefined, isDone: false, isBusy: false, round: 0 });
  const asked = JSON.stringify([path, query]);

  const more = useCallback(async () => {
    const now = at.current;
    if (now.isBusy || now.isDone) return;
    now.isBusy = true;
    setState(old => ({ ...old, isLoading: true, error: undefined }));
    const { round } = now;
    try {
      const [where, words] = JSON.parse(asked) as [string, Record<string, string>];
      const page = await client.get<Page<T>>(where, { workspaceId: client.workspace, ...words, limit, cursor: now.cursor });
      if (round !== at.current.round) return;
      now.cursor = page.nextCursor;
      now.isDone = page.nextCursor === undefined;
      setItems(all => [...all, ...page.items]);
      setState({ isDone: now.isDone, isLoading: false, error: undefined });
    } catch (error) {
      if (round === at.current.round) setState({ isDone: false, isLoading: false, error });
    } finally {
      if (round === at.current.round) now.isBusy = false;
    }
  }, [client, asked, limit]);

  useEffect(() => {
    at.current = { cursor: undefined, isDone: false, isBusy: false, round: at.current.round + 1 };
    setItems([]);
    void more();
  }, [more]);

  return { items, ...state, more: () => void more() };
}
