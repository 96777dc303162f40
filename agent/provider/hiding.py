"""A secret kept out of what a server sends, also where it comes in pieces, spelt out or encoded.

Whoever knows the key (the endpoint does) can always find a spelling that nobody thought of; these are the ones that a
reader or a browser turns back without a tool of their own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

HIDDEN = "[hidden]"

#: Letters and digits that a key must have before its encodings are looked for; below, it may be a word of a sentence.
_LEAST = 16
#: Characters between two letters of a secret that still read as one word: `s p a c e d`, `**b**o**l**d`.
_WIDEST_GAP = 16
#: Letters from the middle of a secret that are held back until more has come.
_TELLING = 4
_ESCAPED = re.compile(
    r"\\u([0-9a-f]{4})|\\x([0-9a-f]{2})|&#x0*([0-9a-f]{1,6});?|%([0-9a-f]{2})|&#0*([0-9]{1,7});?|([a-z0-9])",
    re.IGNORECASE | re.ASCII,
)
_OPEN_ESCAPE = re.compile(r"(?:\\(?:u[0-9a-f]{0,3}|x[0-9a-f]?)?|&(?:#x?[0-9a-f]{0,8})?|%[0-9a-f]?)\Z", re.IGNORECASE)
_OTHER = re.compile(r"[^a-z0-9]+")


class Hiding:
    """Hides secrets in texts.

    A secret is found as it is; one of at least 16 letters and digits also spaced, reversed, escaped (JSON, HTML, URL),
    in hexadecimal, Base32 or Base64, and of each of these any half.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._forms = tuple(dict.fromkeys(form for secret in secrets for form in _forms(secret)))
        self._parts = {form[at : at + _half(form)] for form in self._forms for at in range(len(form) - _half(form) + 1)}
        self._longest = max(map(_half, self._forms), default=0)

    def hide(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for start, end in reversed(self._matches(text)):
            text = text[:start] + HIDDEN + text[end:]
        return text

    def open_chars(self, text: str) -> int:
        """Characters at the end of a text that comes in pieces with which a secret may begin, or goes on."""
        cut = len(text) - max(
            (size for secret in self._secrets for size in range(1, len(secret)) if text.endswith(secret[:size])),
            default=0,
        )
        if not self._forms:
            return len(text) - cut
        half_written = _OPEN_ESCAPE.search(text)
        if half_written is not None:
            cut = min(cut, half_written.start())
        letters, places = _letters(text if half_written is None else text[: half_written.start()])
        for size in range(min(self._longest, len(letters)), 0, -1):
            if len(text) - places[-1][1] <= _WIDEST_GAP and self._goes_on(letters[-size:]):
                cut = min(cut, places[-size][0])
                break
        for start, end in reversed(self._matches(text)):
            if start < cut < end or end == (places[-1][1] if places else -1):
                cut = min(cut, start)
        return len(text) - cut

    def _goes_on(self, end: str) -> bool:
        """Whether a form begins so; or holds so much from its middle, where less tells nothing."""
        return any(form.startswith(end) or (len(end) >= _TELLING and end in form) for form in self._forms)

    def _matches(self, text: str) -> list[tuple[int, int]]:
        """Where half a form or more of it stands, as it lies in the text."""
        if not self._parts or not self._may_hold(text):
            return []
        letters, places = _letters(text)
        hits = sorted((at, at + len(part)) for part in self._parts for at in _all(letters, part))
        merged: list[tuple[int, int]] = []
        for start, end in hits:
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return [(places[start][0], places[end - 1][1]) for start, end in merged]

    def _may_hold(self, text: str) -> bool:
        if "\\" in text or "&" in text or "%" in text:
            return True
        plain = _OTHER.sub("", text.lower())
        return any(part in plain for part in self._parts)


def _forms(secret: str) -> Iterator[str]:
    plain = _OTHER.sub("", secret.lower())
    if len(plain) < _LEAST:
        return
    data = secret.encode()
    yield from (plain, plain[::-1], data.hex(), _OTHER.sub("", base64.b32encode(data).decode().lower()))
    for before in range(3):  # what stands before the secret shifts its Base64
        whole = base64.b64encode(bytes(before) + data).decode()
        yield _OTHER.sub(
            "", whole[-(-before * 4 // 3) : len(whole) - (0 if (before + len(data)) % 3 == 0 else 4)].lower()
        )


def _half(form: str) -> int:
    return max(len(form) // 2, _LEAST // 2)


def _letters(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Letters and digits, escapes undone, small; and the position of each.  A wide gap leaves a mark that no form
    has."""
    letters: list[str] = []
    places: list[tuple[int, int]] = []
    for match in _ESCAPED.finditer(text):
        if places and match.start() - places[-1][1] > _WIDEST_GAP:
            letters.append(" ")
            places.append((match.start(), match.start()))
        json_hex, c_hex, html_hex, url_hex, html_number, plain = match.groups()
        number = json_hex or c_hex or html_hex or url_hex
        code = int(number, 16) if number else int(html_number) if html_number else ord(plain)
        letter = chr(code).lower() if code < 128 else " "
        if letter.isascii() and letter.isalnum():
            letters.append(letter)
            places.append(match.span())
    return "".join(letters), places


def _all(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
