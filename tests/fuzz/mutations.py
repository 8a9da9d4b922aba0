"""Valid files, spoilt: bits, lengths, splices, and values of JSON, CSV and file headers that nobody expects.

Everything is drawn from one `random.Random`, so that a number names a trial for ever.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

DEEP = "[" * 3000 + "]" * 3000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 255, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308),
    *(float("inf"), float("nan"), "", " ", "auto", "0", "none", "null", "\0", "a\nb", "é\ud800", "/", "..", "../../x"),
    *("/dev/zero", "x" * 300, [], {}, [1], [[]], [None], {"a": 1}, {"": None}, [1e9, -1], ["a", 1], {"name": "x"}),
)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


def mutate(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four changes of bytes."""
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4))):
        content = chance.choice(BYTES)(content, chance, others)
    return content


# -- bytes -------------------------------------------------------------------------------------------------------------


def place(content: bytes, chance: random.Random) -> int:
    """Somewhere, and rather often near the beginning, where headers are."""
    if not content:
        return 0
    return chance.randrange(min(len(content), 64) if chance.random() < 0.3 else len(content))


def length(chance: random.Random) -> int:
    """Mostly a few bytes, sometimes hundreds."""
    return chance.randint(1, 2 ** chance.randint(0, 8))


def flip(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    if not content:
        return content
    at = place(content, chance)
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def set_byte(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = place(content, chance)
    return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]


def truncate(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    return content[: place(content, chance)]


def drop(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = place(content, chance)
    return content[:at] + content[at + length(chance) :]


def repeat(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = place(content, chance)
    return content[:at] + content[at : at + length(chance)] * chance.randint(2, 5) + content[at:]


def insert(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = place(content, chance)
    return content[:at] + bytes(chance.randrange(256) for _ in range(length(chance) % 64)) + content[at:]


def zero(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at = place(content, chance)
    size = min(len(content) - at, length(chance))
    return content[:at] + bytes(size) + content[at + size :]


def set_number(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    at, size = place(content, chance), chance.choice((2, 4, 8))
    number = chance.choice(NUMBERS) % (1 << (8 * size))
    return content[:at] + number.to_bytes(size, chance.choice(("little", "big"))) + content[at + size :]


def splice(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others) if others else content
    return content[: place(content, chance)] + other[place(other, chance) :]


BYTES: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    *(flip, flip, set_byte, truncate, drop, repeat, insert, zero, set_number, splice),
)

# -- JSON --------------------------------------------------------------------------------------------------------------


def mutate_json(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """One to three values of a JSON document; or its bytes."""
    if chance.random() < 0.25:
        return mutate(content, chance, others)
    value = json.loads(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        value = swap_value(value, chance)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.9)
    if chance.random() < 0.02:
        text = text.replace("null", DEEP, 1) if "null" in text else DEEP
    return text.encode("utf-8", "surrogatepass")


def swap_value(value: Any, chance: random.Random) -> Any:
    """The same document with one value changed, gone, doubled or put elsewhere."""
    spots = list(spots_of(value))
    if not spots:
        return any_value(chance)
    group, key = chance.choice(spots)
    act = chance.randrange(10)
    if act == 0:
        del group[key]
    elif act == 1 and isinstance(group, list):
        group.insert(key, group[key])
    elif act == 2:
        other, other_key = chance.choice(spots)
        group[key] = json.loads(json.dumps(other[other_key]))
    elif act == 3 and isinstance(group, dict):
        group[chance.choice(("", "x", "name", "options", "tensor", "items"))] = any_value(chance)
    elif act == 4 and isinstance(group[key], int | float) and not isinstance(group[key], bool):
        group[key] = chance.choice((-group[key], group[key] * 1000, group[key] + 1, group[key] - 1, str(group[key])))
    else:
        group[key] = any_value(chance)
    return value


def any_value(chance: random.Random) -> Any:
    """One of VALUES, new each time: a list that is put into itself has no end."""
    return copy.deepcopy(chance.choice(VALUES))


def spots_of(value: Any) -> Any:
    """Every place in a document: its group and its key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        yield value, key
        yield from spots_of(item)


def mutate_lines(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Some lines of a file of JSON lines."""
    lines = content.split(b"\n")
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        if lines[at].startswith(b"{") and chance.random() < 0.7:
            lines[at] = spoil_line(lines[at], chance)
        else:
            lines = mutate(b"\n".join(lines), chance, others).split(b"\n")
    return b"\n".join(lines)


def spoil_line(line: bytes, chance: random.Random) -> bytes:
    try:
        return mutate_json(line, chance)
    except (ValueError, RecursionError):
        return mutate(line, chance)


# -- other headers -----------------------------------------------------------------------------------------------------


def mutate_safetensors(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """The header, or what is written in the header as text, or bytes."""
    if chance.random() < 0.3:
        return mutate(content, chance, others)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = header.get("__metadata__", {})
    inner = [name for name, text in about.items() if text[:1] in "{["]
    if inner and chance.random() < 0.7:
        name = chance.choice(inner)
        about[name] = mutate_json(about[name].encode(), chance).decode("utf-8", "replace")
        text = json.dumps(header).encode()
    else:
        text = mutate_json(content[8 : 8 + length], chance)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def mutate_array(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """The header of an .npy, which is Python text; or bytes."""
    if chance.random() < 0.4:
        return mutate(content, chance, others)
    head = content[:128]
    for old, new in chance.sample(HEADER_SWAPS, 2):
        head = head.replace(old, new, 1)
    return head + content[128:]


HEADER_SWAPS = [
    *((b"<f4", b"|O "), (b"<f4", b">f8"), (b"<f4", b"<U9"), (b"False", b"True "), (b"False", b"[[[[["), (b"(", b"[")),
    *(
        (b"shape", b"shale"),
        (b"8)", b"-8)"),
        (b", ", b"*9"),
        (b"}", b" "),
        (b"'descr'", b"__import"),
        (b"1", b"99999999"),
    ),
    *((b"|u1", b"|b1"), (b"NUMPY", b"NUMPX"), (b"\x01\x00", b"\x02\x00"), (b"3,", b"0,")),
]


def mutate_table(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Cells of a CSV; or bytes."""
    if chance.random() < 0.3:
        return mutate(content, chance, others)
    rows = [line.split(",") for line in content.decode("utf-8", "replace").splitlines()] or [[""]]
    for _ in range(chance.choice((1, 1, 2, 3))):
        row = chance.choice(rows)
        act, at = chance.randrange(6), chance.randrange(len(row))
        if act == 0:
            row.pop(at)
            row or row.append("")
        elif act == 1:
            row.insert(at, str(chance.choice(VALUES)))
        elif act == 2:
            rows.insert(chance.randrange(len(rows)), list(chance.choice(rows)))
        elif act == 3:
            row[at] = chance.choice(chance.choice(rows))
        else:
            row[at] = str(chance.choice((*VALUES, '"', '"a\nb"', "nan", "1e400", "²", "x" * 5000, "\r")))
    return "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")


def mutate_text(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """A setting of the command line: its key, its value, or both."""
    key, _, value = content.decode().partition("=")
    act = chance.randrange(6)
    if act == 0:
        key = mutate(key.encode(), chance).decode("utf-8", "replace")
    elif act == 1:
        key = key.rpartition(".")[0] or f"{key}.x"
    elif act == 2:
        value = mutate(value.encode(), chance).decode("utf-8", "replace")
    else:
        value = json.dumps(chance.choice(VALUES)) if chance.random() < 0.9 else DEEP
    return (key + ("=" if chance.random() < 0.97 else "") + value).encode("utf-8", "surrogatepass")
