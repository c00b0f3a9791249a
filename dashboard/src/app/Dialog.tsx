import { type ReactNode, useEffect, useRef } from 'react';

/** The browser's own modal dialog: it keeps the focus and closes by Escape. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} className="dialog" aria-label={title} onClose={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

/** Asks before something that cannot be undone. */
export function Confirm(props: { title: string; text: string; verb: string; onConfirm: () => void; onClose: () => void }) {
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <p>{props.text}</p>
      <div className="row end">
        <button type="button" onClick={props.onClose}>
          Keep it
        </button>
        <button
          type="button"
          className="danger"
          onClick={() => {
            props.onConfirm();
            props.onClose();
          }}
        >
          {props.verb}
        </button>
      </div>
    </Dialog>
  );
}
