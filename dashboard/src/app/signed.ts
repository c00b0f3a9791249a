import { createContext, useContext } from 'react';
import type { Client } from '../api/client';

export const SignedIn = createContext<Client | null>(null);

/** The service as the person who is signed in sees it. */
export function useClient(): Client {
  const client = useContext(SignedIn);
  if (!client) throw new Error('nobody is signed in');
  return client;
}
