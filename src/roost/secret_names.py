"""Which names stand for secrets, and how texts are shown without their values."""

from __future__ import annotations

import re
from collections.abc import Iterable

# A name is secret by one of its words, however they are joined: DB_PASS, api-key, openaiKey2, SIGNING_KEYS.
# By how the word ends, since PGPASSWORD is one word; not by how it begins, so that tokenizers, authors,
# keyboards and passes stay in the open.
_SECRET_ENDINGS = (
    *("key", "token", "secret", "password", "passwd", "pass", "pwd", "passphrase", "passcode"),
    *("credential", "creds", "auth", "authorization"),
)
_SECRET_WORDS = frozenset(("cred", "bearer", "jwt", "pat", "pswd"))
_OPEN_WORDS = frozenset(
    (
        *("monkey", "donkey", "turkey", "hockey", "jockey", "whiskey", "turnkey", "hotkey"),
        "pkey",  # NCCL_IB_PKEY: a number of the network
        *("compass", "encompass", "bypass", "overpass", "underpass", "surpass", "trespass", "multipass"),
        *("lowpass", "highpass", "bandpass"),
    )
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# A name, and its value to the end of the entry. A search begins where a name does, and blanks are bounded, to
# keep hostile lines cheap.
_NAME = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,60}[:=]\s{0,60}""")
_VALUE = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|[^,}\]]+""")
# A mention of a name: in `name: HF_TOKEN, value: x` too; and, where variables are, in `HF_TOKEN x`.
_MENTION = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,60}[:=,]\s{0,60}""")
_BARE_MENTION = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,60}[:=,\s]\s{0,60}""")
# A password may hold a slash. A search ends at the next URL, which keeps hostile texts cheap.
_LOGIN = re.compile(r"(?<=://)(?:[^/@\s:]+|[^/@\s:]*:(?:(?!://)\S)*)(?=@)")


def looks_secret(name: str, value: object = None) -> bool:
    """Whether a value should not be shown: by its name, or because it is a URL with a login."""
    return any(_is_secret(word.lower()) for word in _WORD.findall(name[:200])) or holds_login(value)


def _is_secret(word: str) -> bool:
    return (
        any(
            one in _SECRET_WORDS or (one.endswith(_SECRET_ENDINGS) and one not in _OPEN_WORDS)
            for one in (word, word.removesuffix("s"))
        )
        or "password" in word
    )


def holds_login(value: object) -> bool:
    return isinstance(value, str) and bool(_LOGIN.search(value))


def hide_secrets(text: str) -> str:
    """The text with the values of secret names starred out, at the same width for the carets."""
    pieces, done = [], 0
    for name in _NAME.finditer(text):
        if name.start() >= done and looks_secret(name[1]) and (value := _VALUE.match(text, name.end())):
            pieces += [text[done : value.start()], "*" * len(value[0])]
            done = value.end()
    return _LOGIN.sub(lambda login: "*" * len(login[0]), "".join(pieces) + text[done:])


def hide_rest(text: str, bare: bool = False) -> str:
    """The same for a text of unknown grammar: all that follows a secret name is starred out."""
    for name in (_BARE_MENTION if bare else _MENTION).finditer(text):
        if looks_secret(name[1]):
            return hide_secrets(text[: name.end()]) + "*" * (len(text) - name.end())
    return hide_secrets(text)


def is_secret(path: Iterable[object]) -> bool:
    """Whether what stands at this path should not be shown."""
    return any(isinstance(step, str) and looks_secret(step) for step in path)
