import { useEffect, useMemo, useSyncExternalStore } from 'react';

/** What is there of a list. */
export interface Shown<T> {
  readonly items: readonly T[];
  readonly isDone: boolean;
  readonly isLoading: boolean;
  /** Why there is not more. Nothing is asked for until a person says so. */
  readonly error: unknown;
  /** Much was looked through and little was found: it goes on when a person says so. */
  readonly isPaused: boolean;
}

/** Reads on, page by page. */
export type Take<T> = (signal: AbortSignal) => Promise<{ items: readonly T[]; isDone: boolean }>;

type Join<T> = (known: readonly T[], next: readonly T[]) => readonly T[];

/** A list that is read as it is wanted. */
export class Paged<T> {
  readonly #begin: () => Take<T>;
  readonly #join: Join<T>;
  readonly #listeners = new Set<() => void>();
  #shown: Shown<T> = { items: [], isDone: false, isLoading: false, error: undefined, isPaused: false };
  #ends = new AbortController();
  /** Where the next page comes from; none while what is shown is to be read anew. */
  #take: Take<T> | undefined;

  constructor(begin: () => Take<T>, join: Join<T> = (known, next) => [...known, ...next]) {
    this.#begin = begin;
    this.#join = join;
  }

  get shown(): Shown<T> {
    return this.#shown;
  }

  listen = (tell: () => void): (() => void) => {
    this.#listeners.add(tell);
    return () => void this.#listeners.delete(tell);
  };

  /** The next page, unless the last one failed: whatever scrolls asks for it, again and again. */
  more = (): void => {
    if (this.#shown.error === undefined && !this.#shown.isPaused) void this.#next();
  };

  /** The page that failed, or what is behind a pause. */
  retry = (): void => void this.#next();

  /** Reads anew as much as is shown, which stays until the new is there. */
  again = (): void => {
    this.end();
    this.#ends = new AbortController();
    this.#take = undefined;
    this.#set({ isLoading: false, isDone: false, error: undefined });
    void this.#next();
  };

  /** Other items in the place of those that are shown. */
  change(change: (items: readonly T[]) => readonly T[]): void {
    this.#set({ items: change(this.#shown.items) });
  }

  end(): void {
    this.#ends.abort();
  }

  async #next(): Promise<void> {
    if (this.#shown.isLoading || this.#shown.isDone) return;
    const { signal } = this.#ends;
    this.#set({ isLoading: true, error: undefined, isPaused: false });
    const [known, wanted] = this.#take ? [this.#shown.items, 0] : [[], this.#shown.items.length];
    const take = this.#take ?? this.#begin();
    try {
      let next: readonly T[] = [];
      let isDone = false;
      let isPaused = false;
      do {
        const page = await take(signal);
        if (signal.aborted) return;
        next = this.#join(next, page.items);
        ({ isDone } = page);
        isPaused = page.items.length === 0 && !isDone;
      } while (!isDone && !isPaused && next.length < wanted);
      // what changed meanwhile is joined to, not overwritten
      const before = this.#take ? this.#shown.items : known;
      this.#take = take;
      this.#set({ items: this.#join(before, next), isDone, isPaused, isLoading: false });
    } catch (error) {
      if (!signal.aborted) this.#set({ isLoading: false, error });
    }
  }

  #set(change: Partial<Shown<T>>): void {
    this.#shown = { ...this.#shown, ...change };
    for (const tell of this.#listeners) tell();
  }
}

/** The same for a page of the dashboard, begun anew with other `deps`. */
export function usePaged<T>(make: () => Paged<T>, deps: readonly unknown[]): [Paged<T>, Shown<T>] {
  const paged = useMemo(make, deps);
  useEffect(() => {
    paged.again();
    return () => paged.end();
  }, [paged]);
  return [paged, useSyncExternalStore(paged.listen, () => paged.shown)];
}
