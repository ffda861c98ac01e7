"""What a plain scalar of YAML means: to Kubernetes' own reader, not to YAML 1.1 (no sexagesimal numbers, no dates)."""

from __future__ import annotations

import re

__all__ = ["Refused", "meaning", "whole_text"]

MAX_DIGITS = 40
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF")
_INT = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)?\.?[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class Refused(Exception):
    """It cannot be read: why, and the line."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message, self.line = message, line


def meaning(text: str, line: int) -> str | int | float | bool | None:
    """What a plain (unquoted) scalar means."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() in {"yes", "true", "on"}
    digits = any(c.isdigit() for c in text)
    if digits and _INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise Refused(f"the number has {len(text)} digits; no field takes more than 19", line)
        raw = text.replace("_", "")
        sign, body = (-1, raw[1:]) if raw[0] == "-" else (1, raw.lstrip("+"))
        try:
            if body[:2] in {"0b", "0x", "0o"}:
                return sign * int(body, 0)
            return sign * (int(body, 8) if len(body) > 1 and body[0] == "0" else int(body))
        except ValueError:
            return text
    if (digits and _FLOAT.fullmatch(text)) or text.lstrip("+-").lower() in {".inf", ".nan"}:
        try:
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return text
    return text


def whole_text(text: str, line: int) -> str:
    """JSON writes characters beyond the BMP as two escapes; join them.  A lone half is no character."""
    if not any("\ud800" <= c <= "\udfff" for c in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Refused("a \\u escape names half a character; write both halves, or the character itself", line) from None
