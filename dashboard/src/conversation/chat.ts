import type { Chat } from '@ai-sdk/react';
import type { ChatState, ChatStatus, ChatTransport, UIMessage } from 'ai';
import { AbstractChat } from 'ai';

/** Between two drawings of what is being said. */
const DRAW_MS = 50;

/** The SDK's own state copies a whole message for every chunk, which a long turn cannot afford. This one keeps the message that the
 * SDK writes into, and tells the page now and then that it changed. */
class DrawnState implements ChatState<UIMessage> {
  #messages: UIMessage[] = [];
  #status: ChatStatus = 'ready';
  #error: Error | undefined;
  #drawing: ReturnType<typeof setTimeout> | undefined;
  readonly messagesChanged = new Set<() => void>();
  readonly statusChanged = new Set<() => void>();
  readonly errorChanged = new Set<() => void>();

  get messages(): UIMessage[] {
    return this.#messages;
  }

  set messages(messages: UIMessage[]) {
    this.#messages = [...messages];
    this.#draw();
  }

  get status(): ChatStatus {
    return this.#status;
  }

  set status(status: ChatStatus) {
    this.#status = status;
    // what was said last is seen before its end is
    if (status !== 'streaming') this.#draw();
    for (const tell of this.statusChanged) tell();
  }

  get error(): Error | undefined {
    return this.#error;
  }

  set error(error: Error | undefined) {
    this.#error = error;
    for (const tell of this.errorChanged) tell();
  }

  pushMessage = (message: UIMessage): void => {
    this.#messages.push(message);
    if (message.role === 'user') this.#draw();
    else this.#drawSoon();
  };

  popMessage = (): void => {
    this.#messages.pop();
    this.#draw();
  };

  replaceMessage = (index: number, message: UIMessage): void => {
    this.#messages[index] = message;
    this.#drawSoon();
  };

  snapshot = <T>(value: T): T => value;

  #drawSoon(): void {
    this.#drawing ??= setTimeout(() => this.#draw(), DRAW_MS);
  }

  #draw(): void {
    clearTimeout(this.#drawing);
    this.#drawing = undefined;
    // another list, so that React sees that it is not the same
    this.#messages = [...this.#messages];
    for (const tell of this.messagesChanged) tell();
  }
}

class DrawnChat extends AbstractChat<UIMessage> {
  readonly #drawn: DrawnState;

  constructor(id: string, transport: ChatTransport<UIMessage>) {
    const state = new DrawnState();
    super({ id, transport, state });
    this.#drawn = state;
  }

  '~registerMessagesCallback' = (tell: () => void) => registered(this.#drawn.messagesChanged, tell);
  '~registerStatusCallback' = (tell: () => void) => registered(this.#drawn.statusChanged, tell);
  '~registerErrorCallback' = (tell: () => void) => registered(this.#drawn.errorChanged, tell);
}

function registered(all: Set<() => void>, tell: () => void): () => void {
  all.add(tell);
  return () => all.delete(tell);
}

/** A chat for `useChat`, which asks for its own class by name and of it for nothing more than this. */
export const drawnChat = (id: string, transport: ChatTransport<UIMessage>): Chat<UIMessage> =>
  new DrawnChat(id, transport) as unknown as Chat<UIMessage>;
