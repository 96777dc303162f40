"""Credentials in texts from outside, such as logs: keys, tokens, passwords.

Recognised by format (keys of cloud providers and model hubs, JSON web tokens, private keys) or by context: in a URL, in
a header, after a name such as `DB_PASSWORD=`.
"""

from __future__ import annotations

import re

from agent.provider.hiding import HIDDEN

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
)

_FORM = re.compile(
    r"""\b(?:
        (?:sk|pk|rk)-[A-Za-z0-9*._-]{6,}        # OpenAI and compatible providers
      | (?:hf|gh[opsur])_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}\b             # AWS
      | AIza[\w-]{30,} | ya29\.[\w.-]{10,}      # Google
      | nvapi-[\w-]{16,} | xox[a-z]-[\w-]{10,}  # NVIDIA, Slack
      | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*         # JSON web token
    ) | (?<=Bearer\ )[^\s"']+""",
    re.VERBOSE,
)
_IN_ADDRESS = re.compile(r"""(?<=://)(?:[^\s/:'"]*:[^\s/'"]+|[^\s/:@'"]{16,})(?=@)""")
_HEADER = re.compile(
    r"""(authorization\\?["']?\s*[:=]\s*\\?["']?)
    (?:(?:Basic|Bearer|Token|ApiKey)\ +[^\s"']+ | (?:Digest|Negotiate|AWS4-HMAC-SHA256)\ [^"'\r\n]+ | [^\s"']{16,})""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET = r"(?:pass(?:word|wd|phrase)|secret|(?:api|access|account|private|secret)[_-]?key)"
_SET = r"""\\?["']?[ \t]*[:=][ \t]*\\?["']?"""
#: Whatever follows these names is secret.
_NAMED = re.compile(
    rf"""({_SECRET}{_SET}|(?<!\S)--?[\w-]{{0,40}}{_SECRET}\ +)(?!\[hidden\])
    (?:(?<=")[^"\\\r\n]+|(?<=')[^'\\\r\n]+|[^\s"',;&)}}\]\\]+)""",
    re.VERBOSE | re.IGNORECASE,
)
#: After these, only what has letters, digits and the length of a key: `eos_token=</s>` does not.
_NAMED_KEY = re.compile(
    rf"""((?:token|signature|\bsig|credential|cookie){_SET}|(?<!\S)--?[\w-]{{0,40}}token\ +)
    (?=[^\s"'/]{{0,200}}[0-9])(?=[^\s"'/]{{0,200}}[A-Za-z])[\w.+=~%-][\w.+=~%/-]{{15,}}""",
    re.VERBOSE | re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """The text with every credential hidden and the rest unchanged."""
    # Most lines of a log hold none of the words, for which the patterns would be tried at every place.
    small = text.lower() if text.isascii() else None  # other letters may match ASCII ones where case is ignored
    if "-----BEGIN " in text:
        text = _PRIVATE_KEY.sub(HIDDEN, text)
    if "://" in text:
        text = _IN_ADDRESS.sub(HIDDEN, text)
    if small is None or "authorization" in small:
        text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _FORM.sub(HIDDEN, text)
    if small is None or any(word in small for word in ("pass", "secret", "key")):
        text = _NAMED.sub(rf"\1{HIDDEN}", text)
    if small is None or any(word in small for word in ("token", "sig", "credential", "cookie")):
        text = _NAMED_KEY.sub(rf"\1{HIDDEN}", text)
    return text
