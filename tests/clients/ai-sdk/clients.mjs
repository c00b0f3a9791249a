// The clients: what each installed version of the SDK makes of one stream.
import { readFile } from 'node:fs/promises';

/** The newest of each major takes the stream as it is; the first of each asks for what it knows. `startsTell`: a call's start may
 * say of it what the call itself does. */
const INSTALLED = [
  { name: 'ai5', query: '' },
  { name: 'ai6', query: '', startsTell: true },
  { name: 'ai7', query: '', startsTell: true },
  { name: 'ai5_0', query: 'profile=5' },
  { name: 'ai6_0', query: 'profile=5' },
  { name: 'ai7_0', query: 'profile=5' },
];

/** The longest that one client may take for one stream. */
const PATIENCE_MS = 60_000;

export async function loadClients() {
  const load = async ({ name, query, startsTell = false }) => {
    const about = new URL(`./node_modules/${name}/package.json`, import.meta.url);
    const { version } = JSON.parse(await readFile(about, 'utf8'));
    return { version, query, startsTell, isNewest: query === '', ai: await import(name) };
  };
  return Promise.all(INSTALLED.map(load));
}

/** The state of a page that copies a message whenever it changes, as the hooks of the SDK do. */
class PageState {
  status = 'ready';
  error = undefined;
  messages = [];

  pushMessage(message) {
    this.messages = [...this.messages, this.snapshot(message)];
  }

  popMessage() {
    this.messages = this.messages.slice(0, -1);
  }

  replaceMessage(index, message) {
    this.messages = this.messages.map((old, i) => (i === index ? this.snapshot(message) : old));
  }

  snapshot(value) {
    return structuredClone(value);
  }
}

/** Resumes a chat with an empty page and tells what the page holds afterwards. */
export async function resume(client, fetch) {
  const { ai } = client;
  class Chat extends ai.AbstractChat {}
  const errors = [];
  const calls = [];
  const chat = new Chat({
    id: 'chat',
    state: new PageState(),
    transport: new ai.DefaultChatTransport({ fetch }),
    onError: error => errors.push(error),
    onToolCall: ({ toolCall }) => void calls.push(toolCall.toolCallId),
  });
  await inTime(chat.resumeStream());
  return { status: chat.status, error: chat.error ?? errors[0], messages: chat.messages, calls };
}

async function inTime(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
