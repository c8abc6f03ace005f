"""Folding: other forms of digits, letters and separators as ASCII, each in its place.

People and keyboards write numbers in full width or in the digits of other scripts. The detectors
that ship look for ASCII; a folded text is as long as the text itself, so the spans they find in it
are those of the text. Detectors of one's own are given the text as it is.
"""

from __future__ import annotations

import unicodedata

__all__ = ["folded"]

_DASHES = "\u2012\u2013\u2014\u2212\ufe58\ufe63"
_SPACES = "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u200a\u205f\u3000"


class _Forms(dict[int, str]):
    """What each character is folded to, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code >= 128 and character.isdigit():  # circled and raised ones, too
            form = str(unicodedata.digit(character))
        else:
            form = chr(code - 0xFEE0) if 0xFF01 <= code <= 0xFF5E else character
        self[code] = form
        return form


_FORMS = _Forms(
    {
        **{ord(one): "-" for one in _DASHES},
        **{ord(one): " " for one in _SPACES},
        **{ord(one): "." for one in "\u3002\uff61\ufe52"},
        ord("\ufe55"): ":",
        ord("\ufe6b"): "@",
    }
)


def folded(text: str) -> str:
    """Return a text of the same length, with ASCII where a character has such a form."""
    return text if text.isascii() else text.translate(_FORMS)
