// What stands between a browser and the gateway and sometimes fails: a TCP relay whose connections can be cut.
import { connect, createServer } from 'node:net';

export class Edge {
  #pairs = new Set();
  #server;
  #cuts = { bytes: 0, left: 0 };

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
      client.destroySoon();
      server.destroy();
    };
    for (const socket of [client, server]) socket.setNoDelay(true).on('error', end).on('close', end);
    client.pipe(server);
    let relayed = 0;
    server.on('data', bytes => {
      relayed += bytes.length;
      if (this.#cuts.left > 0 && relayed >= this.#cuts.bytes) {
        this.#cuts.left -= 1;
        // in the middle of whatever it is
        client.end(bytes.subarray(0, bytes.length / 2));
        server.destroy();
      } else if (!client.write(bytes)) {
        server.pause();
        client.once('drain', () => server.resume());
      }
    });
    server.on('end', () => client.end());
  }

  /** Ends so many connections early, each when the gateway has sent so many bytes on it. */
  cutAfter(bytes, times) {
    this.#cuts = { bytes, left: times };
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
