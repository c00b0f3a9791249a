import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';
import type { Client } from '../api/client';
import { Once } from '../api/once';
import { Problem } from '../api/problem';
import type { Ticket } from '../api/types';
import type { Chunk } from './chunks';
import { GOES_ON, isPlanes, Places } from './chunks';
import { pauseOf } from './pause';
import { EventReader, lost, TooLong } from './sse';

/** What the page is told beside the conversation. */
export interface Events {
  /** Whether the stream is being read, looked for again, or at its end. */
  onLink: (link: Link) => void;
  /** A turn settled, or began. */
  onTurn: (turn: number) => void;
  /** Parts were recovered: what is shown is to be read again. */
  onHealed: () => void;
}

export type Link = 'idle' | 'opening' | 'reading' | 'lost';

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
/** Work between two looks at what else the page has to do. */
const SLICE_MS = 8;

/** Reads one session from the gateway: a ticket of its own for every request, a cursor for every one but the first. A lost connection,
 * a drain, a tab that slept: the stream it gives to the SDK goes on behind what was read, and ends only when the conversation does. */
export class GatewayTransport implements ChatTransport<UIMessage> {
  readonly resumeStreamIsReplay = false;
  readonly #client: Client;
  readonly #session: string;
  readonly #events: Events;
  readonly #places: Places;
  /** A prompt whose answer was lost is the same prompt when it is sent again. */
  readonly #once = new Once();
  #cursor: string | undefined;

  constructor(client: Client, session: string, events: Events) {
    this.#client = client;
    this.#session = session;
    this.#events = events;
    this.#places = new Places(session);
  }

  /** For a page that begins again with an empty list. */
  forget(): void {
    this.#cursor = undefined;
  }

  async reconnectToStream({ abortSignal }: { abortSignal?: AbortSignal }): Promise<ReadableStream<UIMessageChunk> | null> {
    this.#events.onLink('opening');
    const response = await this.#reopen(abortSignal, true);
    if (!response) {
      this.#events.onLink('idle');
      return null;
    }
    return this.#chunks(response, undefined, abortSignal);
  }

  async sendMessages({ messages, abortSignal }: { messages: UIMessage[]; abortSignal: AbortSignal | undefined }): Promise<ReadableStream<UIMessageChunk>> {
    const message = messages.at(-1);
    const prompt = (message?.parts ?? []).map(part => (part.type === 'text' ? part.text : '')).join('');
    const begun = await this.#client.beginTurn(this.#session, prompt, this.#once.keyOf(prompt));
    this.#once.answered();
    this.#events.onTurn(begun.turn);
    this.#events.onLink('opening');
    const response = await this.#post(begun, abortSignal);
    return this.#chunks(response, begun.turn, abortSignal);
  }

  /** The turn has begun: should its own stream not open, it is read as everybody else reads it. */
  async #post({ ticket, streamUrl }: Ticket, signal: AbortSignal | undefined): Promise<Response> {
    const headers = { 'x-bex-agent-ticket': ticket, 'content-type': 'application/json' };
    const request = { method: 'POST', headers, body: '{}', credentials: 'omit', signal: signal ?? null } as const;
    const response = await fetch(streamUrl, request).catch(() => undefined);
    if (response?.status === 200) return response;
    const again = await this.#reopen(signal);
    if (!again) throw lost('the turn is not to be seen');
    return again;
  }

  /** One GET behind the cursor; `undefined` when there is nothing to read. A conversation that ended is begun anew with what is open. */
  async #open(signal: AbortSignal | undefined, isFresh: boolean): Promise<Response | undefined> {
    const { ticket, streamUrl } = await this.#client.readTicket(this.#session);
    const url = new URL(streamUrl);
    url.searchParams.set('compact', '1');
    if (this.#cursor) url.searchParams.set('after', this.#cursor);
    if (this.#cursor && isFresh) url.searchParams.set('fresh', '1');
    const response = await fetch(url, { headers: { 'x-bex-agent-ticket': ticket }, credentials: 'omit', signal: signal ?? null });
    if (response.status === 204) return undefined;
    if (response.status !== 200) throw new Refused(response.status, response.headers.get('x-bex-error') ?? '', await response.text());
    return response;
  }

  /** Tries until the gateway answers, or says that it never will. */
  async #reopen(signal: AbortSignal | undefined, isFresh = false): Promise<Response | undefined> {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      signal?.throwIfAborted();
      try {
        return await this.#open(signal, isFresh);
      } catch (error) {
        if (signal?.aborted || isFinal(error)) throw error;
        this.#events.onLink('lost');
        await rest(pause * (0.5 + Math.random()), signal);
      }
    }
  }

  #chunks(first: Response, posted: number | undefined, signal: AbortSignal | undefined): ReadableStream<UIMessageChunk> {
    let reader = read(first);
    const held: UIMessageChunk[] = [];
    let since = performance.now();
    let [from, vain] = [this.#cursor, 0];
    this.#events.onLink('reading');
    const end = (to: ReadableStreamDefaultController<UIMessageChunk>) => {
      reader.close();
      this.#events.onLink('idle');
      to.close();
    };
    return new ReadableStream<UIMessageChunk>(
      {
        pull: async to => {
          for (;;) {
            if (performance.now() - since > SLICE_MS) {
              await breathe();
              since = performance.now();
            }
            let step: Step;
            try {
              step = this.#step(await reader.next(), held, posted);
            } catch (error) {
              if (signal?.aborted || error instanceof TooLong) throw error;
              step = { what: 'lost' };
            }
            if (step.what === 'say') {
              if (step.chunks.length === 0) continue;
              for (const chunk of step.chunks) to.enqueue(chunk);
              return;
            }
            if (step.what === 'end') {
              for (const chunk of step.chunks) to.enqueue(chunk);
              return end(to);
            }
            // what has no cursor behind it is said again
            held.length = 0;
            reader.close();
            this.#events.onLink('lost');
            // one that ends before it says anything is not asked for at once again
            vain = this.#cursor === from ? vain + 1 : 0;
            if (vain > 0) await rest(pauseOf(vain), signal);
            const again = await this.#reopen(signal);
            if (!again) return end(to);
            reader = read(again);
            from = this.#cursor;
            this.#events.onLink('reading');
          }
        },
        cancel: () => {
          reader.close();
          this.#events.onLink('idle');
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** What one event means. Of a folded replay, chunks without an id are held back until an id stands behind them. */
  #step(event: { id: string | undefined; data: string | undefined } | undefined, held: UIMessageChunk[], posted: number | undefined): Step {
    if (!event) return { what: 'lost' };
    const flush = () => held.splice(0);
    if (event.data === '[DONE]') return { what: 'end', chunks: flush() };
    // what cannot be read is passed over: before the cursor it would come again and again
    const chunk = event.data === undefined ? undefined : chunkOf(event.data);
    if (chunk?.type === 'error' && GOES_ON.test(chunk.errorText ?? '')) return { what: 'lost' };
    if (chunk?.type === 'data-bex-live') {
      if (typeof chunk.data?.cursor === 'string') this.#cursor = chunk.data.cursor;
      return { what: 'say', chunks: flush() };
    }
    if (chunk?.type === 'data-user-prompt') {
      const turn = Number(chunk.data?.turn);
      // a posted turn's message is its own: what follows is read as everybody reads it
      if (posted !== undefined && turn !== posted) return { what: 'end', chunks: flush() };
      // the same words again are another prompt
      this.#once.answered();
      this.#events.onTurn(turn);
    }
    if (chunk?.type === 'data-bex-turn') {
      this.#events.onTurn(Number(chunk.data?.turn));
      if (chunk.data?.healed === true) this.#events.onHealed();
    }
    const noted = !chunk || isSilent(chunk) ? [] : this.#places.note(chunk, event.id);
    if (event.id !== undefined) {
      this.#cursor = event.id;
      return { what: 'say', chunks: [...flush(), ...noted] };
    }
    if (!chunk || isPlanes(chunk.type) || SIGNS.has(chunk.type)) return { what: 'say', chunks: [...flush(), ...noted] };
    held.push(...noted);
    return { what: 'say', chunks: [] };
  }
}

function chunkOf(data: string): Chunk | undefined {
  try {
    const chunk: unknown = JSON.parse(data);
    return typeof chunk === 'object' && chunk !== null ? (chunk as Chunk) : undefined;
  } catch {
    return undefined;
  }
}

type Step = { what: 'say' | 'end'; chunks: UIMessageChunk[] } | { what: 'lost' };

const SIGNS = new Set(['start', 'finish', 'error', 'abort']);

/** Seen by the transport alone, or of no moment later. */
const isSilent = (chunk: Chunk): boolean =>
  chunk.type === 'start' || chunk.type === 'data-bex-turn' || chunk.type === 'finish-step' || chunk.type === 'start-step' || chunk.transient === true;

/** The gateway's refusal, one line for people. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    text: string,
  ) {
    super(text.trim() || `the gateway answered ${status}`);
  }
}

/** Refusals that stay what they are, however often one asks. A ticket may be too old, or used, by the time that it arrives. */
function isFinal(error: unknown): boolean {
  if (error instanceof Problem) return [400, 401, 403, 404, 410].includes(error.status);
  return error instanceof Refused && [400, 403, 404, 405].includes(error.status);
}

function read(response: Response): EventReader {
  if (!response.body) throw lost('no body');
  return new EventReader(response.body);
}

/** Lets the page draw and answer before more is read. */
const breathe = (): Promise<void> =>
  new Promise(resolve => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve();
    port2.postMessage(null);
  });

/** Waits, or for as long as there is no network at all; whatever happens first of its return, its end and the abort. */
function rest(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener('online', done);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, navigator.onLine ? ms : LONGEST_PAUSE_MS);
    window.addEventListener('online', done);
    signal?.addEventListener('abort', done);
  });
}
