import type { Client } from '../api/client';
import { Problem } from '../api/problem';
import { EventReader, TooLong } from '../conversation/sse';
import type { Link } from '../conversation/transport';

export interface RemoteEvent {
  type: string;
  data: unknown;
}

/** Refusals that stay what they are. */
const FINAL = new Set([400, 403, 404, 405]);
/** A connection that lasted so long did not end at once. */
const STEADY_MS = 5000;
const PAUSES_MS = [200, 400, 800, 1600, 3200, 5000];

/** Reads a remote session's events behind a cursor until it is over or the page goes; a lost connection is gone on with. */
export async function follow(client: Client, session: string, from: number | undefined, tell: (event: RemoteEvent) => void, onLink: (link: Link) => void, signal: AbortSignal): Promise<void> {
  let cursor = from;
  for (let tries = 0; !signal.aborted; tries++) {
    const began = Date.now();
    let reader: EventReader | undefined;
    try {
      onLink(tries === 0 ? 'opening' : 'lost');
      const { ticket, streamUrl } = await client.readTicket(session);
      const url = new URL(streamUrl);
      if (cursor !== undefined) url.searchParams.set('after', String(cursor));
      const response = await fetch(url, { headers: { 'x-bex-agent-ticket': ticket }, credentials: 'omit', signal });
      if (response.status === 204 || FINAL.has(response.status)) return onLink('idle');
      if (!response.ok || !response.body) throw new Error(await response.text());
      onLink('reading');
      reader = new EventReader(response.body);
      for (let event = await reader.next(); event; event = await reader.next()) {
        if (event.data === '[DONE]') return onLink('idle');
        // what cannot be read or shown is passed over: behind the cursor it would come again and again
        if (event.id !== undefined && Number.isSafeInteger(Number(event.id))) cursor = Number(event.id);
        const told = event.data === undefined ? undefined : parsed(event.data);
        if (told) tell(told);
      }
    } catch (error) {
      if (error instanceof TooLong || (error instanceof Problem && error.status < 500 && error.status !== 429)) return onLink('idle');
    } finally {
      reader?.close();
    }
    if (Date.now() - began > STEADY_MS) tries = 0;
    await new Promise(resolve => setTimeout(resolve, PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)]));
  }
}

function parsed(data: string): RemoteEvent | undefined {
  try {
    const told: unknown = JSON.parse(data);
    return typeof told === 'object' && told !== null ? (told as RemoteEvent) : undefined;
  } catch {
    return undefined;
  }
}
