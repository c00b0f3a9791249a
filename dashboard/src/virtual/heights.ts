/** Heights of many rows, measured or guessed: where a row begins, and which row is at a place, in the time of a logarithm. */
export class Heights {
  #heights = new Float64Array(0);
  /** A Fenwick tree over them. */
  #tree = new Float64Array(1);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  get total(): number {
    return this.before(this.#count);
  }

  of(index: number): number {
    return this.#heights[index] ?? 0;
  }

  /** All rows anew, each with its height. */
  fill(count: number, height: (index: number) => number): void {
    const room = Math.max(count, 16);
    this.#heights = new Float64Array(room);
    this.#tree = new Float64Array(room + 1);
    this.#count = count;
    for (let i = 0; i < count; i++) this.#heights[i] = height(i);
    for (let i = 1; i <= room; i++) {
      this.#tree[i] = (this.#tree[i] ?? 0) + (this.#heights[i - 1] ?? 0);
      const parent = i + (i & -i);
      if (parent <= room) this.#tree[parent] = (this.#tree[parent] ?? 0) + (this.#tree[i] ?? 0);
    }
  }

  /** Further rows behind the last. */
  grow(count: number, height: (index: number) => number): void {
    const old = this.#heights;
    if (count > old.length) {
      const kept = this.#count;
      // twice the room, so that growing row by row stays cheap
      const room = Math.max(count, old.length * 2);
      this.fill(room, i => (i < kept ? (old[i] ?? 0) : i < count ? height(i) : 0));
    } else {
      for (let i = this.#count; i < count; i++) this.#add(i, height(i) - (this.#heights[i] ?? 0));
    }
    this.#count = count;
  }

  set(index: number, height: number): void {
    this.#add(index, height - (this.#heights[index] ?? 0));
  }

  /** Where a row begins. */
  before(index: number): number {
    let sum = 0;
    for (let i = Math.min(index, this.#count); i > 0; i -= i & -i) sum += this.#tree[i] ?? 0;
    return sum;
  }

  /** The row at a place; the first or last for what is outside. */
  at(place: number): number {
    let index = 0;
    let left = place;
    for (let step = 1 << (31 - Math.clz32(this.#tree.length)); step > 0; step >>= 1) {
      const next = index + step;
      const sum = this.#tree[next];
      if (sum !== undefined && sum <= left) {
        index = next;
        left -= sum;
      }
    }
    return Math.max(0, Math.min(index, this.#count - 1));
  }

  #add(index: number, delta: number): void {
    if (delta === 0) return;
    this.#heights[index] = (this.#heights[index] ?? 0) + delta;
    for (let i = index + 1; i < this.#tree.length; i += i & -i) this.#tree[i] = (this.#tree[i] ?? 0) + delta;
  }
}
