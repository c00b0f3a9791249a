import type { UIMessageChunk } from 'ai';

/** A chunk as it comes over the wire. */
export interface Chunk {
  type: string;
  id?: string;
  toolCallId?: string;
  transient?: boolean;
  data?: Record<string, unknown>;
  errorText?: string;
  providerMetadata?: Record<string, Record<string, unknown>>;
  [field: string]: unknown;
}

/** What the plane says itself and what therefore has no place of its own in the transcript. */
export const isPlanes = (type: string): boolean => type === 'data-user-prompt' || type.startsWith('data-bex-');

/** How the gateway ends a stream that goes on elsewhere; every other error is the agent's. */
export const GOES_ON = /(resume after \S+|reconnect)$/;

/** Notes on chunks where in the transcript they stand, and keeps each turn a message of its own.
 *
 * A part's place (`3.120`) is known by the stream alone: the SDK throws ids away, so it goes along as metadata. Each turn begins with a
 * `start` of its own id, the same in a replay and in a POST's answer: then a message is never longer than a turn, and a turn that is read
 * again takes its own place. */
export class Places {
  readonly #session: string;
  /** Where open texts and calls began, by their id on the wire. */
  readonly #begun = new Map<string, string>();
  readonly #typing = new Set<string>();

  constructor(session: string) {
    this.#session = session;
  }

  /** The chunks that the page reads instead of this one. */
  note(chunk: Chunk, place: string | undefined): UIMessageChunk[] {
    switch (chunk.type) {
      case 'data-user-prompt':
        this.#typing.clear();
        return [{ type: 'start', messageId: `durable-${this.#session}-${String(chunk.data?.turn)}` }, chunk as UIMessageChunk];
      case 'text-start':
      case 'reasoning-start':
        if (place) this.#begun.set(`${chunk.type}:${chunk.id}`, place);
        return [this.#with(chunk, this.#begun.get(`${chunk.type}:${chunk.id}`))];
      case 'text-delta':
      case 'reasoning-delta':
        return [chunk.providerMetadata ? this.#with(chunk, this.#beginning(chunk)) : (chunk as UIMessageChunk)];
      case 'text-end':
      case 'reasoning-end':
        return [this.#with(chunk, this.#beginning(chunk))];
      case 'tool-input-start':
        return this.#call(chunk, place);
      case 'tool-input-available':
      case 'tool-input-error':
        this.#typing.delete(String(chunk.toolCallId));
        return [this.#with(chunk, this.#begun.get(`call:${chunk.toolCallId}`) ?? place)];
      case 'error':
        // the agent's last word is part of what it said: the SDK would stop reading
        return [{ type: 'data-bex-turn-error', data: { errorText: chunk.errorText } }];
      default:
        if (chunk.type.startsWith('data-')) return [{ ...chunk, place } as unknown as UIMessageChunk];
        return [place ? this.#with(chunk, place) : (chunk as UIMessageChunk)];
    }
  }

  /** A step of its own lets the SDK find a call without looking at all that was said; not while another's input is still coming. */
  #call(chunk: Chunk, place: string | undefined): UIMessageChunk[] {
    if (place) this.#begun.set(`call:${chunk.toolCallId}`, place);
    const noted = this.#with(chunk, this.#begun.get(`call:${chunk.toolCallId}`));
    const isAlone = this.#typing.size === 0;
    this.#typing.add(String(chunk.toolCallId));
    return isAlone ? [{ type: 'start-step' }, noted] : [noted];
  }

  #beginning(chunk: Chunk): string | undefined {
    return this.#begun.get(`${chunk.type.replace(/-\w+$/, '-start')}:${chunk.id}`);
  }

  #with(chunk: Chunk, place: string | undefined): UIMessageChunk {
    if (!place || !TAKES_METADATA.has(chunk.type)) return chunk as UIMessageChunk;
    return { ...chunk, providerMetadata: { ...chunk.providerMetadata, page: { place } } } as unknown as UIMessageChunk;
  }
}

const TAKES_METADATA = new Set([
  'text-start',
  'text-delta',
  'text-end',
  'reasoning-start',
  'reasoning-delta',
  'reasoning-end',
  'tool-input-start',
  'tool-input-available',
  'tool-input-error',
  'tool-output-available',
  'tool-output-error',
  'file',
  'source-url',
  'source-document',
]);
