import type { Item } from './item';
import { newestFirst } from './item';

/** One page of one list, and where its next begins. */
export interface Piece {
  items: Item[];
  next: string | undefined;
}

export type Load = (cursor: string | undefined, limit: number) => Promise<Piece>;

interface Source {
  load: Load;
  ready: Item[];
  cursor: string | undefined;
  isDone: boolean;
}

const PAGE = 50;
/** Pages of one list that are read for one call, whatever a filter leaves of them. */
const MOST_PAGES = 10;

/** Several lists, each newest first, read as one: an item is given out only when no list can hold a newer one. */
export class Merged {
  readonly #sources: Source[];
  /** What was taken when a page failed: it is given out with the next. */
  #taken: Item[] = [];

  constructor(loads: readonly Load[]) {
    this.#sources = loads.map(load => ({ load, ready: [], cursor: undefined, isDone: false }));
  }

  get isDone(): boolean {
    return this.#taken.length === 0 && this.#sources.every(source => source.isDone && source.ready.length === 0);
  }

  /** The next items, at most so many; fewer at the end, or where a filter leaves little of many pages. */
  async take(most: number): Promise<Item[]> {
    for (let pages = 0; this.#taken.length < most; ) {
      const empty = this.#sources.filter(source => source.ready.length === 0 && !source.isDone);
      if (empty.length > 0 && pages++ === MOST_PAGES) break;
      await Promise.all(empty.map(fill));
      const heads = this.#sources.filter(source => source.ready.length > 0);
      // a page without items is no end
      if (this.#sources.some(source => source.ready.length === 0 && !source.isDone)) continue;
      if (heads.length === 0) break;
      const newest = heads.reduce((a, b) => (newestFirst(a.ready[0] as Item, b.ready[0] as Item) <= 0 ? a : b));
      this.#taken.push(newest.ready.shift() as Item);
    }
    const taken = this.#taken;
    this.#taken = [];
    return taken;
  }
}

async function fill(source: Source): Promise<void> {
  const { items, next } = await source.load(source.cursor, PAGE);
  source.ready.push(...items);
  source.cursor = next;
  source.isDone = next === undefined;
}

/** What is known, with what was looked at again: newer versions win, and what is new stands where it belongs. */
export function refreshed(known: readonly Item[], again: readonly Item[]): Item[] {
  const byId = new Map(known.map(item => [item.id, item]));
  for (const item of again) byId.set(item.id, item);
  return [...byId.values()].sort(newestFirst);
}
