import { type FormEvent, useState } from 'react';
import { sentence } from '../api/problem';
import { Dialog } from '../app/Dialog';
import { go } from '../app/router';
import { useClient } from '../app/signed';

export function NewSession({ onClose }: { onClose: () => void }) {
  const client = useClient();
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      const asked = request(new FormData(event.currentTarget), client.workspace);
      const { id } = await client.create(asked, client.creating.keyOf(asked));
      client.creating.answered();
      go(`sessions/${id}`);
    } catch (failure) {
      setError(sentence(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog title="New session" onClose={onClose}>
      <form onSubmit={submit} className="stack">
        <label>
          What should the agent do?
          <textarea name="prompt" required rows={4} autoFocus />
        </label>
        <label>
          Title <span className="dim">(optional)</span>
          <input name="title" maxLength={512} />
        </label>
        <div className="fields">
          <label>
            Agent profile
            <input name="profile" required defaultValue="demo" spellCheck={false} autoCapitalize="off" />
          </label>
          <label>
            Model <span className="dim">(optional)</span>
            <input name="model" spellCheck={false} autoCapitalize="off" />
          </label>
          <label>
            Repository <span className="dim">(optional)</span>
            <input name="repo" spellCheck={false} autoCapitalize="off" />
          </label>
          <label>
            Branch <span className="dim">(optional)</span>
            <input name="branch" spellCheck={false} autoCapitalize="off" />
          </label>
          <label>
            Workflow <span className="dim">(makes it autonomous)</span>
            <input name="workflowId" spellCheck={false} autoCapitalize="off" />
          </label>
          <label>
            Workspace
            <input name="workspaceId" required defaultValue={client.workspace ?? ''} spellCheck={false} autoCapitalize="off" />
          </label>
        </div>
        <p className="error" role="alert">
          {error}
        </p>
        <div className="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="primary" disabled={busy}>
            Create
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function request(fields: FormData, workspace: string | undefined) {
  const text = (name: string) => String(fields.get(name) ?? '').trim() || undefined;
  const workflowId = text('workflowId');
  return {
    workspaceId: text('workspaceId') ?? workspace,
    kind: workflowId ? 'autonomous' : 'interactive',
    workflowId,
    title: text('title') ?? firstLine(text('prompt')),
    repo: text('repo'),
    branch: text('branch'),
    agent: { profile: text('profile'), model: text('model') },
    prompt: String(fields.get('prompt')),
  };
}

/** A session without a title is hard to find again. */
const firstLine = (prompt = ''): string => prompt.split('\n', 1)[0]?.slice(0, 80) ?? '';
