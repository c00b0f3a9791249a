import { Paged, usePaged } from '../api/paged';
import { useClient } from '../app/signed';
import { usePoll } from '../app/usePoll';
import type { Filters } from './filters';
import { loads } from './filters';
import type { Item } from './item';
import { Merged, refreshed } from './merge';

const PAGE = 50;
const LIVE_MS = 3000;
const IDLE_MS = 15_000;

/** The list a person sees: pages as they scroll, and its newest page looked at again and again. */
export function useSessions(filters: Filters) {
  const client = useClient();
  const [paged, shown] = usePaged<Item>(() => {
    const begin = () => {
      let merged: Merged | undefined;
      return async (signal: AbortSignal) => {
        merged ??= new Merged(loads(client, filters, signal));
        return { items: await merged.take(PAGE), isDone: merged.isDone };
      };
    };
    return new Paged(begin, refreshed);
  }, [client, filters]);

  usePoll(
    async signal => {
      if (paged.shown.isLoading) return LIVE_MS;
      const before = paged.shown.items;
      const merged = new Merged(loads(client, filters, signal));
      const newest = await merged.take(PAGE).catch(() => undefined);
      // who reads anew, or has read on, knows better
      if (newest && !signal.aborted && paged.shown.items === before) paged.change(items => renewed(items, newest, merged.isDone));
      return paged.shown.items.some(item => item.isLive) ? LIVE_MS : IDLE_MS;
    },
    [paged],
  );

  return { ...shown, more: paged.more, retry: paged.retry, again: paged.again };
}

/** What left the filter's view since is gone from the newest page; behind it nothing is known of, unless it is the only one. */
export function renewed(items: readonly Item[], newest: readonly Item[], isWhole: boolean): Item[] {
  const oldest = newest.at(-1)?.createdAt;
  const seen = new Set(newest.map(item => item.id));
  const isBehind = (item: Item) => !isWhole && (oldest === undefined || item.createdAt <= oldest);
  return refreshed(
    items.filter(item => seen.has(item.id) || isBehind(item)),
    newest,
  );
}
