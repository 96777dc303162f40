"""A secret kept out of what a server sends, also spelt out or encoded.

Whoever knows the key (the endpoint does) can always find a spelling that nobody thought of; these are the ones that a
reader or a browser turns back without a tool of their own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import unquote

HIDDEN = "[hidden]"

#: Letters and digits that a key must have before its encodings are looked for; below, it may be a word of a sentence.
_LEAST = 16
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\x([0-9a-f]{2})", re.IGNORECASE)
_OTHER = re.compile(r"[^a-z0-9]+")


class Hiding:
    """Hides secrets in texts.

    A secret is found as it is; one of at least 16 letters and digits also spaced, reversed, escaped (JSON, HTML, URL),
    in hexadecimal, Base32 or Base64, and of each of these any half.  A text that spells one so is hidden as a whole.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._parts = {part for secret in secrets for form in _forms(secret) for part in _halves(form)}

    def hide(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return HIDDEN if self.spells(text) else text

    def open_chars(self, text: str) -> int:
        """Characters at the end of a text that comes in pieces with which a secret may begin."""
        begun = (size for secret in self._secrets for size in range(1, len(secret)) if text.endswith(secret[:size]))
        return max(begun, default=0)

    def spells(self, text: str) -> bool:
        """Return True if the text spells a secret otherwise, or half of it."""
        if not self._parts:
            return False
        unescaped = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
        letters = _OTHER.sub("", unquote(unescape(unescaped)).lower())
        return any(part in letters for part in self._parts)


def _forms(secret: str) -> Iterator[str]:
    plain = _OTHER.sub("", secret.lower())
    if len(plain) < _LEAST:
        return
    data = secret.encode()
    yield from (plain, plain[::-1], data.hex(), _OTHER.sub("", base64.b32encode(data).decode().lower()))
    for before in range(3):  # what stands before the secret shifts its Base64
        whole = base64.b64encode(bytes(before) + data).decode()
        end = len(whole) - (0 if (before + len(data)) % 3 == 0 else 4)
        yield _OTHER.sub("", whole[-(-before * 4 // 3) : end].lower())


def _halves(form: str) -> Iterator[str]:
    size = max(len(form) // 2, _LEAST // 2)
    return (form[at : at + size] for at in range(len(form) - size + 1))
