import { type KeyboardEvent, type ReactNode, type Ref, useImperativeHandle, useLayoutEffect, useReducer, useRef } from 'react';
import { Heights } from './heights';

export interface Keyed {
  key: string;
}

/** What a page may ask of its list. */
export interface ListHandle {
  /** Brings a row into view; its top at the top. */
  show: (index: number) => void;
  toEnd: () => void;
  /** The first row that is seen. */
  first: () => number;
}

interface Props<T extends Keyed> {
  items: readonly T[];
  guess: (item: T) => number;
  render: (item: T, index: number) => ReactNode;
  label: string;
  /** Whether the list follows its end while the reader is there. */
  follows: boolean;
  ref?: Ref<ListHandle>;
  busy?: boolean;
  onSeen?: (first: number, last: number, atEnd: boolean) => void;
  onKeyDown?: (event: KeyboardEvent) => void;
}

/** Pixels drawn beyond what is seen, on either side. */
const BEYOND = 800;
/** So near to the end counts as being there. */
const NEAR = 40;

/** Draws the rows that are seen, of any number. What the reader looks at stays where it is while rows above it come to their height. */
export function VirtualList<T extends Keyed>(props: Props<T>) {
  const { items, guess, render, follows, onSeen } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const state = useRef(new ListState<T>()).current;
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  state.take(items, guess);

  const box = scroller.current;
  const height = box?.clientHeight ?? 800;
  if (follows) state.hasFollowed = true;
  // what was followed to its end stays there; what is opened later begins at its start
  const isAtEnd = state.wantsEnd && state.hasFollowed;
  const top = isAtEnd ? Math.max(0, state.heights.total - height) : state.top();
  const first = state.heights.at(top - BEYOND);
  const last = Math.min(items.length - 1, state.heights.at(top + height + BEYOND));
  const shown = items.slice(first, last + 1);

  useImperativeHandle(props.ref, () => ({
    show: index => {
      state.wantsEnd = false;
      state.anchor = { key: items[index]?.key ?? '', offset: 0 };
      redraw();
    },
    toEnd: () => {
      state.wantsEnd = true;
      state.hasFollowed = true;
      redraw();
    },
    first: () => state.heights.at(scroller.current?.scrollTop ?? 0),
  }));

  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    // the reader may have moved in this very moment: that is told later
    if (state.heed(box)) return redraw();
    if (state.measure(box)) return redraw();
    const wanted = isAtEnd ? box.scrollHeight - box.clientHeight : state.top();
    if (Math.abs(box.scrollTop - wanted) > 1) {
      box.scrollTop = wanted;
    }
    state.knownTop = box.scrollTop;
    const isNear = box.scrollHeight - box.clientHeight - box.scrollTop < NEAR;
    onSeen?.(state.heights.at(box.scrollTop), state.heights.at(box.scrollTop + box.clientHeight), isNear);
  });

  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const resized = new ResizeObserver(() => redraw());
    resized.observe(box);
    const inner = box.firstElementChild;
    if (inner) resized.observe(inner);
    return () => resized.disconnect();
  }, []);

  const scrolled = () => {
    const box = scroller.current;
    if (!box) return;
    state.heed(box);
    redraw();
  };

  return (
    <div ref={scroller} className="list" role={items.length > 0 ? 'feed' : 'group'} aria-label={props.label} aria-busy={props.busy ?? false} tabIndex={0} onScroll={scrolled} onKeyDown={props.onKeyDown}>
      <div className="list-inner" style={{ paddingTop: state.heights.before(first), paddingBottom: Math.max(0, state.heights.total - state.heights.before(last + 1)) }}>
        {shown.map((item, n) => (
          <div key={item.key} className="list-row" data-index={first + n}>
            {render(item, first + n)}
          </div>
        ))}
      </div>
    </div>
  );
}

/** What a list remembers between drawings. */
class ListState<T extends Keyed> {
  readonly heights = new Heights();
  readonly #measured = new Map<string, number>();
  #items: readonly T[] = [];
  /** The row at the top of the view, and how much of it is above. */
  anchor: { key: string; offset: number } | undefined;
  #anchorIndex = 0;
  wantsEnd = true;
  /** Whether the end was ever where the reader wanted to be. */
  hasFollowed = false;
  /** Where the view was when it was looked at last. */
  knownTop = 0;

  take(items: readonly T[], guess: (item: T) => number): void {
    if (items === this.#items) return;
    const height = (index: number) => {
      const item = items[index] as T;
      return this.#measured.get(item.key) ?? guess(item);
    };
    const known = this.#items.length;
    const isLonger = items.length >= known && known > 0 && items[known - 1]?.key === this.#items[known - 1]?.key && items[0]?.key === this.#items[0]?.key;
    if (isLonger) this.heights.grow(items.length, height);
    else this.heights.fill(items.length, height);
    this.#items = items;
  }

  /** Where the view is to stand. */
  top(): number {
    const { anchor } = this;
    if (!anchor) return 0;
    if (this.#items[this.#anchorIndex]?.key !== anchor.key) {
      const found = this.#items.findIndex(item => item.key === anchor.key);
      if (found >= 0) this.#anchorIndex = found;
    }
    return this.heights.before(this.#anchorIndex) + anchor.offset;
  }

  /** Whether the reader moved since the view was looked at last; then the list goes on from there. */
  heed(box: HTMLElement): boolean {
    const top = box.scrollTop;
    const left = box.scrollHeight - box.clientHeight - top;
    const isSame = Math.abs(top - this.knownTop) <= 1;
    // what became shorter takes its view along
    const isPushed = top < this.knownTop && left <= 1;
    this.knownTop = top;
    if (isSame || isPushed) return false;
    this.#moved(top, left < NEAR);
    return true;
  }

  #moved(top: number, isAtEnd: boolean): void {
    this.wantsEnd = isAtEnd;
    this.hasFollowed ||= isAtEnd;
    this.#anchorIndex = this.heights.at(top);
    const key = this.#items[this.#anchorIndex]?.key;
    this.anchor = key === undefined ? undefined : { key, offset: top - this.heights.before(this.#anchorIndex) };
  }

  /** Looks at what is drawn; whether anything was not as it was thought to be. */
  measure(box: HTMLElement): boolean {
    let isNew = false;
    for (const row of box.querySelectorAll<HTMLElement>('.list-row')) {
      const index = Number(row.dataset.index);
      const height = row.getBoundingClientRect().height;
      if (Math.abs(this.heights.of(index) - height) < 0.5) continue;
      const key = this.#items[index]?.key;
      if (key !== undefined) this.#measured.set(key, height);
      this.heights.set(index, height);
      isNew = true;
    }
    return isNew;
  }
}
