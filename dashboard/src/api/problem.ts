/** A refusal of the service, as RFC 9457 tells it. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail?: string,
    readonly retryAfter?: number,
    /** What else the refusal tells. */
    readonly more: Record<string, unknown> = {},
  ) {
    super(detail ? `${title}: ${detail}` : title);
  }

  static async of(response: Response): Promise<Problem> {
    const body: unknown = await response.json().catch(() => null);
    const told = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
    const text = (name: string) => (typeof told[name] === 'string' ? (told[name] as string) : undefined);
    const after = Number(response.headers.get('retry-after') ?? Number.NaN);
    return new Problem(
      response.status,
      text('code') ?? `http_${response.status}`,
      text('title') ?? `The service answered ${response.status}`,
      text('detail'),
      Number.isFinite(after) ? after : undefined,
      told,
    );
  }
}

/** What a person is told of a failure, whatever it is. */
export function sentence(error: unknown): string {
  if (error instanceof Problem) {
    if (error.status === 401) return 'Your token is no longer accepted. Sign in again.';
    if (error.status === 403) return `Your token does not allow this. ${error.detail ?? ''}`.trim();
    return error.message;
  }
  if (error instanceof DOMException && error.name === 'TimeoutError') return 'The service took too long to answer.';
  if (error instanceof TypeError) return 'The service cannot be reached.';
  return error instanceof Error ? error.message : String(error);
}
