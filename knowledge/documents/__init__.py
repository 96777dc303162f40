"""Documents that users add: what a file is, and its text cut into passages that can be cited by place.

Knows no Django.  A file's bytes are only ever read in a process of their own (`reader.read`).
"""

from knowledge.documents.errors import DocumentError
from knowledge.documents.pieces import Piece
from knowledge.documents.reader import Read, read

__all__ = ["DocumentError", "Piece", "Read", "read"]
