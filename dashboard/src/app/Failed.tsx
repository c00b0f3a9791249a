import { sentence } from '../api/problem';

/** Why a list does not go on, and the means to try again. */
export function Failed({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  if (error === undefined) return null;
  return (
    <p className="error" role="alert">
      {sentence(error)}{' '}
      <button type="button" onClick={onRetry}>
        Try again
      </button>
    </p>
  );
}
