export function RemotePage({ id }: { id: string }) {
  return (
    <main className="page" id="content" tabIndex={-1}>
      <h1>{id}</h1>
    </main>
  );
}
