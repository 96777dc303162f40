"""Static files under hashed names, compressed by the first start."""

from __future__ import annotations

from typing import Any

from whitenoise.compress import Compressor
from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticStorage(CompressedManifestStaticFilesStorage):
    """Each file once, and by gzip alone: brotli is installed only where test tools brought it, and its default takes
    18 s of a first start for 17 % fewer bytes."""

    keep_only_hashed_files = True

    def create_compressor(self, **kwargs: Any) -> Compressor:
        return Compressor(use_brotli=False, **kwargs)
