"""XProf's own server and pages for one profile, in a process of its own.

The process is confined like the converter (`experiments.ingest.sandbox`): address space, processor time and file size
are limited, it has nothing of the server's environment, its files lie in a private folder, and it listens on a Unix
socket in there that nobody else may reach.  It ends when nobody asked for some time, or its parent is gone.
"""

from experiments.viewer.process import Viewer, ViewerError, start

__all__ = ["Viewer", "ViewerError", "start"]
