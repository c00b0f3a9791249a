import { useSyncExternalStore } from 'react';

/** Which cards and folds a person opened: rows that are scrolled away forget it themselves. */
export class Opened {
  readonly #open = new Map<string, boolean>();
  readonly #tell = new Set<() => void>();

  get(key: string, usual: boolean): boolean {
    return this.#open.get(key) ?? usual;
  }

  set(key: string, isOpen: boolean): void {
    this.#open.set(key, isOpen);
    for (const tell of this.#tell) tell();
  }

  listen = (tell: () => void): (() => void) => {
    this.#tell.add(tell);
    return () => this.#tell.delete(tell);
  };
}

export function useOpened(opened: Opened, key: string, usual = false): [boolean, () => void] {
  const isOpen = useSyncExternalStore(opened.listen, () => opened.get(key, usual));
  return [isOpen, () => opened.set(key, !isOpen)];
}
