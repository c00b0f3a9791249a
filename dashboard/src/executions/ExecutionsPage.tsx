export function ExecutionsPage() {
  return (
    <main className="page" id="content" tabIndex={-1}>
      <h1>Executions</h1>
    </main>
  );
}
