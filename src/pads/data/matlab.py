"""The files of MATLAB 5, as far as lists of annotations need them, read in plain Python: a spoilt file is an error and no more.

A file is a row of elements, each of which has a type and a length; an array is an element made of elements, and may be
compressed. A struct array becomes a dict of lists, a cell array a list, text a string, and numbers a list.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 32_000_000
"""Of all that is unpacked: the annotations of CARS196 are a quarter of it."""
DEEPEST = 8
"""Arrays within arrays."""
NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
"""The letter of `struct` for each type of numbers."""
TEXTS = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, TEXT = 1, 2, 4
"""Classes of arrays; those from 6 on are numbers."""


class Element(NamedTuple):
    kind: int
    data: memoryview


def read_mat(path: Path) -> dict[str, Any]:
    """Read the arrays of a file by their names; whatever is wrong with it is a ValueError."""
    content = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("not a file of MATLAB 5")
    arrays, room = {}, MOST_BYTES
    try:
        for element in split_elements(memoryview(content)[128:], order):
            data = unpack_element(element, room)
            room -= len(data)
            for each in split_elements(data, order) if element.kind == COMPRESSED else [element]:
                if each.kind == MATRIX and each.data:
                    name, value = parse_array(each.data, order)
                    arrays[name] = value
    except (struct.error, LookupError, StopIteration, TypeError, OverflowError, zlib.error) as error:
        raise ValueError(f"damaged ({error})") from error
    return arrays


def split_elements(data: memoryview, order: str) -> Iterator[Element]:
    """Yield the elements of a file or of an array: small ones hold their bytes in the place of their length."""
    at = 0
    while at + 8 <= len(data):
        kind, length = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:
            kind, length, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        else:
            start, step = at + 8, 8 + (length if kind == COMPRESSED else -(-length // 8) * 8)
        if (length > 4 and step == 8 and kind != COMPRESSED) or start + length > len(data):
            raise ValueError("an element is longer than what it is in")
        yield Element(kind, data[start : start + length])
        at += step


def unpack_element(element: Element, room: int) -> memoryview:
    """Return the bytes of an element, unpacked if they are compressed and not larger than there is room."""
    if element.kind != COMPRESSED:
        data, is_whole = element.data, len(element.data) <= room
    else:
        packer = zlib.decompressobj()
        data = memoryview(packer.decompress(element.data, room + 1))
        is_whole = len(data) <= room
    if not is_whole:
        raise ValueError(f"it holds more than {MOST_BYTES // 1_000_000} MB")
    return data


def parse_array(data: memoryview, order: str, depth: int = 0) -> tuple[str, Any]:
    """Return the name of an array and its value."""
    if depth > DEEPEST:
        raise ValueError("arrays within arrays without end")
    elements = split_elements(data, order)
    kind = numbers_of(next(elements), order)[0] & 0xFF
    size = math.prod(numbers_of(next(elements), order))
    name = bytes(next(elements).data).decode("ascii")
    if kind in (CELL, STRUCT) and size > len(data):
        raise ValueError("more arrays than there are bytes")

    def inner() -> Any:
        element = next(elements)
        if element.kind != MATRIX:
            raise ValueError("an array is missing")
        return parse_array(element.data, order, depth + 1)[1] if element.data else []

    if kind == CELL:
        return name, [inner() for _ in range(size)]
    if kind == STRUCT:
        length, names = numbers_of(next(elements), order)[0], bytes(next(elements).data)
        fields = [
            names[at : at + length].split(b"\0")[0].decode("ascii") for at in range(0, len(names), max(1, length))
        ]
        rows = [[inner() for _ in fields] for _ in range(size)]
        return name, {field: [row[at] for row in rows] for at, field in enumerate(fields)}
    content = next(elements, Element(2, memoryview(b"")))
    if kind == TEXT:
        return name, text_of(content, order)
    if kind < 6:
        raise ValueError(f"an array of class {kind}")
    return name, list(numbers_of(content, order))


def numbers_of(element: Element, order: str) -> tuple[Any, ...]:
    letter = NUMBERS.get(element.kind)
    if letter is None:
        raise ValueError(f"an element of type {element.kind} in place of numbers")
    return struct.unpack(f"{order}{len(element.data) // struct.calcsize(letter)}{letter}", element.data)


def text_of(element: Element, order: str) -> str:
    if element.kind in TEXTS:
        ending = "" if element.kind == 16 else "-le" if order == "<" else "-be"
        return bytes(element.data).decode(TEXTS[element.kind] + ending)
    return "".join(map(chr, numbers_of(element, order)))
