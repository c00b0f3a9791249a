/** One event of a stream. An id without data moves the cursor alone. */
export interface StreamEvent {
  id: string | undefined;
  data: string | undefined;
}

/** Nothing arrived for three heartbeats: the connection is dead, though nobody says so. */
const SILENCE_MS = 50_000;

/** Characters of one event. A part has a mebibyte at most, and a folded text is what many parts said. */
const MOST = 64 * 1024 * 1024;

/** How a connection ends that did not end well; the name is what the SDK takes for a lost network. */
export const lost = (why: string): TypeError => new TypeError(`network error: ${why}`);

/** Read again it would be as long. */
export class TooLong extends Error {
  constructor() {
    super('What is said here is too long for this page; an export has it.');
  }
}

/** Reads events, whole ones only: what a broken connection leaves half-said is never given out. */
export class EventReader {
  readonly #from: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #rest = '';
  #ready: StreamEvent[] = [];
  #at = 0;

  constructor(body: ReadableStream<Uint8Array>) {
    this.#from = body.getReader();
  }

  /** The next event; `undefined` at the end. */
  async next(): Promise<StreamEvent | undefined> {
    while (this.#at === this.#ready.length) {
      const { done, value } = await this.#read();
      if (done) return undefined;
      this.#take(this.#decoder.decode(value, { stream: true }));
    }
    return this.#ready[this.#at++];
  }

  close(): void {
    this.#from.cancel().catch(() => {});
  }

  async #read(): Promise<ReadableStreamReadResult<Uint8Array>> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silence = new Promise<never>((_, fail) => {
      timer = setTimeout(() => fail(lost('silence')), SILENCE_MS);
    });
    try {
      return await Promise.race([this.#from.read(), silence]);
    } finally {
      clearTimeout(timer);
    }
  }

  #take(text: string): void {
    const all = this.#rest + text;
    // what was there before has no end in it
    const end = all.indexOf('\n\n', Math.max(0, this.#rest.length - 1)) < 0 ? -1 : all.lastIndexOf('\n\n');
    this.#ready = [];
    this.#at = 0;
    if (end < 0) {
      if (all.length > MOST) throw new TooLong();
      this.#rest = all;
      return;
    }
    this.#rest = all.slice(end + 2);
    for (const block of all.slice(0, end).split('\n\n')) {
      const event = parse(block);
      if (event) this.#ready.push(event);
    }
  }
}

/** JSON holds no line ends, so that an event's data is one line. */
function parse(block: string): StreamEvent | undefined {
  let id: string | undefined;
  let data: string | undefined;
  for (const line of block.split('\n')) {
    if (line.startsWith('id: ')) id = line.slice(4);
    else if (line.startsWith('data: ')) data = line.slice(6);
  }
  return id === undefined && data === undefined ? undefined : { id, data };
}
