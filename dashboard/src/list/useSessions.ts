import { useCallback, useEffect, useRef, useState } from 'react';
import { useClient } from '../app/signed';
import { usePoll } from '../app/usePoll';
import type { Filters } from './filters';
import { loads } from './filters';
import type { Item } from './item';
import { Merged, refreshed } from './merge';

const PAGE = 50;
const LIVE_MS = 3000;
const IDLE_MS = 15_000;

export interface Sessions {
  items: Item[];
  isDone: boolean;
  isLoading: boolean;
  error: unknown;
  more: () => void;
  again: () => void;
}

/** The list a person sees: pages as they scroll, and its newest page looked at again and again. */
export function useSessions(filters: Filters): Sessions {
  const client = useClient();
  const [items, setItems] = useState<Item[]>([]);
  const [state, setState] = useState({ isDone: false, isLoading: true, error: undefined as unknown });
  const [round, setRound] = useState(0);
  const list = useRef<{ merged: Merged; signal: AbortSignal; busy: boolean } | null>(null);

  const more = useCallback(async () => {
    const now = list.current;
    if (!now || now.busy || now.merged.isDone) return;
    now.busy = true;
    setState(old => ({ ...old, isLoading: true, error: undefined }));
    try {
      const next = await now.merged.take(PAGE);
      if (now.signal.aborted) return;
      setItems(all => refreshed(all, next));
      setState({ isDone: now.merged.isDone, isLoading: false, error: undefined });
    } catch (error) {
      if (!now.signal.aborted) setState({ isDone: false, isLoading: false, error });
    } finally {
      now.busy = false;
    }
  }, []);

  useEffect(() => {
    const ends = new AbortController();
    list.current = { merged: new Merged(loads(client, filters, ends.signal)), signal: ends.signal, busy: false };
    setItems([]);
    void more();
    return () => ends.abort();
  }, [client, filters, round, more]);

  usePoll(async () => {
    const now = list.current;
    if (!now || now.busy) return LIVE_MS;
    const newest = await new Merged(loads(client, filters, now.signal)).take(PAGE).catch(() => undefined);
    // what left the filter's view since is gone from the newest page
    if (newest && list.current === now && !now.signal.aborted) {
      const oldest = newest.at(-1)?.createdAt ?? '';
      const seen = new Set(newest.map(item => item.id));
      const isWhole = newest.length < PAGE;
      setItems(all => refreshed(all.filter(item => seen.has(item.id) || (!isWhole && item.createdAt <= oldest)), newest));
    }
    return items.some(item => item.isLive) ? LIVE_MS : IDLE_MS;
  }, [client, filters, round]);

  return { items, ...state, more: () => void more(), again: () => setRound(n => n + 1) };
}
