import { type FormEvent, useState } from 'react';
import { Client } from '../api/client';
import { Problem, sentence } from '../api/problem';

/** The token is typed in, or filled in by the browser's own keeper of passwords; it is held in memory only. */
export function SignIn({ hasExpired, onSignedIn }: { hasExpired: boolean; onSignedIn: (client: Client) => void }) {
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const text = (name: string) => String(fields.get(name) ?? '').trim();
    const client = new Client(text('token'), text('workspace') || undefined);
    setBusy(true);
    setError(undefined);
    try {
      const { items } = await client.agentSessions({ limit: 1 });
      // a token of one workspace need not name it
      onSignedIn(new Client(text('token'), client.workspace ?? items[0]?.workspaceId));
    } catch (failure) {
      setError(refused(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="sign-in">
      <form onSubmit={submit}>
        <h1>Sessions</h1>
        <p className="dim">Sign in with an access token of this service. It is kept in this tab’s memory and nowhere else.</p>
        {hasExpired && <p className="banner warn">Your token is no longer accepted. Sign in again to go on where you were.</p>}
        <label>
          Token
          <input name="token" type="password" autoComplete="current-password" required autoFocus spellCheck={false} />
        </label>
        <label>
          Workspace <span className="dim">(if your token has several)</span>
          <input name="workspace" autoComplete="username" autoCapitalize="off" spellCheck={false} />
        </label>
        <p className="error" role="alert">
          {error}
        </p>
        <button type="submit" className="primary" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}

function refused(failure: unknown): string {
  if (failure instanceof Problem) {
    if (failure.status === 401) return 'This token is not accepted.';
    if (failure.status === 404) return 'This token has no such workspace.';
    if (failure.status === 400) return 'This token has several workspaces: name one.';
  }
  return sentence(failure);
}
