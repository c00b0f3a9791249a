import { useState } from 'react';
import type { Client } from '../api/client';
import { forgetDrafts } from '../conversation/drafts';
import { ConversationPage } from '../conversation/ConversationPage';
import { ExecutionPage } from '../executions/ExecutionPage';
import { ExecutionsPage } from '../executions/ExecutionsPage';
import { SessionsPage } from '../list/SessionsPage';
import { RemotePage } from '../remote/RemotePage';
import { isRemote } from '../api/client';
import { Frame } from './Frame';
import { Guard } from './Guard';
import { Notices } from './notices';
import { type Place, usePlace } from './router';
import { SignIn } from './SignIn';
import { SignedIn } from './signed';

export function App() {
  const [client, setClient] = useState<Client | null>(null);
  const [hasExpired, setExpired] = useState(false);
  const place = usePlace();
  const signIn = (signed: Client) => {
    // the place stays: who signs in again goes on where they were
    signed.onExpired = () => {
      setExpired(true);
      setClient(now => (now === signed ? null : now));
    };
    setExpired(false);
    setClient(signed);
  };
  const signOut = () => {
    forgetDrafts();
    setClient(null);
  };
  if (!client) return <SignIn hasExpired={hasExpired} onSignedIn={signIn} />;
  return (
    <SignedIn value={client}>
      <Notices>
        <Frame place={place} onSignOut={signOut}>
          <Guard key={'id' in place ? place.id : place.page} instead={<Broken />}>
            <Shown place={place} />
          </Guard>
        </Frame>
      </Notices>
    </SignedIn>
  );
}

/** What is around it goes on: another place can be gone to. */
function Broken() {
  return (
    <main className="page" id="content" tabIndex={-1}>
      <h1>This page cannot be shown</h1>
      <p role="alert">Nothing is lost: load it again, or go elsewhere.</p>
    </main>
  );
}

function Shown({ place }: { place: Place }) {
  switch (place.page) {
    case 'sessions':
      return <SessionsPage />;
    case 'session':
      return isRemote(place.id) ? <RemotePage key={place.id} id={place.id} /> : <ConversationPage key={place.id} id={place.id} />;
    case 'executions':
      return <ExecutionsPage />;
    case 'execution':
      return <ExecutionPage key={place.id} id={place.id} />;
    case 'nowhere':
      return (
        <main className="page" id="content" tabIndex={-1}>
          <h1>Nothing here</h1>
          <p>This address leads nowhere.</p>
        </main>
      );
  }
}
