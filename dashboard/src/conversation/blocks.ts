/** A block of text is drawn as a whole: this is as much as may be. */
const LONGEST = 2400;
/** One line may be longer than any block. */
const LONGEST_LINE = 8000;

/** Cuts a text that grows into blocks of Markdown that stand for themselves: at empty lines, and in what is too long at line ends. A
 * fence that is cut goes on in the next block. Only the last block ever changes. */
export class Blocks {
  /** Those before the last. */
  readonly #whole: string[] = [];
  #seen = '';
  #start = 0;
  /** Read to here, from `#start` on. */
  #at = 0;
  #fence: string | undefined;
  #opened = '';

  /** All blocks of the text, which begins with what was given before. */
  of(text: string): string[] {
    if (text.length < this.#at || !text.startsWith(this.#seen.slice(0, 64))) this.#reset();
    this.#seen = text.length < 64 ? text : this.#seen.length < 64 ? text.slice(0, 64) : this.#seen;
    for (;;) {
      const end = text.indexOf('\n', this.#at);
      if (end < 0) {
        if (text.length - this.#at <= LONGEST_LINE) break;
        this.#close(text, this.#at + LONGEST_LINE);
        continue;
      }
      this.#line(text, text.slice(this.#at, Math.min(end, this.#at + 200)), end + 1);
    }
    const rest = text.slice(this.#start);
    return rest.trim() === '' ? this.#whole.slice() : [...this.#whole, this.#opened + rest];
  }

  #line(text: string, line: string, next: number): void {
    const mark = /^\s{0,3}(`{3,}|~{3,})(.*)$/.exec(line);
    if (this.#fence === undefined) {
      if (mark) this.#fence = `${mark[1]}${mark[2]}`;
    } else if (mark?.[2]?.trim() === '' && mark[1]?.startsWith(this.#fence.match(/^(`+|~+)/)?.[0] ?? '`')) {
      this.#fence = undefined;
    }
    const isGap = this.#fence === undefined && line.trim() === '';
    const isLong = next - this.#start > LONGEST;
    this.#at = next;
    if (isGap || isLong) this.#close(text, next);
  }

  #close(text: string, end: number): void {
    const block = text.slice(this.#start, end);
    const isOpen = this.#fence !== undefined;
    const mark = this.#fence?.match(/^(`+|~+)/)?.[0] ?? '';
    if (block.trim() !== '') this.#whole.push(`${this.#opened}${block}${isOpen ? `\n${mark}` : ''}`);
    this.#opened = isOpen ? `${this.#fence}\n` : '';
    this.#start = end;
    this.#at = end;
  }

  #reset(): void {
    this.#whole.length = 0;
    this.#seen = '';
    this.#start = 0;
    this.#at = 0;
    this.#fence = undefined;
    this.#opened = '';
  }
}
