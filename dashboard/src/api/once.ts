/** A key for what is asked of the service until it is answered: asked again after a lost answer it is the same ask, and is done once. */
export class Once {
  #what = '';
  #key = '';

  keyOf(what: unknown): string {
    const text = JSON.stringify(what);
    if (text !== this.#what) [this.#what, this.#key] = [text, crypto.randomUUID()];
    return this.#key;
  }

  /** The same again is another ask. */
  answered(): void {
    this.#what = '';
  }
}
