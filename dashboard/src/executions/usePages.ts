import { useEffect, useRef } from 'react';
import type { Client } from '../api/client';
import { Paged, type Take, usePaged } from '../api/paged';
import type { Page } from '../api/types';
import { useClient } from '../app/signed';

/** Pages of a list, read as they are wanted, and anew as `version` changes. */
export function usePages<T>(path: string, query: Record<string, string>, limit = 50, version = '') {
  const client = useClient();
  const asked = JSON.stringify(query);
  const [paged, shown] = usePaged(() => new Paged<T>(() => pagesOf(client, path, JSON.parse(asked) as Record<string, string>, limit)), [client, path, asked, limit]);
  const seen = useRef(version);
  useEffect(() => {
    if (seen.current === version) return;
    seen.current = version;
    paged.again();
  }, [paged, version]);
  return { ...shown, more: paged.more, retry: paged.retry };
}

function pagesOf<T>(client: Client, path: string, query: Record<string, string>, limit: number): Take<T> {
  let cursor: string | undefined;
  return async signal => {
    const page = await client.get<Page<T>>(path, { workspaceId: client.workspace, ...query, limit, cursor }, signal);
    cursor = page.nextCursor ?? undefined;
    return { items: page.items, isDone: cursor === undefined };
  };
}
