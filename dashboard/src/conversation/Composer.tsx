import { type FormEvent, type KeyboardEvent, useEffect, useRef, useState } from 'react';
import { Problem, sentence } from '../api/problem';
import { useDraft } from './drafts';

interface Props {
  session: string;
  /** Why nothing can be said now, if so. */
  refusal: string | undefined;
  isSpeaking: boolean;
  onSend: (text: string) => Promise<Error | undefined>;
  onStop: (() => void) | undefined;
}

const TALLEST_PX = 240;

/** Where a person steers. What could not be sent stays typed. */
export function Composer({ session, refusal, isSpeaking, onSend, onStop }: Props) {
  const [text, setText] = useDraft(session);
  const [error, setError] = useState<string>();
  const area = useRef<HTMLTextAreaElement>(null);
  const canSend = text.trim() !== '' && !isSpeaking && !refusal;
  useEffect(() => {
    const box = area.current;
    if (!box) return;
    box.style.height = 'auto';
    box.style.height = `${Math.min(box.scrollHeight, TALLEST_PX)}px`;
  }, [text, isSpeaking]);

  const send = async () => {
    if (!canSend) return;
    const typed = text;
    setText('');
    setError(undefined);
    const failed = await onSend(typed);
    if (!failed) return;
    setText(now => now || typed);
    setError(told(failed));
    area.current?.focus();
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void send();
  };
  const key = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <form className="composer" onSubmit={submit}>
      <p className="error" role="alert">
        {error}
      </p>
      {refusal ? (
        <p className="dim composer-refusal">{refusal}</p>
      ) : (
        <div className="composer-row">
          <textarea
            ref={area}
            aria-label="Say something to the agent"
            placeholder={isSpeaking ? 'The agent is at work; you may write what comes next' : 'Say what comes next'}
            rows={1}
            value={text}
            onChange={event => setText(event.target.value)}
            onKeyDown={key}
          />
          {isSpeaking && onStop ? (
            <button type="button" onClick={onStop}>
              Stop
            </button>
          ) : (
            <button type="submit" className="primary" disabled={!canSend}>
              Send
            </button>
          )}
        </div>
      )}
    </form>
  );
}

function told(error: Error): string {
  if (error instanceof Problem) {
    if (error.code === 'turn_in_flight') return 'The agent is still at work on the turn before. Try again when it is done, or stop it.';
    if (error.code === 'session_full') return 'This session is full: it takes no further turn.';
    if (error.code === 'not_steerable') return 'This session takes no turns from people.';
    if (error.code === 'archived') return 'This session is archived. Bring it back first.';
  }
  return sentence(error);
}
