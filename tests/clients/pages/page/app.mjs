// The page under test: it shows a session with useChat, resumes it when it is mounted, and reads on after a lost connection.
import { StrictMode, createElement as h, useEffect, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { sessionTransport } from './transport.mjs';

/** Between a lost connection and the next try. */
const PAUSE_MS = 200;
/** Tries in a row without an answer that ends well. */
const TRIES = 20;
/** How the gateway ends a stream that goes on elsewhere; every other error is the agent's last word. */
const GOES_ON = /resume after \S+$/;

/** Shows a session in an element; `sdk` has the `useChat` and `DefaultChatTransport` of one major. */
export function mount(element, sdk, { strict = false, ...where }) {
  const Transport = sessionTransport(sdk.DefaultChatTransport);
  const transport = new Transport(where);
  const root = createRoot(element);
  const page = h(Page, { useChat: sdk.useChat, session: where.session, transport });
  root.render(strict ? h(StrictMode, null, page) : page);
  return { requests: transport.requests, unmount: () => root.unmount() };
}

function Page({ useChat, session, transport }) {
  const chat = useChat({ id: session, transport, resume: true });
  useReadingOn(chat, transport);
  const send = event => {
    event.preventDefault();
    void chat.sendMessage({ text: event.target.elements.prompt.value });
    event.target.reset();
  };
  return h(
    'main',
    { 'data-status': chat.status, 'data-error': chat.error?.message },
    ...chat.messages.map(({ id, role, parts }) =>
      h('article', { 'data-id': id, 'data-role': role }, ...parts.map(part => h(Part, { part }))),
    ),
    h('form', { onSubmit: send }, h('input', { name: 'prompt' }), h('button', { type: 'submit' }, 'Send')),
    h('button', { id: 'read-on', type: 'button', onClick: () => void chat.resumeStream() }, 'Read on'),
  );
}

function Part({ part }) {
  const { type } = part;
  if (type === 'text' || type === 'reasoning') return h('p', { 'data-type': type, 'data-state': part.state }, part.text);
  if (type === 'data-user-prompt') return h('h2', { 'data-type': type, 'data-turn': part.data.turn }, part.data.text);
  if (part.toolCallId) return h('pre', { 'data-type': 'tool', 'data-call': part.toolCallId, 'data-state': part.state });
  return h('span', { 'data-type': type });
}

/** After a lost connection the list is kept and the cursor goes on with it; when the gateway ends a stream early, the page begins
 * again with an empty list. */
function useReadingOn({ status, error, resumeStream, setMessages }, transport) {
  const tries = useRef(0);
  // an error after an error changes no status
  const [ended, setEnded] = useState(0);
  useEffect(() => {
    if (status === 'ready') tries.current = 0;
    if (status !== 'error' || tries.current === TRIES) return;
    if (!transport.lost) {
      if (!GOES_ON.test(error.message)) return;
      transport.forget();
      setMessages([]);
    }
    const again = () => {
      tries.current += 1;
      void resumeStream().finally(() => setEnded(n => n + 1));
    };
    if (!window.navigator.onLine) {
      window.addEventListener('online', again, { once: true });
      return () => window.removeEventListener('online', again);
    }
    const timer = setTimeout(again, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [status, error, ended]);
}

/** What a person sees; looks at nothing but its argument, so that it can be run inside a browser. */
export function shown(root) {
  const main = root.querySelector('main');
  if (!main) return { status: 'not there', messages: [] };
  const messages = [...main.querySelectorAll('article')].map(article => ({
    id: article.dataset.id,
    role: article.dataset.role,
    parts: [...article.children].map(part => ({ ...part.dataset, text: part.textContent })),
  }));
  return { status: main.dataset.status, error: main.dataset.error, messages };
}
