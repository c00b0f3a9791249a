// What stands between browsers and the gateway and sometimes fails: a TCP relay whose connections can be cut, or refused.
import { connect, createServer } from 'node:net';

export class Edge {
  /** Where connections go. */
  target;
  /** Whether new connections are refused: nobody gets through. */
  isDown = false;
  #sockets = new Set();
  #server;

  static async open() {
    const edge = new Edge();
    edge.#server = createServer(client => edge.#relay(client));
    await new Promise(resolve => edge.#server.listen(0, '127.0.0.1', resolve));
    edge.url = `http://127.0.0.1:${edge.#server.address().port}`;
    return edge;
  }

  /** Ends every connection as a lost network does. */
  cut() {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  close() {
    this.#server.close();
    this.cut();
  }

  #relay(client) {
    if (this.isDown || !this.target) return client.resetAndDestroy();
    const { hostname, port } = new URL(this.target);
    const server = connect(Number(port), hostname);
    const end = () => {
      client.destroy();
      server.destroy();
      this.#sockets.delete(client);
    };
    this.#sockets.add(client);
    for (const socket of [client, server]) socket.on('error', end).on('close', end);
    client.pipe(server);
    server.pipe(client);
  }
}
