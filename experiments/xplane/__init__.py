"""Profiles as XProf stores them: the `XSpace` schema and a small writer.

`xplane_pb2.py` is generated from `xplane.proto`; regenerate it from the repository root with

    uv run python -m grpc_tools.protoc -I . --python_out=. experiments/xplane/xplane.proto
"""

from experiments.xplane.xplane_pb2 import XEvent, XEventMetadata, XLine, XPlane, XSpace, XStat, XStatMetadata

__all__ = ["XEvent", "XEventMetadata", "XLine", "XPlane", "XSpace", "XStat", "XStatMetadata"]
