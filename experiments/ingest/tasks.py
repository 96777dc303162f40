"""What the sandboxed process does with an upload: read it into a StepProfile."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.ingest import read_json, read_xprof
from experiments.ingest.archives import Contents, Found, unpack
from experiments.ingest.convert import convert, session_file
from experiments.ingest.cpu import regroup
from experiments.ingest.errors import COPY_AGAIN, IngestError, refuse_twice
from experiments.ingest.gpu.device import TraceFile
from experiments.ingest.gpu.profile import profile as profile_of_traces
from experiments.ingest.kernel_ops import Kernels
from experiments.ingest.kineto import read as kineto
from experiments.ingest.limits import Limits, Progress
from experiments.ingest.marks import Annotations
from experiments.ingest.memory_tables import allocator_curve, heap_schedule, peak_memory, worst
from experiments.ingest.nsight import read as nsight
from experiments.ingest.planes import ImpossibleTime, base_ns, core_planes, device_memory, op_lines
from experiments.ingest.steps import CLOCKS_NS, earlier_runs, latest_run
from experiments.ingest.timeline import CoreTimeline, read_core
from experiments.ingest.trace_events import add_host
from experiments.ingest.validate import host_name, is_cpu_recording, load, span_ns
from experiments.step_profile import STEP_PROFILE, Memory, Note, SourceFile, StepProfile
from experiments.trace import TraceBuilder
from experiments.trace.layout import MOST_EVENTS
from experiments.xplane import XSpace
from formatting import counted

RECONSTRUCTED = "reconstructed"
#: (reader, why there is no step time where nothing marks steps) by kind of trace.
READERS: dict[str, tuple[Callable[[Path, str], TraceFile], str]] = {
    "kineto": (kineto.read, kineto.WHY_NO_STEPS),
    "nsight": (nsight.read, nsight.WHY_NO_STEPS),
    "trace": (kineto.read, kineto.WHY_NO_STEPS),  # which says what to upload instead
}


@dataclass(frozen=True)
class Host:
    """One host's profile, checked.

    name: of the host.  file: where its bytes are.  label: what it says of itself, if generated.  silent: devices that
    recorded no op beside others that did.  memory_bytes: of one device, where its plane states it.  regrouped: of a CPU
    recording, for the converter.  span_ns: of its cores, in Unix time.
    """

    name: str
    file: Found
    cores: tuple[CoreTimeline, ...]
    memory: Memory
    notes: tuple[Note, ...]
    label: str = ""
    silent: int = 0
    memory_bytes: float | None = None
    regrouped: bytes = b""
    span_ns: tuple[int, int] | None = None
    has_threads: bool = False


def read(
    *,
    uploads: Sequence[Sequence[str]],
    exclude: Sequence[str],
    folder: Path,
    limits: Limits,
    report: Progress,
    trace: str = "",
) -> dict[str, Any]:
    """The StepProfile, as JSON, of the uploads [(path, name), …].

    trace: write the event store to a file of this name in the folder.
    """
    items = [(Path(path), name) for path, name in uploads]
    report("unpack", 0.0, "Unpacking the upload" if len(items) == 1 else f"Unpacking {len(items)} files")
    contents = unpack(items, folder, limits)
    files = _hash(items)
    if contents.files[0].kind == "json":
        report("read", 0.8, "Reading XProf's JSON exports")
        profile = read_json.read([(item.path, item.name) for item in contents.files], files)
        return STEP_PROFILE.write(profile)
    builder = _builder(folder, limits) if trace else None
    if contents.files[0].kind in READERS:
        profile = _read_traces(contents, files, exclude, report, builder)
        if builder is not None and profile.ops:
            builder.write(folder / trace)
        return STEP_PROFILE.write(profile)
    hosts = _load_hosts(contents, exclude, report, builder)
    kept = latest_run([host.span_ns for host in hosts], CLOCKS_NS)
    earlier = [host.name for host, is_kept in zip(hosts, kept, strict=True) if not is_kept]
    if earlier:
        builder = _builder(folder, limits) if trace else None
        hosts = _load_hosts(contents, [*exclude, *earlier], report, builder)
    session = folder / "session"
    session.mkdir()
    what = f"{len(hosts)} hosts" if len(hosts) > 1 else hosts[0].name
    report("convert", 0.4, f"Converting {what} with XProf")
    paths = _write_session(hosts, session)
    tables = convert(paths, what)
    report("read", 0.85, "Reading steps and ops")
    notes = [*_notes(hosts, contents, exclude), *earlier_runs(earlier)]
    profile = read_xprof.read(
        tables,
        cores=[core for host in hosts for core in host.cores],
        hosts=len(hosts),
        on_cpu=any(host.regrouped for host in hosts),
        has_threads=any(host.has_threads for host in hosts),
        files=_named(files, [(host.file.name, host.name) for host in hosts]),
        memory=replace(
            worst([host.memory for host in hosts]),
            schedule=heap_schedule(tables.heap),
            allocator=allocator_curve(tables.allocators),
        ),
        notes=notes,
        label=next((host.label for host in hosts if host.label), ""),
        silent=sum(host.silent for host in hosts),
        memory_bytes=next((host.memory_bytes for host in hosts if host.memory_bytes), None),
        kernels=lambda named: _kernels(hosts, named),
    )
    if builder is not None:
        programs = {str(key): name for key, name in dict(tables.op_stats.program_id_to_name_map).items()}
        builder.write(folder / trace, programs=programs)
    return STEP_PROFILE.write(profile)


def _builder(folder: Path, limits: Limits) -> TraceBuilder:
    # Half of what a file may have: the events are spooled to one before they are written to another.
    return TraceBuilder(folder, min(MOST_EVENTS, limits.unpacked_bytes // 50))


def _read_traces(
    contents: Contents,
    files: Sequence[SourceFile],
    exclude: Sequence[str],
    report: Progress,
    builder: TraceBuilder | None,
) -> StepProfile:
    """The StepProfile of traces of one of the kinds in READERS, read one after the other, so that one is held."""
    kind = contents.files[0].kind
    reader, no_steps = READERS[kind]
    wanted = _wanted(contents, exclude)
    recordings: list[TraceFile] = []
    for index, item in enumerate(wanted):
        which = f"Reading trace {index + 1} of {len(wanted)}" if len(wanted) > 1 else "Reading the trace"
        report("read", 0.05 + 0.85 * index / len(wanted), which)
        try:
            recordings.append(reader(item.path, item.name))
        except IngestError as error:
            error.excludable = len(wanted) > 1
            raise
    report("read", 0.9, "Merging ranks" if len(recordings) > 1 else "Merging steps and ops")
    named = _named(files, [(each.file, f"rank {each.rank}") for each in recordings if each.rank is not None])
    notes = _notes([], contents, exclude)
    return profile_of_traces(recordings, named, source_kind=kind, no_steps=no_steps, notes=notes, builder=builder)


def _wanted(contents: Contents, exclude: Sequence[str]) -> list[Found]:
    """The files that are not excluded: by name, by that of the member of an archive, with its folders or without."""
    left_out = set(exclude)
    wanted = []
    for item in contents.files:
        member = item.name.partition(": ")[2] or item.name
        if not left_out & {item.name, member, member.rpartition("/")[2]}:
            wanted.append(item)
    if not wanted:
        raise IngestError("Everything in this session is excluded.", "Keep at least one file.", kind="empty")
    return wanted


def _load_hosts(
    contents: Contents, exclude: Sequence[str], report: Progress, builder: TraceBuilder | None = None
) -> list[Host]:
    left_out = set(exclude)
    candidates = _wanted(contents, exclude)
    hosts: list[Host] = []
    for index, item in enumerate(candidates):
        report(
            "check",
            0.05 + 0.35 * index / len(candidates),
            f"Checking host {index + 1} of {len(candidates)}" if len(candidates) > 1 else "Checking the profile",
        )
        try:
            host = _load_host(item, left_out, builder)
        except IngestError as error:
            error.excludable = len(candidates) > 1
            if not error.excludable:
                error.next_step = error.next_step.replace(", or continue without this host", "")
            raise
        if host.name not in left_out:
            hosts.append(host)
    if not hosts:
        raise IngestError("Everything in this session is excluded.", "Keep at least one host.", kind="empty")
    refuse_twice(((host.name, host.file.name) for host in hosts), "host")
    return hosts


def _load_host(item: Found, left_out: set[str], builder: TraceBuilder | None) -> Host:
    space = load(item.path, item.name)
    host = host_name(space, item.name)
    notes = [Note("warning", f"{host}: {text[:300]}") for text in space.errors]
    label, silent = "", 0
    for text in space.warnings:
        if text.lower().startswith(RECONSTRUCTED):
            label = text[:200]
        else:
            notes.append(Note("warning", f"{host}: {text[:300]}"))
    regrouped = None
    if is_cpu_recording(space):
        regrouped, cores = regroup(space, host)
    else:
        planes = core_planes(space)
        annotated = any(len(Annotations(space).steps(base_ns(op_lines(plane)))) for plane in planes[:1])
        try:
            read_cores = [read_core(plane, host, annotated=annotated) for plane in planes]
        except ImpossibleTime as error:
            raise IngestError(f"{item.name} is damaged: {error}.", COPY_AGAIN, item.name) from error
        cores = tuple(core for core in read_cores if core is not None)
        silent = _silent_devices(space, len(cores))
        if silent:
            averaged = "times and rates are of that one" if len(cores) == 1 else f"averages are over these {len(cores)}"
            text = f"{host}: only {len(cores)} of {len(cores) + silent} devices recorded any op; {averaged}."
            notes.append(Note("warning", text))
    if builder is not None and host not in left_out:
        add_host(builder, space, host, regrouped=regrouped)
    converted = regrouped.SerializeToString() if regrouped is not None else b""
    threads = any(line.events for plane in space.planes if plane.name.startswith("/host:CPU") for line in plane.lines)
    memory, size, span = peak_memory(space), device_memory(space), span_ns(space)
    return Host(host, item, cores, memory, tuple(notes), label, silent, size, converted, span, threads)


def _silent_devices(space: XSpace, active: int) -> int:
    """Devices without an op beside `active` ones that recorded some; 0 where none recorded any."""
    devices = sum(plane.name.startswith(("/device:GPU:", "/device:TPU:")) for plane in space.planes)
    if not 0 < active < devices or any("SparseCore" in plane.name for plane in space.planes):
        return 0
    return devices - active


def _write_session(hosts: Sequence[Host], session: Path) -> list[Path]:
    """One file per host in the session's folder: linked where nothing changes, written where ops are regrouped."""
    taken: set[str] = set()
    paths = [session_file(session, host.name, taken) for host in hosts]
    for path, host in zip(paths, hosts, strict=True):
        if host.regrouped:
            path.write_bytes(host.regrouped)
        else:
            path.symlink_to(host.file.path.resolve())
    return paths


def _notes(hosts: Sequence[Host], contents: Contents, exclude: Sequence[str]) -> list[Note]:
    notes = [note for host in hosts for note in host.notes]
    if exclude:
        left = ", ".join(sorted(exclude)[:5])
        notes.append(Note("warning", f"Read without {left}: stragglers there are not detected."))
    if contents.ignored:
        some = ", ".join(name.rpartition("/")[2] for name in contents.ignored[:3])
        notes.append(Note("info", f"{counted(len(contents.ignored), 'other file')} in the upload not used: {some}."))
    return notes


def _kernels(hosts: Sequence[Host], named: set[tuple[str, str]]) -> Kernels:
    """Kernels of GPUs, and ops of a host without its programs' HLO, that are not among the named ops."""
    kernels = Kernels()
    for host in hosts:
        space = XSpace.FromString(host.regrouped) if host.regrouped else load(host.file.path, host.file.name)
        kernels.add(space, named)
    return kernels


def _hash(uploads: Sequence[tuple[Path, str]]) -> list[SourceFile]:
    result: list[SourceFile] = []
    for path, name in uploads:
        with path.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        result.append(SourceFile(name, "", path.stat().st_size, digest))
    return result


def _named(files: Sequence[SourceFile], found: Sequence[tuple[str, str]]) -> tuple[SourceFile, ...]:
    """Each upload with the hosts or ranks that came out of it.  found: (file, its host or rank)."""
    result: list[SourceFile] = []
    for file in files:
        inside = [which for name, which in found if name == file.name or name.startswith(f"{file.name}: ")]
        result.append(replace(file, host=", ".join(inside[:8])))
    return tuple(result)
