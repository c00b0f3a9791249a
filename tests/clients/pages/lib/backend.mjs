// The application's own server: it serves the page and asks the api for tickets, so that no bearer token reaches a browser.
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { api } from './session.mjs';

const HTML = sdk => `<!doctype html><meta charset="utf-8"><title>session</title><div id="root"></div>
<script type="module" src="/page-${sdk}.js"></script>`;

export class Backend {
  /** Sessions that are reached through an edge. */
  edges = new Map();
  #scripts;
  #server;

  /** A server for pages with these scripts by their major. */
  static async start(scripts = new Map()) {
    const backend = new Backend();
    backend.#scripts = scripts;
    backend.#server = createServer((request, response) => backend.#answer(request, response));
    await new Promise(resolve => backend.#server.listen(0, '127.0.0.1', resolve));
    backend.address = `127.0.0.1:${backend.#server.address().port}`;
    return backend;
  }

  close() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request, response) {
    try {
      const [type, body] = await this.#route(request);
      response.writeHead(200, { 'content-type': type }).end(body);
    } catch (error) {
      response.writeHead(500, { 'content-type': 'text/plain' }).end(error.message);
    }
  }

  async #route(request) {
    const { pathname, searchParams } = new URL(request.url, 'http://page');
    if (pathname === '/') return ['text/html', HTML(searchParams.get('sdk'))];
    const [, sdk] = /^\/page-(\d)\.js$/.exec(pathname) ?? [];
    if (sdk) return ['text/javascript', this.#scripts.get(sdk)];
    const [, session, what] = /^\/api\/sessions\/([\w-]+)\/(ticket|turns)$/.exec(pathname) ?? [];
    if (!session) throw new Error(`nothing at ${pathname}`);
    return ['application/json', JSON.stringify(await this.#ticket(session, what, await json(request)))];
  }

  async #ticket(session, what, body) {
    const at = what === 'turns' ? `/${session}/turns` : `/${session}/attach-ticket`;
    const { ticket, streamUrl } = await api('POST', at, what === 'turns' ? body : { action: 'read' });
    const { pathname } = new URL(streamUrl);
    const edge = this.edges.get(session);
    return { ticket, streamUrl: edge ? edge.url + pathname : streamUrl };
  }
}
