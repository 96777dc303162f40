#!/usr/bin/env python3
"""Reports a training run to ASAP Web: step times, log, failure, peak memory and profile of one arm of a launch.

One file, Python 3.8 or later, nothing but the standard library.  The bundle of a launch sets what it reads:
ASAP_URL, ASAP_TOKEN (or ASAP_TOKEN_FILE), ASAP_LAUNCH, ASAP_ARM, ASAP_REPEAT; `run` ends its command after
ASAP_TIME_LIMIT_MIN minutes where that is set.

    asap_report.py run --profile DIR -- bash maxtext.sh     runs a command and reports how it went
    asap_report.py send --step-times times.json --log LOG --profile FILE [--failure TEXT]
    asap_report.py flush                                    sends what could not be sent before

Safe to repeat: files are known by their content and go on where they broke off; the same report changes nothing.  Where
the server is away everything waits in ASAP_SPOOL (default ~/.cache/asap-report).  `run` ends with the exit status of
its command, whatever became of the report; `send` and `flush` end with 3 where something waits, 2 where it is refused.

Step times are read from what MaxText, Megatron-LM, NeMo and `asap trial --json` print, and from lines of your own:
`asap_step_time_s=1.234`.
"""

import argparse
import contextlib
import glob
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

PIECE_BYTES = 4 * 1024 * 1024
#: Of a log: what is sent of the beginning and of the end where it is longer.
HEAD_BYTES, TAIL_BYTES = 5_000_000, 45_000_000
#: From SIGTERM at the time limit to SIGKILL, seconds.
GRACE_S = 30
PROFILE = re.compile(r"\.xplane\.pb(\.gz)?$|\.pt\.trace\.json(\.gz)?$|rank-\d+\.json(\.gz)?$|\.sqlite$")
RANK = ("ASAP_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK", "RANK", "TPU_WORKER_ID")
RANKS = ("ASAP_HOSTS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")
#: Seconds per step, as printed once a step: pattern and what its number is multiplied with.
STEP_TIMES = (
    (re.compile(r"completed step: \d+, seconds: ([0-9.]+)"), 1.0),  # MaxText, metric_logger.py
    (re.compile(r"elapsed time per iteration \(ms\): ([0-9.]+)"), 1e-3),  # Megatron-LM, training.py
    (re.compile(r"train_step_timing in s: ([0-9.]+)"), 1.0),  # NeMo
    (re.compile(r"\basap_step_time_s=([0-9.eE+-]+)"), 1.0),
)
PEAK_MB = re.compile(r"\bmax allocated: ([0-9.]+)")  # Megatron-LM, MiB of torch.cuda.max_memory_allocated


class Refused(Exception):
    """The server does not take it, now or ever; the text is its sentence."""


class ServerUnreachable(Exception):
    """The server could not be reached for so long."""


class Server:
    """The report endpoints of one run."""

    def __init__(self, url, token, launch, arm, repeat, patience_s):
        if not re.match(r"https?://", url):
            raise Refused(f"ASAP_URL must begin with http:// or https://, not {url[:60]!r}.")
        self.base = "{}/api/launches/{}/runs/{}/{}".format(url.rstrip("/"), launch, arm, repeat)
        self.token = token
        self.patience_s = patience_s

    def call(self, method, path, body=b"", headers=None, retry_conflict=False):
        """The answer as (status, JSON); tries again while the server is away.  Raises Refused or ServerUnreachable."""
        began, wait_s = time.monotonic(), 0.5
        while True:
            after_s, said = None, ""
            request = urllib.request.Request(self.base + path, data=body, method=method)
            request.add_header("Authorization", "Token " + self.token)
            request.add_header("Accept", "application/json")
            for name, value in (headers or {"Content-Type": "application/json"}).items():
                request.add_header(name, value)
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return answer.status, _json(answer.read())
            except urllib.error.HTTPError as error:
                refused = _json(error.read())
                said = refused.get("detail") or f"status {error.code}"
                if error.code == 409 and retry_conflict:
                    return 409, refused
                if error.code not in (408, 425, 429, 500, 502, 503, 504, 507):
                    raise Refused(said) from None
                after_s = _seconds(error.headers.get("Retry-After"))
            except (urllib.error.URLError, OSError, ValueError) as error:
                said = str(getattr(error, "reason", error))
            wait_s = min(60.0, wait_s * 2)
            pause_s = after_s if after_s is not None else wait_s * random.uniform(0.5, 1.0)
            if time.monotonic() - began + pause_s > self.patience_s:
                raise ServerUnreachable(said)
            time.sleep(pause_s)

    def send_file(self, item):
        """Send what the server lacks of a file."""
        about = {key: item[key] for key in ("kind", "name", "size_bytes", "sha256")}
        _, state = self.call("POST", "/files/", json.dumps(about).encode())
        with open(item["path"], "rb") as file:
            while not state.get("complete"):
                offset = int(state["received_bytes"])
                file.seek(offset)
                piece = file.read(PIECE_BYTES)
                if not piece:
                    raise Refused("{} changed while it was being sent.".format(item["name"]))
                headers = {"Content-Type": "application/octet-stream", "Upload-Offset": str(offset)}
                _, state = self.call("PATCH", "/files/{}/".format(item["sha256"]), piece, headers, retry_conflict=True)
                if "received_bytes" not in state:
                    raise Refused(state.get("detail", "The server accepts no more."))

    def report(self, body):
        return self.call("PUT", "/report/", json.dumps(body).encode())[1]


class Spool:
    """What has not been sent: a folder per run and rank with `report.json` and the files beside it.  No token."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, run, body, logs, profiles):
        place = os.path.join(self.folder, "{launch}-{arm}-{repeat}-".format(**run) + str(body["rank"]))
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place, mode=0o700)
        given = [("log", path) for path in logs] + [("profile", path) for path in profiles]
        files = [_keep(place, index, kind, path) for index, (kind, path) in enumerate(given)]
        body = dict(body, files=sorted({item["sha256"] for item in files}))
        _write(os.path.join(place, "report.json"), json.dumps({"run": run, "body": body, "files": files}))
        return place

    def entries(self):
        return sorted(os.path.dirname(path) for path in glob.glob(os.path.join(self.folder, "*", "report.json")))


def deliver(place, url, token, patience_s):
    """Send one entry of the spool and remove it.  Raises Refused or ServerUnreachable; it then stays."""
    with open(os.path.join(place, "report.json")) as file:
        entry = json.load(file)
    run = entry["run"]
    server = Server(url, token, run["launch"], run["arm"], run["repeat"], patience_s)
    for item in entry["files"]:
        server.send_file(item)
    server.report(entry["body"])
    shutil.rmtree(place, ignore_errors=True)


def run_command(command, log_path, limit_s=None):
    """Run it for at most so long, copy what it prints to our output and to the log.

    Returns exit status and failure, None where none.
    """
    signals = []
    with open(log_path, "wb") as log:
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            said = f"{command[0]} cannot be started: {error.strerror or error}."
            log.write((said + "\n").encode())
            return 127, said

        def pass_on(number, _frame):
            signals.append(number)
            _signal(child, signal.SIGTERM if number != signal.SIGINT else signal.SIGINT)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, pass_on)
        reader = threading.Thread(target=_copy, args=(child.stdout, log))
        reader.start()
        code, in_time = _wait(child, limit_s)
        reader.join(timeout=30)
        if not in_time:
            said = f"Terminated at its time limit of {limit_s / 60:g} min."
            log.write(f"\n{said}\n".encode())
            _say(said, 0)
            return code if code > 0 else 124, said
    if signals:
        name = signal.Signals(signals[0]).name
        return code, f"Terminated by {name}: time limit, preemption or cancellation."
    if code < 0:
        return 128 - code, f"Terminated by {signal.Signals(-code).name}."
    return code, f"Exit status {code}." if code else None


def _wait(child, limit_s):
    """Exit status of a process, and whether it ended by itself within so long."""
    try:
        return child.wait(limit_s), True
    except subprocess.TimeoutExpired:
        _signal(child, signal.SIGTERM)
    try:
        code = child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        code = None
    _signal(child, signal.SIGKILL)  # also what a program that ended has left behind
    return child.wait() if code is None else code, False


def _signal(child, number):
    """Send a signal to a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def read_log(path):
    """Step times (s), peak memory (bytes), failure, profiles and warm-up steps that the lines of a log state."""
    times, peak, failure, profiles, warm_up = [], None, None, [], None
    with open(path, "rb") as file:
        for raw in file:
            line = raw[:100_000_000].decode("utf-8", "replace")
            if line.startswith("{") and '"step_times_s"' in line:
                report = _json(line)
                times = [float(value) for value in report.get("step_times_s") or []] or times
                peak = report.get("peak_memory_bytes") or peak
                failure = report.get("failure") or failure
                warm_up = report.get("warm_up")
                profiles += [report["profile"]] if isinstance(report.get("profile"), str) else []
                continue
            for pattern, factor in STEP_TIMES:
                match = pattern.search(line)
                if match:
                    times.append(float(match.group(1)) * factor)
                    break
            match = PEAK_MB.search(line)
            if match:
                peak = max(peak or 0, int(float(match.group(1)) * 2**20))
    return [value for value in times if value > 0], peak, failure, profiles, warm_up


def find_profiles(places, since=0.0):
    """Profile files in folders or given by name, written since then."""
    paths = []
    for place in places:
        inside = glob.glob(os.path.join(place, "**", "*"), recursive=True) if os.path.isdir(place) else [place]
        for path in sorted(inside):
            if PROFILE.search(path) and os.path.isfile(path) and os.path.getmtime(path) >= since - 1:
                paths.append(path)
    return paths


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="asap_report.py", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--patience",
        type=float,
        default=float(os.environ.get("ASAP_PATIENCE_S", "600")),
        metavar="S",
        help="seconds to keep retrying while the server is unreachable (default 600)",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a command and report how it went")
    run.add_argument("rest", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    send = commands.add_parser("send", help="report a run that has ended")
    send.add_argument("--step-times", metavar="FILE", help="JSON list of seconds, - for standard input")
    send.add_argument("--failure", help="why it did not finish, a sentence")
    send.add_argument("--peak-memory-bytes", type=int)
    commands.add_parser("flush", help="send what could not be sent before")
    for sub in (run, send):
        sub.add_argument("--profile", action="append", default=[], metavar="PATH", help="file or folder; repeatable")
        sub.add_argument("--warm-up", type=int, metavar="N", help="steps at the beginning that do not count")
        sub.add_argument("--log", action="append", default=[], metavar="FILE", help="repeatable")
    given = parser.parse_args(arguments)
    try:
        return {"run": _run, "send": _send, "flush": _flush}[given.command](given)
    except Refused as error:
        return _say(f"Not reported: {error}", 2)
    except OSError as error:
        return _say(f"Not reported: {error.filename or ''} {error.strerror or error}.", 2)


def _run(given):
    command = given.rest[1:] if given.rest[:1] == ["--"] else given.rest
    if not command:
        raise Refused("give the command to run after --.")
    spool, began = Spool(_spool()), time.time()
    os.makedirs(spool.folder, mode=0o700, exist_ok=True)
    rank, ranks = _number(RANK, 0), _number(RANKS, 1)
    log = os.path.join(spool.folder, f"output-{os.getpid()}-{rank}.log")
    limit_min = float(os.environ.get("ASAP_TIME_LIMIT_MIN") or 0)
    code, failure = run_command(command, log, 60 * limit_min or None)
    try:
        times, peak, said, profiles, first = read_log(log)
        first = given.warm_up if given.warm_up is not None else first
        body = _body(rank, max(ranks, rank + 1), times, first, peak, (said or failure) if code else said)
        place = spool.add(_where(), body, [log, *given.log], find_profiles([*given.profile, *profiles], began))
        _deliver_all(spool, given.patience, [place])
    except (Refused, OSError, ValueError) as error:
        _say(f"Not reported: {error}", 2)
    finally:
        os.unlink(log)
    return code


def _send(given):
    times, peak, failure = [], given.peak_memory_bytes, given.failure
    if given.step_times:
        text = sys.stdin.read() if given.step_times == "-" else _read(given.step_times)
        times = _json(text, list)
        if not all(isinstance(value, (int, float)) and value > 0 for value in times) or not times:
            raise Refused(f"{given.step_times} does not contain a list of seconds.")
    for path in given.log:
        if not times:
            times, peak_in_log, said, _, first = read_log(path)
            given.warm_up = first if given.warm_up is None else given.warm_up
            peak, failure = peak or peak_in_log, failure or said
    rank, ranks = _number(RANK, 0), _number(RANKS, 1)
    body = _body(rank, max(ranks, rank + 1), times, given.warm_up, peak, failure)
    spool = Spool(_spool())
    return _deliver_all(spool, given.patience, [spool.add(_where(), body, given.log, find_profiles(given.profile))])


def _flush(given):
    spool = Spool(_spool())
    return _deliver_all(spool, given.patience, spool.entries())


def _deliver_all(spool, patience_s, places):
    url, token, code = _needed("ASAP_URL"), _token(), 0
    for place in places:
        try:
            deliver(place, url, token, patience_s)
            _say(f"Reported {os.path.basename(place)} to {url}.", 0)
        except ServerUnreachable as error:
            code = _say(
                f"The server is unreachable ({error}); the report is in {place}. Send it with asap_report.py flush.",
                3,
            )
        except Refused as error:
            code = _say(f"Not reported: {error} It is kept in {place}.", 2)
    return code


def _body(rank, ranks, times, warm_up, peak, failure):
    if warm_up is not None:
        warm_up = max(0, min(warm_up, len(times)))
    return {
        "rank": rank,
        "ranks": ranks,
        "step_times_s": times,
        "warm_up": warm_up,
        "peak_memory_bytes": peak,
        "failure": failure,
        "host": socket.gethostname()[:100],
    }


def _keep(place, index, kind, path):
    """A copy in the spool with what the server wants to know of it: a pod's disk goes with the pod."""
    name = os.path.basename(path)
    target = os.path.join(place, f"{index:04d}")
    with open(path, "rb") as source, open(target, "wb") as copy:
        if kind == "profile" and name.endswith((".xplane.pb", ".json")):
            name += ".gz"  # the same content gives the same bytes: no name and no time in it
            with gzip.GzipFile(filename="", mode="wb", fileobj=copy, compresslevel=6, mtime=0) as packed:
                shutil.copyfileobj(source, packed, 1 << 20)
        elif kind == "log" and os.path.getsize(path) > HEAD_BYTES + TAIL_BYTES:
            copy.write(source.read(HEAD_BYTES))
            copy.write(b"\n[the middle of this log was not sent]\n")
            source.seek(-TAIL_BYTES, os.SEEK_END)
            shutil.copyfileobj(source, copy, 1 << 20)
        else:
            shutil.copyfileobj(source, copy, 1 << 20)
    digest = hashlib.sha256()
    with open(target, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    size = os.path.getsize(target)
    return {"kind": kind, "name": name, "path": target, "size_bytes": size, "sha256": digest.hexdigest()}


def _copy(source, log):
    for line in iter(lambda: source.readline(1 << 20), b""):
        log.write(line)
        log.flush()
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def _where():
    return {"launch": _needed("ASAP_LAUNCH"), "arm": _needed("ASAP_ARM"), "repeat": _needed("ASAP_REPEAT")}


def _needed(name):
    value = os.environ.get(name, "").strip()
    if not value:
        raise Refused(f"{name} is not set; the launch bundle sets it.")
    return value


def _token():
    path = os.environ.get("ASAP_TOKEN_FILE")
    return _read(path).strip() if path and not os.environ.get("ASAP_TOKEN") else _needed("ASAP_TOKEN")


def _number(names, default):
    for name in names:
        if re.fullmatch("[0-9]+", os.environ.get(name, "")):
            return int(os.environ[name])
    return default


def _spool():
    return os.environ.get("ASAP_SPOOL") or os.path.join(os.path.expanduser("~"), ".cache", "asap-report")


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.") from None


def _write(path, text):
    """All of it or nothing: a report that is there is whole."""
    with open(path + ".new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def _json(text, kind=dict):
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, kind) else kind()


def _seconds(text):
    return float(text) if text and re.fullmatch("[0-9]+", text) else None


def _say(text, code):
    sys.stderr.write(text + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
