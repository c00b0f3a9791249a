import { useEffect, useState } from 'react';

type Theme = 'dark' | 'light';

const wanted = (): Theme => (window.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

/** The system's theme until a person turns it. */
export function useTheme(): [Theme, () => void] {
  const [system, setSystem] = useState(wanted);
  const [own, setOwn] = useState<Theme | undefined>(() => document.documentElement.dataset.theme as Theme | undefined);
  useEffect(() => {
    const query = window.matchMedia('(prefers-color-scheme: dark)');
    const changed = () => setSystem(wanted());
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  const theme = own ?? system;
  const turn = () => {
    const next = theme === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    setOwn(next);
  };
  return [theme, turn];
}
