// What stands between a browser and the gateway and sometimes fails: a TCP relay whose connections can be cut.
import { connect, createServer } from 'node:net';

export class Edge {
  #pairs = new Set();
  #server;

  /** An edge of its own before an http URL. */
  static async before(url) {
    const edge = new Edge();
    const { hostname, port } = new URL(url);
    edge.#server = createServer(client => edge.#relay(client, connect(Number(port), hostname)));
    await new Promise(resolve => edge.#server.listen(0, '127.0.0.1', resolve));
    edge.url = `http://127.0.0.1:${edge.#server.address().port}`;
    return edge;
  }

  #relay(client, server) {
    const pair = { client, server };
    this.#pairs.add(pair);
    const end = () => {
      this.#pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.setNoDelay(true).on('error', end).on('close', end);
    client.pipe(server).pipe(client);
  }

  /** Resets every connection, as a network does that goes away. */
  cut() {
    for (const { client } of this.#pairs) client.resetAndDestroy();
  }

  close() {
    this.cut();
    this.#server.close();
  }
}
