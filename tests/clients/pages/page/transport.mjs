// How a page reads a session: a ticket of its own for every request, and a cursor that names the last event its list holds.

/** Where the last whole event stands that was read. */
class CursorReader {
  cursor = undefined;
  #decoder = new TextDecoder();
  #rest = '';

  /** A new body begins with a new event. */
  begin() {
    this.#decoder = new TextDecoder();
    this.#rest = '';
  }

  push(bytes) {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const end = this.#rest.lastIndexOf('\n\n');
    if (end < 0) return;
    // JSON holds no line breaks, so a line that begins so is no data
    for (const [, id] of this.#rest.slice(0, end).matchAll(/^id: (\S+)$/gm)) this.cursor = id;
    this.#rest = this.#rest.slice(end + 2);
  }
}

/** The SDK's own transport of any version, made to resume exactly where it was cut off. */
export function sessionTransport(DefaultChatTransport) {
  return class SessionTransport extends DefaultChatTransport {
    /** What was asked of the gateway: method, url, cursor, status; without a status where nothing answered. */
    requests = [];
    /** Whether the network ended the last request. Then the SDK keeps what it was reading, and the cursor goes on with it. */
    lost = false;
    #read = new CursorReader();
    #session;
    #backend;
    #cursorIn;

    /** `backend` mints tickets; the cursor goes into the `query` or a `header`. */
    constructor({ session, backend, cursorIn = 'query' }) {
      super({
        fetch: (url, init) => this.#ask(url, init),
        prepareReconnectToStreamRequest: () => this.#resume(),
        prepareSendMessagesRequest: ({ messages }) => this.#send(messages),
      });
      this.#session = session;
      this.#backend = backend;
      this.#cursorIn = cursorIn;
    }

    /** For a page that begins again with an empty list. */
    forget() {
      this.#read.cursor = undefined;
    }

    async #resume() {
      const { ticket, streamUrl } = await this.#mint('ticket', {});
      const { cursor } = this.#read;
      const headers = { 'x-bex-agent-ticket': ticket };
      if (cursor === undefined) return { api: streamUrl, headers };
      if (this.#cursorIn === 'header') return { api: streamUrl, headers: { ...headers, 'last-event-id': cursor } };
      return { api: `${streamUrl}?after=${cursor}`, headers };
    }

    async #send(messages) {
      const prompt = messages.at(-1).parts.map(part => part.text ?? '').join('');
      const { ticket, streamUrl } = await this.#mint('turns', { prompt });
      return { api: streamUrl, headers: { 'x-bex-agent-ticket': ticket }, body: { messages } };
    }

    async #mint(what, body) {
      const response = await this.#reach(() =>
        fetch(`${this.#backend}/api/sessions/${this.#session}/${what}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
        }),
      );
      if (!response.ok) throw new Error(`${what}: ${response.status} ${await response.text()}`);
      return response.json();
    }

    async #ask(url, init) {
      const cursor = new URL(url).searchParams.get('after') ?? new Headers(init.headers).get('last-event-id');
      const request = { method: init.method, url, cursor };
      // StrictMode gives up its first request before it is sent
      if (!init.signal?.aborted) this.requests.push(request);
      const response = await this.#reach(() => fetch(url, init));
      request.status = response.status;
      return response;
    }

    async #reach(request) {
      try {
        const response = await request();
        this.lost = false;
        return response;
      } catch (error) {
        this.lost = error.name !== 'AbortError';
        throw error;
      }
    }

    /** A stream that breaks takes with it what the SDK has queued but not shown. So the SDK is given a body that only ends, and is
     * told of the break when it has shown all of it: then the cursor is exact. */
    processResponseStream(body) {
      this.#read.begin();
      const from = body.getReader();
      let broken;
      const whole = new ReadableStream({
        pull: async to => {
          const { done, value } = await from.read().catch(error => {
            broken = error;
            return { done: true };
          });
          if (done) return to.close();
          this.#read.push(value);
          to.enqueue(value);
        },
        cancel: reason => from.cancel(reason),
      });
      const chunks = super.processResponseStream(whole).getReader();
      return new ReadableStream(
        {
          pull: async to => {
            const { done, value } = await chunks.read();
            if (!done) return to.enqueue(value);
            this.lost = broken !== undefined && broken.name !== 'AbortError';
            if (broken) to.error(broken);
            else to.close();
          },
          cancel: reason => chunks.cancel(reason),
        },
        { highWaterMark: 0 },
      );
    }
  };
}
