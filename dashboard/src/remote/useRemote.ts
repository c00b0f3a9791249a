import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Problem } from '../api/problem';
import { Problem as Refusal } from '../api/problem';
import type { Message, RemoteSession } from '../api/types';
import { useClient } from '../app/signed';
import { usePoll } from '../app/usePoll';
import type { Row } from '../conversation/row';
import type { Link } from '../conversation/transport';
import { isLive } from '../list/item';
import type { PermissionAsked } from './live';
import { Live } from './live';
import { MessageRows } from './rows';
import { follow } from './stream';

/** Events before the newest that are looked through for a turn that is not over. */
const BACK = 1000;
const PAGE = 200;
const LIVE_MS = 3000;
const IDLE_MS = 15_000;
const DRAW_MS = 100;

export interface Remote {
  session: RemoteSession | undefined;
  rows: readonly Row[];
  asked: readonly PermissionAsked[];
  link: Link;
  missing: Problem | undefined;
  /** Why messages are missing. */
  failed: unknown;
  /** A permission was given or not. */
  answered: (requestId: string) => void;
  isLoading: boolean;
  look: () => void;
}

export function useRemote(id: string): Remote {
  const client = useClient();
  const [session, setSession] = useState<RemoteSession>();
  const [missing, setMissing] = useState<Problem>();
  const [failed, setFailed] = useState<unknown>();
  const [messages, setMessages] = useState<readonly Message[]>([]);
  const [isLoading, setLoading] = useState(true);
  const [link, setLink] = useState<Link>('opening');
  const [drawn, setDrawn] = useState(0);
  const [round, setRound] = useState(0);
  const live = useRef(new Live()).current;
  /** The live turn up to which there are messages. */
  const durable = useRef<number | undefined>(undefined);
  const next = useRef<number | undefined>(undefined);
  const reading = useRef<Promise<void> | undefined>(undefined);
  const waiting = useRef<Promise<void> | undefined>(undefined);
  const isGone = useRef(false);
  useEffect(() => {
    isGone.current = false;
    return () => {
      isGone.current = true;
    };
  }, []);

  /** Messages behind those that are there; one reader at a time, and once more for who came meanwhile. */
  const read = useCallback(() => {
    // who waits reads what anybody came for
    if (waiting.current) return waiting.current;
    const before = reading.current;
    const run = async () => {
      await before;
      waiting.current = undefined;
      const settled = durable.current;
      // what was live gives way in the moment in which its messages come
      const giveWay = () => {
        if (settled === undefined) return;
        live.forget(settled);
        setDrawn(n => n + 1);
      };
      for (let more = true; more && !isGone.current; ) {
        const page = await client.messages(id, next.current, PAGE);
        const last = page.messages.at(-1);
        if (last) {
          next.current = last.position;
          giveWay();
          setMessages(all => [...all, ...page.messages]);
        }
        more = page.nextAfter !== undefined;
      }
      giveWay();
      setLoading(false);
    };
    const now = run();
    waiting.current = now;
    reading.current = now.then(
      () => setFailed(undefined),
      error => setFailed(error),
    );
    return now;
  }, [client, id, live]);

  const counted = useRef(-1);
  usePoll(async signal => {
    try {
      const told = await client.remote(id);
      if (signal.aborted) return undefined;
      setMissing(undefined);
      setSession(told);
      if (told.counters.messages !== counted.current) {
        const isRead = await read().then(
          () => true,
          () => false,
        );
        if (isRead) counted.current = told.counters.messages;
      }
      return isLive(told.state) ? LIVE_MS : IDLE_MS;
    } catch (error) {
      if (!(error instanceof Refusal)) return LIVE_MS;
      if (!signal.aborted) setMissing(error);
      return error.status < 500 && error.status !== 429 ? undefined : IDLE_MS;
    }
  }, [client, id, round, read]);

  const isKnown = session !== undefined;
  const from = useRef<number | undefined>(undefined);
  if (session && from.current === undefined) from.current = Math.max(session.counters.firstEventIndex, session.counters.nextEventIndex - BACK) - 1;
  useEffect(() => {
    if (!isKnown) return;
    const ends = new AbortController();
    let drawing: ReturnType<typeof setTimeout> | undefined;
    let looking: ReturnType<typeof setTimeout> | undefined;
    // a replay has hundreds
    const lookSoon = () => {
      looking ??= setTimeout(() => {
        looking = undefined;
        setRound(n => n + 1);
      }, DRAW_MS);
    };
    const draw = () => {
      drawing ??= setTimeout(() => {
        drawing = undefined;
        setDrawn(n => n + 1);
      }, DRAW_MS);
    };
    const start = from.current === undefined || from.current < 0 ? undefined : from.current;
    const tell = ({ type, data }: { type: string; data: unknown }) => {
      if (type === 'stdout' || type === 'stderr') live.output(String(data));
      else if (type === 'permission_request') live.ask(data);
      else if (type === 'turn-durable') {
        durable.current = live.settle();
        void read().catch(() => {});
      } else if (type === 'state') lookSoon();
      draw();
    };
    void follow(client, id, start, tell, setLink, ends.signal);
    return () => {
      ends.abort();
      clearTimeout(drawing);
      clearTimeout(looking);
    };
  }, [client, id, isKnown, live, read]);

  const told = useMemo(() => {
    const made = new MessageRows();
    for (const message of messages) made.add(message);
    return made.rows;
  }, [messages]);
  const isOver = session !== undefined && !isLive(session.state);
  const rows = useMemo(() => (isOver ? told : [...told, ...live.rows()]), [told, live, drawn, isOver]);
  const asked = useMemo(() => (isOver ? [] : [...live.asked.values()]), [live, drawn, isOver]);
  const answered = useCallback(
    (requestId: string) => {
      live.asked.delete(requestId);
      setDrawn(n => n + 1);
    },
    [live],
  );
  return { session, rows, asked, answered, link, missing, failed, isLoading, look: useCallback(() => setRound(n => n + 1), []) };
}
