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

/** When parts were spoken, by the driver's clock. The stream does not say it of a call's end; the feed does. */
export class CallTimes {
  readonly #times = new Map<string, number>();
  readonly #asked = new Map<number, Promise<void>>();

  constructor(
    readonly client: Client,
    readonly session: string,
    /** As it stands, for how much was stored before a turn. */
    readonly now: () => AgentSession | undefined,
  ) {}

  known(place: string): number | undefined {
    return this.#times.get(place);
  }

  /** Looks a part up where it ought to be; one that was recovered late stands elsewhere and stays unknown. */
  async look(place: string): Promise<number | undefined> {
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
    await asked;
    const found = this.#times.get(place);
    // it may be on its way to the store
    if (found === undefined) this.#asked.delete(page);
    return found;
  }

  async #ask(page: number): Promise<void> {
    const { parts } = await this.client.feed(this.session, page * WINDOW - 1, WINDOW);
    for (const { turn, index, spokenAt } of parts) {
      const at = spokenAt ? Date.parse(spokenAt) : Number.NaN;
      if (!Number.isNaN(at)) this.#times.set(`${turn}.${index}`, at);
    }
  }
}

export const Times = createContext<CallTimes | undefined>(undefined);

/** How long a call took, in ms, once both its ends are known. */
export function useCallTime({ startedAt, endedAt, endPlace }: Tool): number | undefined {
  const times = useContext(Times);
  const [end, setEnd] = useState(() => endedAt ?? (endPlace ? times?.known(endPlace) : undefined));
  useEffect(() => {
    if (endedAt !== undefined) setEnd(endedAt);
    else if (endPlace && startedAt !== undefined && times) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      let isGone = false;
      const look = async (left: number) => {
        const at = await times.look(endPlace).catch(() => undefined);
        if (isGone) return;
        if (at !== undefined) setEnd(at);
        else if (left > 0) timer = setTimeout(() => void look(left - 1), AGAIN_MS);
      };
      void look(TRIES);
      return () => {
        isGone = true;
        clearTimeout(timer);
      };
    }
    return undefined;
  }, [times, startedAt, endedAt, endPlace]);
  return startedAt === undefined || end === undefined ? undefined : Math.max(0, end - startedAt);
}
