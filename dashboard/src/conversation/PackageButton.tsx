import { useState } from 'react';
import type { Client } from '../api/client';
import { Problem, sentence } from '../api/problem';
import { useTell } from '../app/notices';
import { useClient } from '../app/signed';

/** Asks for a replay package and downloads it; a refusal is told as what it is. */
export function PackageButton({ kind, id }: { kind: Parameters<Client['package']>[0]; id: string }) {
  const client = useClient();
  const tell = useTell();
  const [busy, setBusy] = useState(false);
  const download = async () => {
    setBusy(true);
    try {
      const { url, packageId } = await client.package(kind, id);
      save(url, `${packageId}.json`);
      tell.say(`The package ${packageId} is being downloaded. Its link is good for a few minutes.`);
    } catch (error) {
      tell.fail(new Error(refusal(error)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" onClick={download} disabled={busy}>
      {busy ? 'Building the package…' : 'Download replay package'}
    </button>
  );
}

/** Lets the browser fetch what a signed link leads to, wherever that is. */
export function save(url: string, name: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.rel = 'noopener noreferrer';
  link.click();
}

function refusal(error: unknown): string {
  if (!(error instanceof Problem)) return sentence(error);
  if (error.status === 403) return 'You may not download packages of this workspace. No package was built.';
  if (error.code === 'gate_refused') {
    const ids = Array.isArray(error.more.patternIds) ? ` (${error.more.patternIds.join(', ')})` : '';
    return `The package was refused: after redaction its bytes still looked as if they held a secret${ids}. Nothing was stored and there is no link.`;
  }
  if (error.code === 'not_configured') return 'This deployment makes no replay packages.';
  if (error.status === 404) return 'There is nothing here to make a package of.';
  return `No package was built. ${error.message}`;
}
