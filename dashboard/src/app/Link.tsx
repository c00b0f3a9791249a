import type { ComponentProps, MouseEvent } from 'react';
import { go, href } from './router';

/** A link within the page; anything but a plain click is the browser's. */
export function Link({ to, ...rest }: { to: string } & Omit<ComponentProps<'a'>, 'href'>) {
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return <a {...rest} href={href(to)} onClick={follow} />;
}
