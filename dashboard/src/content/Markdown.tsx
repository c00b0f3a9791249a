import { lexer, type Token, type Tokens } from 'marked';
import { memo, type ReactNode } from 'react';
import { isReadable } from './bounds';
import { Copy } from './Copy';

/** Headings of a text stand below those of the page. */
const HEADINGS = ['h3', 'h4', 'h5', 'h6', 'h6', 'h6'] as const;

/** Markdown as elements, never as HTML: what an agent says can be ugly and nothing worse. Images are named and not fetched. What
 * would take long to read as Markdown is shown as it was written. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  return <div className="md">{isReadable(text) ? blocks(lexer(text, { gfm: true, breaks: true })) : <div className="as-written">{text}</div>}</div>;
});

const blocks = (tokens: readonly Token[]): ReactNode => tokens.map((token, key) => <BlockOf key={key} token={token as Tokens.Generic} />);

function BlockOf({ token }: { token: Tokens.Generic }): ReactNode {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading': {
      const Heading = HEADINGS[token.depth - 1] ?? 'h6';
      return <Heading>{inline(token.tokens)}</Heading>;
    }
    case 'paragraph':
      return <p>{inline(token.tokens)}</p>;
    case 'text':
      return token.tokens ? <>{inline(token.tokens)}</> : <>{token.text}</>;
    case 'code':
      return <Code text={token.text} lang={token.lang} />;
    case 'blockquote':
      return <blockquote>{blocks(token.tokens ?? [])}</blockquote>;
    case 'hr':
      return <hr />;
    case 'list':
      return <ListOf token={token as Tokens.List} />;
    case 'table':
      return <TableOf token={token as Tokens.Table} />;
    default:
      // HTML and whatever else is shown as it was written
      return <p>{token.raw}</p>;
  }
}

function ListOf({ token }: { token: Tokens.List }) {
  const items = token.items.map((item, key) => (
    <li key={key} className={item.task ? 'task' : undefined}>
      {item.task && <input type="checkbox" checked={item.checked === true} readOnly disabled aria-label={item.checked ? 'done' : 'not done'} />}
      {blocks(item.tokens.filter(inner => inner.type !== 'checkbox'))}
    </li>
  ));
  return token.ordered ? <ol start={token.start === '' ? 1 : token.start}>{items}</ol> : <ul>{items}</ul>;
}

function TableOf({ token }: { token: Tokens.Table }) {
  return (
    <div className="wide-table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {token.header.map((cell, key) => (
              <th key={key} scope="col">
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, key) => (
            <tr key={key}>
              {row.map((cell, column) => (
                <td key={column}>{inline(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Code({ text, lang }: { text: string; lang?: string | undefined }) {
  return (
    <div className="code">
      <div className="code-top">
        <span className="dim">{lang || 'text'}</span>
        <Copy text={text} what="code" />
      </div>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  );
}

const inline = (tokens: readonly Token[] | undefined): ReactNode => tokens?.map((token, key) => <InlineOf key={key} token={token as Tokens.Generic} />);

function InlineOf({ token }: { token: Tokens.Generic }): ReactNode {
  switch (token.type) {
    case 'strong':
      return <strong>{inline(token.tokens)}</strong>;
    case 'em':
      return <em>{inline(token.tokens)}</em>;
    case 'del':
      return <del>{inline(token.tokens)}</del>;
    case 'codespan':
      return <code>{token.text}</code>;
    case 'br':
      return <br />;
    case 'link':
      return <Outside href={token.href}>{inline(token.tokens)}</Outside>;
    case 'image':
      return <Outside href={token.href}>{`[image: ${token.text || token.href}]`}</Outside>;
    case 'escape':
      return <>{token.text}</>;
    case 'text':
      return token.tokens ? <>{inline(token.tokens)}</> : <>{plain(token.text)}</>;
    default:
      return <>{token.raw}</>;
  }
}

/** The library escapes some characters for HTML, which is not written here. */
const plain = (text: string): string =>
  text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => ({ amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" })[name] ?? '');

/** A link to elsewhere, for the schemes that lead to pages and mail. */
export function Outside({ href, children }: { href: string; children: ReactNode }) {
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return <span title={href}>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}
