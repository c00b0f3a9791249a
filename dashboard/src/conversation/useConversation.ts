import { useChat } from '@ai-sdk/react';
import type { UIMessage } from 'ai';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Client } from '../api/client';
import { drawnChat } from './chat';
import type { Row } from './row';
import { Rows } from './rows';
import type { Link } from './transport';
import { GatewayTransport } from './transport';

export interface Conversation {
  rows: readonly Row[];
  link: Link;
  error: Error | undefined;
  /** Whether an answer is being waited for or read. */
  isSpeaking: boolean;
  send: (text: string) => Promise<Error | undefined>;
  /** Reads on behind what is shown. */
  readOn: () => void;
  /** Reads all of it again. */
  readAgain: () => void;
}

/** A session as `useChat` reads it: everything said so far, then live. */
export function useConversation(client: Client, id: string, onTurn: (turn: number) => void): Conversation {
  const [link, setLink] = useState<Link>('opening');
  const [healed, setHealed] = useState(0);
  const heard = useRef(onTurn);
  heard.current = onTurn;
  const { transport, chat } = useMemo(() => {
    const transport = new GatewayTransport(client, id, {
      onLink: setLink,
      onTurn: turn => heard.current(turn),
      onHealed: () => setHealed(n => n + 1),
    });
    return { transport, chat: drawnChat(id, transport) };
  }, [client, id]);
  const { messages, setMessages, sendMessage, resumeStream, status, error, clearError } = useChat<UIMessage>({ chat, resume: true });

  // the SDK leaves a stream open when its page goes
  useEffect(() => () => void chat.stop(), [chat]);

  const rows = useRows(messages, status === 'submitted' || link === 'opening');
  const isBusy = status === 'submitted' || status === 'streaming';

  const readOn = useCallback(() => {
    if (chat.status === 'ready') void resumeStream();
  }, [chat, resumeStream]);

  const readAgain = useCallback(async () => {
    await chat.stop();
    transport.forget();
    clearError();
    setMessages([]);
    void resumeStream();
  }, [chat, transport, clearError, setMessages, resumeStream]);

  // what was recovered stands in the middle: all is read again, once what is being said was said
  const healing = useRef(0);
  useEffect(() => {
    if (isBusy || healing.current === healed) return;
    healing.current = healed;
    void readAgain();
  }, [healed, isBusy, readAgain]);

  const send = useCallback(
    async (text: string) => {
      // one stream at a time: a turn that is posted begins where everything before it was read
      if (chat.status !== 'ready' || link !== 'idle') return new Error('What was said before is still being read. Try again in a moment.');
      await sendMessage({ text });
      const failed = chat.error;
      if (!failed || chat.messages.at(-1)?.role !== 'user') return undefined;
      // nothing was begun: what was typed goes back to where it was typed
      clearError();
      setMessages(all => all.slice(0, -1));
      return failed;
    },
    [chat, link, sendMessage, clearError, setMessages],
  );
  const readAll = useCallback(() => void readAgain(), [readAgain]);
  return { rows, link, error, isSpeaking: isBusy, send, readOn, readAgain: readAll };
}

/** Rows of the messages. While all is read again the reader keeps what was there, until there is as much again. */
function useRows(messages: readonly UIMessage[], isOpening: boolean): readonly Row[] {
  const maker = useRef(new Rows()).current;
  const shown = useRef<readonly Row[]>([]);
  const rows = useMemo(() => maker.of(messages), [maker, messages]);
  const isShrinking = rows.length < shown.current.length && isOpening;
  if (!isShrinking) shown.current = rows;
  return shown.current;
}
