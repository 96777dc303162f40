"""Launch files: a proposal as the flags and files of the tools that would run it.  Pure; nothing is run here."""

from proposals.launch.file import KINDS, LaunchFile, archive
from proposals.launch.tools import files

__all__ = ["KINDS", "LaunchFile", "archive", "files"]
