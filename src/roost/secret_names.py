"""Recognises the names of secrets, and hides the values of secrets in texts."""

from __future__ import annotations

import re

# A name is secret if one of its words is, however the words are joined: DB_PASS, api-key, openaiKey2, SIGNING_KEYS.
# The end of a word decides: PGPASSWORD is one word and secret; tokenizers, authors and keyboards are not.
_SECRET_ENDINGS = (
    *("key", "token", "secret", "password", "passwd", "pass", "pwd", "passphrase", "passcode"),
    *("credential", "creds", "auth", "authorization"),
)
_SECRET_WORDS = frozenset(("cred", "bearer", "jwt", "pat", "pswd"))
_OPEN_WORDS = frozenset(
    (
        *("monkey", "donkey", "turkey", "hockey", "jockey", "whiskey", "turnkey", "hotkey"),
        "pkey",  # NCCL_IB_PKEY is the number of an InfiniBand partition
        *("compass", "encompass", "bypass", "overpass", "underpass", "surpass", "trespass", "multipass"),
        *("lowpass", "highpass", "bandpass"),
    )
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# A name, and its value up to the end of the entry. A match begins only where a name does, and the number of
# blanks is bounded, so that hostile lines are cheap to search.
_NAME = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,60}[:=]\s{0,60}""")
_VALUE = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|[^,}\]]+""")
# A name in looser spellings: also in `name: HF_TOKEN, value: x`, and among variables in `HF_TOKEN x`.
_MENTION = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,60}[:=,]\s{0,60}""")
_BARE_MENTION = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,60}[:=,\s]\s{0,60}""")
# The login in a URL. A password may hold a slash. A match ends before the next URL, so that hostile texts are
# cheap to search.
_LOGIN = re.compile(r"(?<=://)(?:[^/@\s:]+|[^/@\s:]*:(?:(?!://)\S)*)(?=@)")


def looks_secret(name: str, value: object = None) -> bool:
    """Whether a value must be hidden: because of its name, or because it is a URL with a login."""
    return any(_is_secret(word.lower()) for word in _WORD.findall(name[:200])) or holds_login(value)


def _is_secret(word: str) -> bool:
    return (
        any(
            one in _SECRET_WORDS or (one.endswith(_SECRET_ENDINGS) and one not in _OPEN_WORDS)
            for one in (word, word.removesuffix("s"))
        )
        or "password" in word
    )


class SecretText(str):
    """A value that is hidden under any name, because a reference to a secret gave it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def holds_login(value: object) -> bool:
    return isinstance(value, SecretText) or (isinstance(value, str) and bool(_LOGIN.search(value)))


def hide_secrets(text: str) -> str:
    """The text with the values of secrets replaced by as many stars, so that carets below it stay right."""
    pieces, done = [], 0
    for name in _NAME.finditer(text):
        if name.start() >= done and looks_secret(name[1]) and (value := _VALUE.match(text, name.end())):
            pieces += [text[done : value.start()], "*" * len(value[0])]
            done = value.end()
    return _LOGIN.sub(lambda login: "*" * len(login[0]), "".join(pieces) + text[done:])


def hide_rest(text: str, bare: bool = False) -> str:
    """Like `hide_secrets`, for a text of unknown grammar: stars replace everything after a secret name."""
    for name in (_BARE_MENTION if bare else _MENTION).finditer(text):
        if looks_secret(name[1]):
            return hide_secrets(text[: name.end()]) + "*" * (len(text) - name.end())
    return hide_secrets(text)
