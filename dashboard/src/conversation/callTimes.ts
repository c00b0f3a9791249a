import { createContext, useContext, useEffect, useState } from 'react';
import type { Client } from '../api/client';
import type { AgentSession } from '../api/types';
import type { Tool } from './row';
import { placeOf } from './row';

/** Parts that are asked for at once. */
const WINDOW = 60;
/** What was said this moment is on its way to the store. */
const AGAIN_MS = 1500;
const TRIES = 3;

/** When a part was spoken, by the driver's clock where that is known, else when it was stored, which is a little later. */
interface Heard {
  at: number;
  isExact: boolean;
}

/** When parts were spoken. The stream does not say it of a call's end; the feed does, as far as it knows. */
export class CallTimes {
  readonly #times = new Map<string, Heard>();
  readonly #asked = new Map<number, Promise<void>>();

  constructor(
    readonly client: Client,
    readonly session: string,
    /** As it stands, for how much was stored before a turn. */
    readonly now: () => AgentSession | undefined,
  ) {}

  known(place: string): Heard | undefined {
    return this.#times.get(place);
  }

  /** Looks a part up where it ought to be; one that was recovered late stands elsewhere and stays unknown. */
  async look(place: string): Promise<Heard | undefined> {
    const known = this.#times.get(place);
    if (known !== undefined) return known;
    const [turn, index] = placeOf(place) ?? [];
    if (turn === undefined || index === undefined) return undefined;
    const { turns = [], counters } = this.now() ?? {};
    if (!counters || turn < (turns[0]?.turn ?? 0)) return undefined;
    const before = turns.reduce((left, told) => (told.turn >= turn ? left - told.storedParts : left), counters.parts);
    const page = Math.floor((before + index) / WINDOW);
    const asked = this.#asked.get(page) ?? this.#ask(page);
    this.#asked.set(page, asked);
    await asked.catch(error => {
      this.#asked.delete(page);
      throw error;
    });
    const found = this.#times.get(place);
    // it may be on its way to the store
    if (found === undefined) this.#asked.delete(page);
    return found;
  }

  async #ask(page: number): Promise<void> {
    const { parts } = await this.client.feed(this.session, page * WINDOW - 1, WINDOW);
    for (const { turn, index, spokenAt, createdAt } of parts) {
      const at = Date.parse(spokenAt ?? createdAt);
      if (!Number.isNaN(at)) this.#times.set(`${turn}.${index}`, { at, isExact: spokenAt !== undefined });
    }
  }
}

export const Times = createContext<CallTimes | undefined>(undefined);

/** How long a call took, in ms, once both its ends are known; `isExact` as far as anybody looked at a clock. */
export function useCallTime({ state, startedAt, endedBy, endPlace }: Tool): { ms: number; isExact: boolean } | undefined {
  const times = useContext(Times);
  const [end, setEnd] = useState(() => (endPlace ? times?.known(endPlace) : undefined));
  const isOver = state === 'done' || state === 'failed';
  useEffect(() => {
    if (!isOver || !endPlace || startedAt === undefined || !times) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isGone = false;
    const look = async (left: number) => {
      const heard = await times.look(endPlace).catch(() => undefined);
      if (isGone) return;
      if (heard) setEnd(heard);
      else if (left > 0) timer = setTimeout(() => void look(left - 1), AGAIN_MS);
    };
    void look(TRIES);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [times, isOver, startedAt, endPlace]);
  if (!isOver || startedAt === undefined) return undefined;
  if (end?.isExact) return { ms: Math.max(0, end.at - startedAt), isExact: true };
  const bound = Math.min(end?.at ?? Number.POSITIVE_INFINITY, endedBy ?? Number.POSITIVE_INFINITY);
  return Number.isFinite(bound) ? { ms: Math.max(0, bound - startedAt), isExact: false } : undefined;
}
