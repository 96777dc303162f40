"""A secret kept out of what a server sends.

Whoever knows the key (the endpoint does) can encode it so that nobody finds it; what is found is the key itself, also
with other characters between its letters.
"""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
#: Letters and digits that a key must have before it is looked for among other characters; below, it may be a word.
_LEAST = 16
_OTHER = re.compile(r"[^a-z0-9]+")
#: A letter as JSON may write it: arguments of tools are read as JSON.
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)


class Hiding:
    """Hides secrets in texts.  A text that spells one of at least 16 letters and digits is hidden as a whole."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._spelt = [plain for each in secrets if len(plain := _OTHER.sub("", each.lower())) >= _LEAST]

    def hide(self, text: str) -> str:
        """Return the text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return HIDDEN if self.spells(text) else text

    def open_chars(self, text: str) -> int:
        """Return the characters at the end of a text that comes in pieces with which a secret may begin."""
        begun = (size for secret in self._secrets for size in range(1, len(secret)) if text.endswith(secret[:size]))
        return max(begun, default=0)

    def spells(self, text: str) -> bool:
        """Return True if the text holds a secret with other characters between its letters."""
        unescaped = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        letters = _OTHER.sub("", unescaped.lower()) if self._spelt else ""
        return any(plain in letters for plain in self._spelt)
