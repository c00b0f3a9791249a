import { useDeferredValue, useEffect, useState } from 'react';
import type { Row } from './row';
import { textOf } from './row';

/** Rows that are looked through before the page may draw. */
const SLICE = 2000;
const LEAST = 2;
/** What is being said changes many times a second. */
const AFTER_MS = 150;

export interface Found {
  /** What was looked for. */
  words: string;
  /** Indexes of the rows that have it. */
  at: readonly number[];
}

const NOTHING: Found = { words: '', at: [] };

/** The rows that have the words, found bit by bit, and again as more is said. */
export function useFind(rows: readonly Row[], words: string): Found {
  const wanted = useDeferredValue(words.trim().toLowerCase());
  const [found, setFound] = useState(NOTHING);
  useEffect(() => {
    if (wanted.length < LEAST) {
      setFound(NOTHING);
      return;
    }
    let isGone = false;
    const look = async () => {
      await new Promise(resolve => setTimeout(resolve, AFTER_MS));
      const all: number[] = [];
      for (let from = 0; from < rows.length && !isGone; from += SLICE) {
        rows.slice(from, from + SLICE).forEach((row, i) => {
          if (textOf(row).toLowerCase().includes(wanted)) all.push(from + i);
        });
        await new Promise(resolve => setTimeout(resolve));
      }
      if (!isGone) setFound({ words: wanted, at: all });
    };
    void look();
    return () => {
      isGone = true;
    };
  }, [rows, wanted]);
  return found;
}

/** Marks the words where they are drawn, without touching what is drawn. */
export function useHighlight(root: HTMLElement | null, words: string, drawn: unknown): void {
  useEffect(() => {
    const wanted = words.trim().toLowerCase();
    if (!root || !CSS.highlights) return;
    const ranges = wanted.length < LEAST ? [] : rangesOf(root, wanted);
    CSS.highlights.set('found', new Highlight(...ranges));
    return () => void CSS.highlights.delete('found');
  }, [root, words, drawn]);
}

const MOST_MARKS = 500;

function rangesOf(root: HTMLElement, wanted: string): Range[] {
  const ranges: Range[] = [];
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node && ranges.length < MOST_MARKS; node = texts.nextNode()) {
    const text = node.textContent?.toLowerCase() ?? '';
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, Math.min(at + wanted.length, node.textContent?.length ?? 0));
      ranges.push(range);
    }
  }
  return ranges;
}
