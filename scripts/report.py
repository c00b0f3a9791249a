#!/usr/bin/env python3
"""Reports a growing file to a remote session: one line, one event. Killed, it goes on where it was when it is started again.

  CMD > out.log 2>&1 &  BEX_MACHINE_TOKEN=... report.py --url https://api --session rms-... --follow-pid $! out.log
"""
import argparse, http.client, itertools, json, os, time, urllib.error, urllib.request

def call(args, verb, body):
    """Asks until there is an answer; what does not become better ends the script."""
    for attempt in itertools.count():
        url, pause = f"{args.url.rstrip('/')}/v1/remote-sessions/{args.session}/{verb}", min(30, 0.2 * 2 ** min(attempt, 8))
        headers = {"Content-Type": "application/x-ndjson", "Authorization": " ".join(("Bearer", os.environ["BEX_MACHINE_TOKEN"]))}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            if error.code in (400, 401, 404, 409, 413) and '"code"' in said:  # the service itself, not a proxy before it
                raise SystemExit(f"report.py: {error.code} {said}")
            pause = max(pause, float(error.headers.get("Retry-After") or 0))
        except (OSError, ValueError, http.client.HTTPException):
            pass
        time.sleep(pause)

def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False

def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--url", "--session", "--follow-pid", "file"):
        options.add_argument(flag, **({"required": True} if flag.startswith("--") else {}))
    args = options.parse_args()
    number, wanted, batch, ended = 0, call(args, "output", "")["nextEventIndex"], [], False
    with open(args.file, "rb") as file:
        while batch or not ended or file.tell() < os.fstat(file.fileno()).st_size:
            line = file.readline()
            if line.endswith(b"\n") or (line and ended):  # at most 1 MiB of it, and what the service's text can hold
                data = line.decode(errors="replace").replace("\0", "\ufffd").encode()[:1 << 20].decode(errors="ignore")
                if number >= wanted:
                    batch.append(json.dumps({"eventIndex": number, "stream": "stdout", "data": data}))
                number += 1
                if len(batch) < 200 and (not batch or len(batch[-1]) < 1 << 13):
                    continue
            file.seek(file.tell() - (0 if line.endswith(b"\n") or ended else len(line)))  # half a line is read again
            if batch:
                call(args, "output", "\n".join(batch))
                batch = []
            elif not ended:
                ended = not lives(args.follow_pid)
                time.sleep(0 if ended else 0.05)
    call(args, "output", json.dumps({"eventIndex": number, "stream": "stdout", "data": "", "isComplete": True}))
    call(args, "status", json.dumps({"state": "completed", "events": number + 1}))

main()
